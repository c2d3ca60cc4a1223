// A call on the server as services see it, independent of the transport.
#ifndef CBT_RPC_TRANSPORT_SERVER_CALL_H_
#define CBT_RPC_TRANSPORT_SERVER_CALL_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"

namespace cbt::rpc {

// The service's side of a call: receives its events. They come from the transport's threads and
// must not block; OnCancel() may run at the same time as another event. They must not throw.
class CallHandler {
 public:
  virtual ~CallHandler() = default;

  // StartRead() has completed. `ok`: `message` is the next message after the request; otherwise the
  // client has sent its last one, or the call is over.
  virtual void OnReadDone(bool /*ok*/, absl::Cord /*message*/) {}

  // Write() has completed: the transport has passed the message on and accepts the next one. `ok`
  // is false if the call is over.
  virtual void OnWriteDone(bool /*ok*/) {}

  // The client has cancelled the call or disconnected, or the deadline has passed. The handler must
  // still call Finish().
  virtual void OnCancel() {}

  // Called once and last, after Finish(): every other event has returned, and the transport has
  // sent the status or given up. May destroy the handler. The ServerCall is gone when this returns.
  virtual void OnDone() = 0;
};

// The transport's side of a call. Thread safe. Events of an operation may come before it returns.
// Valid until OnDone() has returned.
class ServerCall {
 public:
  // When the client stops waiting; empty: never.
  virtual std::optional<std::chrono::system_clock::time_point> deadline() const = 0;

  // Which of the transport's loops the call's events come from: what else runs in it has no
  // hand-over between threads. 0 for transports without numbered loops.
  virtual size_t loop() const { return 0; }

  // The client's address without its port; empty if it has none, or if the transport does not say.
  // Call it while the call is opened. Throws std::bad_alloc.
  virtual std::string peer() const { return {}; }

  // Reads the next message of the client; ends with OnReadDone(). At most one read at a time.
  virtual void StartRead() noexcept = 0;

  // Metadata: initial before the first Write() or Finish(), trailing before Finish(). Keys are
  // lowercase; values of keys that end in "-bin" are bytes, others printable ASCII.
  // Throws std::bad_alloc.
  virtual void AddInitialMetadata(std::string_view key, std::string_view value) = 0;
  virtual void AddTrailingMetadata(std::string_view key, std::string_view value) = 0;

  // Sends a message from the memory of `message`, without copying it; ends with OnWriteDone(). At
  // most one write at a time. The first one sends the initial metadata.
  virtual void Write(absl::Cord message) noexcept = 0;

  // Ends the call, once: after what Write() has accepted, the client gets `status`, as
  // StatusForWire() cuts it, and the trailing metadata. Ends with OnDone().
  virtual void Finish(absl::Status status) noexcept = 0;

  // Write(), and Finish() with OK. OnWriteDone() is not called.
  virtual void WriteAndFinish(absl::Cord message) noexcept = 0;

  // Ends the call at once, even if the client reads nothing: what was not sent is dropped. The
  // client sees an error unless it already has the status. The handler must still call Finish()
  // if it has not.
  virtual void Cancel() noexcept = 0;
  // The same because the server ends: where the transport can say so, the client sees UNAVAILABLE
  // and asks elsewhere.
  virtual void CancelForDrain() noexcept { Cancel(); }

 protected:
  ~ServerCall() = default;
};

// Opens a call once its request, the client's first message, has arrived whole: returns its
// handler, which must live until OnDone(), or the status that ends it. Until then the service knows
// nothing of the call; the transport limits the number, the memory and the time of half requests,
// and refuses a call without a request. Called on the transport's threads; must not block. It may
// use `call`, but events come only after it has returned. std::bad_alloc ends the call with
// RESOURCE_EXHAUSTED.
using OpenCall = std::function<absl::StatusOr<CallHandler*>(ServerCall& call, absl::Cord request)>;

// Methods by path.
class Service {
 public:
  struct Method {
    std::string path;  // "/package.Service/Method"
    OpenCall open;
  };

  Service() = default;
  virtual ~Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const std::vector<Method>& methods() const noexcept { return methods_; }

 protected:
  // Call before the service is given to a transport. For unary and streaming methods alike: the
  // handler decides how many further messages to read, and how many to write.
  void AddMethod(std::string path, OpenCall open) {
    methods_.push_back({std::move(path), std::move(open)});
  }

 private:
  std::vector<Method> methods_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_SERVER_CALL_H_
