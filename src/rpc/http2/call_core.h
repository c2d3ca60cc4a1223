// A channel's call in its loop.
#ifndef CBT_RPC_HTTP2_CALL_CORE_H_
#define CBT_RPC_HTTP2_CALL_CORE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "net/event_loop.h"
#include "rpc/http2/channel_core.h"
#include "rpc/http2/connection.h"
#include "rpc/http2/response.h"
#include "rpc/http2/stream.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc::http2 {

// Referenced by its user's ClientCall, by itself from the start to OnEnd(), and by its queued task:
// the user may destroy the ClientCall in OnEnd(), possibly right after another request. Unless
// noted, members belong to the loop's thread.
class CallCore final : public Stream, public std::enable_shared_from_this<CallCore> {
 public:
  CallCore(std::shared_ptr<ChannelCore> channel, Deadline deadline);
  ~CallCore() = default;

  // Implement ClientCall; callable from any thread.
  void Start(const std::string& path, const std::string& request, ClientCallHandler& handler);
  void ReadOn() noexcept { Ask(kReadOn); }
  void Cancel() noexcept;
  const Response& response() const noexcept { return response_; }

  // Sends the request on `connection`.
  void Open(Connection& connection) noexcept;

  // There is no connection, or it was lost: ends with `reason` after everything received so far.
  void Fail(const absl::Status& reason) noexcept;

 private:
  friend class CallList;
  friend class ChannelCore;
  using Clock = net::EventLoop::Clock;
  enum Wish : unsigned { kStart = 1, kReadOn = 2, kCancel = 4 };

  void Ask(Wish wish) noexcept;
  void Run() noexcept;
  void Begin() noexcept;
  void OnTime() noexcept;
  void Deliver() noexcept;
  bool DeliverNext();
  void Consume() noexcept;
  void End(absl::Status status) noexcept;

  void OnHeaders(const HeaderBlock& headers, bool end) noexcept override;
  void OnData(absl::Cord data) noexcept override;
  void OnTrailers(const HeaderBlock& trailers) noexcept override;
  void OnRemoteEnd() noexcept override;
  void OnSent() noexcept override { sent_ = true; }
  void OnClosed(const StreamEnd& end) noexcept override;

  const std::shared_ptr<ChannelCore> channel_;
  const Deadline deadline_;

  // Until Start() returns, these belong to its thread.
  std::string path_;
  absl::Cord request_;
  ClientCallHandler* handler_ = nullptr;
  std::optional<Clock::time_point> end_at_;  // the deadline

  std::mutex mutex_;
  unsigned wishes_ = 0;               // guarded by mutex_
  std::shared_ptr<CallCore> queued_;  // this, while the task is queued; guarded by mutex_
  bool over_ = false;                 // no further requests; guarded by mutex_
  std::atomic<bool> cancelled_{false};

  std::shared_ptr<CallCore> started_;  // this, until OnEnd()
  Response response_;
  size_t unconsumed_ = 0;  // received bytes, not returned to the server's window yet
  bool stopped_ = false;   // the handler takes no message before ReadOn()
  bool opened_ = false;
  bool sent_ = false;  // the whole request has been sent

  CallList* list_ = nullptr;
  CallCore* next_ = nullptr;
  CallCore* previous_ = nullptr;
  net::MemberTask<CallCore, &CallCore::Run> task_{*this};
  net::MemberTimer<CallCore, &CallCore::OnTime> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CALL_CORE_H_
