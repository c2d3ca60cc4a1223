// A call on the client, independent of the transport.
#ifndef CBT_RPC_TRANSPORT_CLIENT_CALL_H_
#define CBT_RPC_TRANSPORT_CLIENT_CALL_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace cbt::rpc {

using Deadline = std::optional<std::chrono::system_clock::time_point>;

// Receives the events of a call, one at a time. They come from the transport's threads and must not
// block.
class ClientCallHandler {
 public:
  virtual ~ClientCallHandler() = default;

  // True: continue reading. False: stop until ReadOn(). Throwing ends the call with an error.
  virtual bool OnMessage(absl::Cord message) = 0;

  // Called once and last; may destroy the call. OK only if the server ended the call with OK and
  // every message before that was delivered. Must not throw.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// A call of a method that takes one message and returns any number. Thread safe. It and its handler
// must live until OnEnd() is called.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  // Sends `request` (encoded) to the method at `path` and starts reading. Call once. Throws
  // std::bad_alloc before anything has started.
  virtual void Start(const std::string& path, const std::string& request,
                     ClientCallHandler& handler) = 0;

  // Continues after the handler has stopped. May come before OnMessage() has returned false.
  virtual void ReadOn() noexcept = 0;

  // Ends the call soon, whatever the server does; OnEnd() is called. Unless the end had already
  // been read, its status is an error, even if the server's OK has arrived: messages before it may
  // not have been read. May come before Start(), and after OnEnd().
  virtual void Cancel() noexcept = 0;

  // Metadata of the call: initial in OnMessage() and after, trailing in OnEnd() and after. The only
  // value of `key`; kGivenTwice if there are several, for Trailing() also if there is an initial
  // one. Values of "-bin" keys are decoded.
  virtual std::optional<std::string_view> Initial(std::string_view key) const = 0;
  virtual std::optional<std::string_view> Trailing(std::string_view key) const = 0;

 protected:
  ClientCall() = default;
};

// A server's address and the connections to it. Thread safe. The last reference may be dropped
// anywhere except in an event of one of its calls.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // A call that ends with DEADLINE_EXCEEDED at `deadline`. It keeps what it needs of the channel.
  virtual std::unique_ptr<ClientCall> NewCall(Deadline deadline) = 0;

  // Waits in this thread until `done` returns true, or until `until`. `done` may only depend on
  // events of the channel's calls and is called after each. For channels whose events run in
  // waiting threads; otherwise returns false at once, because the transport's threads handle
  // events.
  virtual bool HandleEvents(absl::FunctionRef<bool()> /*done*/,
                            std::chrono::steady_clock::time_point /*until*/) noexcept {
    return false;
  }

  // Waits until a connection is established; UNAVAILABLE with the reason if an attempt fails, or
  // none has succeeded at `deadline`.
  virtual absl::Status Connect(std::chrono::system_clock::time_point deadline) = 0;

  // False if the last attempt to connect failed for a reason that time seldom mends: the host has
  // no address, a socket's path no directory, what is there is no socket, TLS was refused on either
  // side, the peer speaks another protocol.
  virtual bool IsTransient() noexcept { return true; }

 protected:
  Channel() = default;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CLIENT_CALL_H_
