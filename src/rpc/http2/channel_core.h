// A channel's connections, and the calls that wait for one.
#ifndef CBT_RPC_HTTP2_CHANNEL_CORE_H_
#define CBT_RPC_HTTP2_CHANNEL_CORE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/address.h"
#include "net/tls_context.h"
#include "rpc/http2/channel.h"
#include "rpc/http2/client_loop.h"
#include "rpc/http2/connection.h"
#include "rpc/http2/connector.h"

namespace cbt::rpc::http2 {

class CallCore;
class DrivenLoop;

// The deadline on the steady clock; nullopt if it is too far away to represent.
std::optional<net::EventLoop::Clock::time_point> SteadyTime(const Deadline& deadline);

// An intrusive list of calls; a call is in at most one list.
class CallList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void PushBack(CallCore& call) noexcept;
  // Null if empty.
  CallCore* PopFront() noexcept;
  void Remove(CallCore& call) noexcept;

 private:
  CallCore* first_ = nullptr;
  CallCore* last_ = nullptr;
};

// Lives in its loop; unless noted, members belong to the loop's thread. The channel and its calls
// reference it from any thread; dropping the last reference destroys it in the loop.
class ChannelCore final : private ConnectionListener, private Connector::Listener {
 public:
  // `tls`: null for plain text. Throws std::bad_alloc.
  static std::shared_ptr<ChannelCore> Create(const net::Address& address,
                                             std::unique_ptr<net::ClientTls> tls,
                                             const ChannelOptions& options,
                                             std::shared_ptr<const ClientLoop> loop);

  // From any thread.
  net::EventLoop& loop() const noexcept { return *loop_->loop; }
  const ChannelOptions& options() const noexcept { return options_; }
  const std::string& authority() const noexcept { return authority_; }
  bool secure() const noexcept { return tls_ != nullptr; }

  // From any thread but the loop's. See Channel::Connect(). `driven`: the loop, if this thread must
  // run it; otherwise null.
  absl::Status Connect(std::chrono::system_clock::time_point deadline, DrivenLoop* driven);

  // In any thread. See Channel::IsTransient().
  bool IsTransient() const noexcept { return transient_.load(); }

  // Opens the call on a connection, now or once there is one, or fails it.
  void StartCall(CallCore& call) noexcept;

  // The connection of `call` has ended: the call fails with the connection's reason, which follows.
  void AddLost(CallCore& call) noexcept { lost_.PushBack(call); }

  // `call` has ended.
  void Forget(CallCore& call) noexcept;

  // Why the last attempt failed; OK if there has been a connection since.
  const absl::Status& last_failure() const noexcept { return last_failure_; }

 private:
  using Clock = net::EventLoop::Clock;
  // A thread in Connect().
  struct Waiter {
    std::optional<absl::Status> result;
    Waiter* next = nullptr;
  };

  ChannelCore(const net::Address& address, std::unique_ptr<net::ClientTls> tls,
              const ChannelOptions& options, std::shared_ptr<const ClientLoop> loop);
  ~ChannelCore();
  void Destroy() noexcept { delete this; }

  void OnConnected(absl::StatusOr<OwnedDescriptor> socket) noexcept override;
  void OnReady(Connection& connection) noexcept override;
  void OnGoaway(Connection& connection, uint32_t code, std::string_view text) noexcept override;
  void OnClosed(Connection& connection, const absl::Status& reason) noexcept override;

  absl::Status OpenConnection(OwnedDescriptor socket);
  bool CanOpen() const noexcept { return current_ != nullptr && current_->CanOpen(); }
  bool MakeRoom() noexcept;
  void OpenWaiting() noexcept;
  void RetireCurrent() noexcept;
  void Attempt(bool at_once) noexcept;
  void OnAttemptFailed(const absl::Status& reason, bool waiting_may_help) noexcept;
  void OnWanted() noexcept;
  bool HasWaiters() noexcept;
  void WakeWaiters(const absl::Status& result) noexcept;

  const net::Address address_;
  const std::string authority_;
  const std::unique_ptr<net::ClientTls> tls_;
  const ChannelOptions options_;
  const std::shared_ptr<const ClientLoop> loop_;

  Connector connector_;
  std::unique_ptr<Connection> current_;           // takes new calls, unless it has just ended
  std::vector<std::unique_ptr<Connection>> old_;  // end with their calls; has room for current_
  CallList waiting_;
  CallList lost_;
  Clock::duration backoff_{0};
  Clock::time_point next_attempt_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Waiter* waiters_ = nullptr;  // guarded by mutex_
  absl::Status last_failure_;  // written in the loop with the lock held
  std::atomic<bool> transient_ = true;

  net::MemberTask<ChannelCore, &ChannelCore::Destroy> destroy_task_{*this};
  net::MemberTask<ChannelCore, &ChannelCore::OnWanted> wanted_task_{*this};
  net::MemberTimer<ChannelCore, &ChannelCore::OnWanted> retry_timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CHANNEL_CORE_H_
