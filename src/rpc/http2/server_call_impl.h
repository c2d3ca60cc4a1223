// A call of our server: gRPC's protocol on a stream.
#ifndef CBT_RPC_HTTP2_SERVER_CALL_IMPL_H_
#define CBT_RPC_HTTP2_SERVER_CALL_IMPL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "net/event_loop.h"
#include "rpc/http2/header_block.h"
#include "rpc/http2/message_reader.h"
#include "rpc/http2/server_worker.h"
#include "rpc/http2/stream.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc::http2 {

// Created for a request; destroys itself after the handler's OnDone(). The handler is created once
// the request has arrived whole, so that half requests hold no resources of the service: they count
// among the streams and the memory of their connection, and have a time limit.
//
//            OnHeaders()           OpenIfWhole()             Finish()
//   created ------------> waiting_ -------------> handler_ -------------> finished_
//      |                      |                       |                       |
//      | no call of ours      | late, broken          | broken                | status sent,
//      +-----> refused_ <-----+-----------------------+                       | or lost_
//                 |           | reset, lost           | reset, lost           |
//                 |           +-------> lost_ <-------+                       |
//                 |                       |                                   v
//                 +-----------------------+-----------------------------> destroyed
//
// refused_: our own status is sent instead of the handler's. lost_: the stream has ended. In both,
// a handler sees a cancellation, and the call waits until it has finished. The call is destroyed
// once there is no handler that has to finish, no event is in progress and the stream is closed.
//
// Operations are recorded under a mutex and run in the loop: at once if requested there, otherwise
// by the posted task. Unless noted, members belong to the loop.
class CallImpl final : public Stream, public ServerCall, private net::Task {
 public:
  // Throws std::bad_alloc.
  explicit CallImpl(ServerWorker& worker);

  // The server stops: like Cancel().
  void CancelFromLoop() noexcept;

 private:
  friend class ServerWorker;

  ~CallImpl();

  // Stream
  void OnHeaders(const HeaderBlock& headers, bool end) noexcept override;
  void OnData(absl::Cord data) noexcept override;
  void OnRemoteEnd() noexcept override;
  void OnSent() noexcept override;
  void OnClosed(const StreamEnd& end) noexcept override;

  // ServerCall
  std::optional<std::chrono::system_clock::time_point> deadline() const override {
    return deadline_;
  }
  size_t loop() const override { return worker_.number(); }
  std::string peer() const override;
  void StartRead() noexcept override;
  void AddInitialMetadata(std::string_view key, std::string_view value) override;
  void AddTrailingMetadata(std::string_view key, std::string_view value) override;
  void Write(absl::Cord message) noexcept override;
  void Finish(absl::Status status) noexcept override;
  void WriteAndFinish(absl::Cord message) noexcept override;
  void Cancel() noexcept override;
  void CancelForDrain() noexcept override;

  // Operations requested but not carried out yet.
  struct Operations {
    bool read = false;
    bool write = false;
    bool write_quietly = false;  // no OnWriteDone()
    bool finish = false;
    bool cancel = false;
    bool draining = false;  // the cause
    // On its way from another thread: only the loop may touch the stream.
    absl::Cord message;
    absl::Status status;
  };

  void Run() noexcept override;
  template <typename Note>
  void Do(const Note& note) noexcept;
  void CarryOut() noexcept;
  void CarryOutOnce(Operations& operations) noexcept;
  absl::Status CheckHeaders(const HeaderBlock& headers);
  absl::Status Open(absl::Cord request);
  void OpenSoon() noexcept;
  void OpenIfWhole() noexcept;
  void SetWaiting(bool waiting) noexcept;
  void ScheduleDeadline() noexcept;
  absl::Status Broken(MessageReader::Result result) const;
  void Deliver() noexcept;
  bool DeliverOne() noexcept;
  void SendMessage(absl::Cord message) noexcept;
  void SendStatus() noexcept;
  void SendInitial();
  void Refuse(int http_status, const absl::Status& status) noexcept;
  void GiveUp(uint32_t code) noexcept;
  void OnLost() noexcept;
  void OnDeadline() noexcept;
  void DeleteIfDone() noexcept;

  // Guards an event: the call is not deleted before the event ends.
  class Event;

  ServerWorker& worker_;
  net::EventLoop& loop_;
  CallImpl* next_ = nullptr;
  CallImpl* previous_ = nullptr;
  const Service::Method* method_ = nullptr;
  CallHandler* handler_ = nullptr;
  std::optional<std::chrono::system_clock::time_point> deadline_;
  MessageReader reader_;

  std::mutex mutex_;
  Operations asked_;      // under mutex_
  HeaderBlock initial_;   // under mutex_
  HeaderBlock trailing_;  // under mutex_

  absl::Status status_;
  int http_status_ = 200;
  int events_ = 0;           // events in progress
  bool waiting_ = false;     // for the request; there is no handler yet. See SetWaiting()
  bool opens_soon_ = false;  // Run() opens it
  bool opening_ = false;
  bool carrying_out_ = false;
  bool delivering_ = false;
  bool reading_ = false;  // a read is open
  bool writing_ = false;  // a write is open
  bool quiet_ = false;    // the open write gets no OnWriteDone()
  bool initial_sent_ = false;
  bool request_ended_ = false;
  bool finished_ = true;  // the handler has finished, or there is no handler
  bool status_sent_ = false;
  bool refused_ = false;  // `status_` is ours, not the handler's
  bool lost_ = false;     // the stream has ended
  bool cancel_reported_ = false;
  bool deadline_passed_ = false;
  net::MemberTimer<CallImpl, &CallImpl::OnDeadline> timer_{*this};
};

// What a call holds beside its stream's data.
inline constexpr size_t kCallBytes = sizeof(CallImpl) + net::kHeapOverhead;

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SERVER_CALL_IMPL_H_
