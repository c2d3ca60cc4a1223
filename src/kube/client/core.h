// The client's thread: starts requests, repeats them, and reports how they end.
#ifndef CBT_KUBE_CLIENT_CORE_H_
#define CBT_KUBE_CLIENT_CORE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/curl/libcurl.h"
#include "cbt/kube/client.h"
#include "kube/client/call_state.h"
#include "kube/client/credentials.h"
#include "kube/client/requests.h"
#include "kube/client/token_bucket.h"
#include "kube/client/transfer.h"

namespace cbt::kube {

class Client::Core : public Waker, public std::enable_shared_from_this<Client::Core> {
 public:
  static absl::StatusOr<std::shared_ptr<Core>> Create(const Config& config,
                                                      const ClientOptions& options);
  ~Core() override;

  // Each starts a call, from any thread. An invalid request fails through `done`.
  using Timeout = std::optional<std::chrono::milliseconds>;
  Call Begin(absl::StatusOr<ApiRequest> request, const Timeout& timeout,
             ResultCallback<Answer> done);
  Call BeginObject(absl::StatusOr<ApiRequest> request, const Timeout& timeout,
                   ResultCallback<Object> done);
  // One call of several requests. `next` gets the answer of each, or its error, and returns the
  // next request or an error at the end; then `done` is called with that last answer. The timeout
  // is for each request.
  using Next = std::function<absl::StatusOr<ApiRequest>(const absl::StatusOr<Answer>& answer)>;
  Call BeginSeries(absl::StatusOr<ApiRequest> request, const Timeout& timeout, Next next,
                   ResultCallback<Answer> done);
  Call BeginStream(absl::StatusOr<WireRequest> request, const StreamCallOptions& options,
                   StreamSink sink, StatusCallback done);

  // Ends all calls with CANCELLED and the thread with them.
  void Stop();

  bool InThread() const noexcept { return std::this_thread::get_id() == thread_id_.load(); }
  void WakeForCancel() noexcept override;

  const ClientOptions& options() const noexcept { return options_; }
  const std::string& name_space() const noexcept { return name_space_; }
  ClientCounters counters() const;

 private:
  using Clock = CallState::Clock;
  using Calls = std::list<std::shared_ptr<CallState>>;

  struct FreeMulti {
    void operator()(CURLM* multi) const noexcept { Curl().multi_cleanup(multi); }
  };

  Core(const Config& config, const ClientOptions& options, TransferSettings settings);

  Call Start(std::shared_ptr<CallState> call, absl::Status status);
  Clock::time_point DeadlineOf(const Timeout& timeout) const;

  void Run();
  void TakeNew();
  void EndCancelled();
  void EndOverdue(Clock::time_point now);
  void StartWaiting(Clock::time_point now);
  void Launch(CallState& call, std::shared_ptr<const Identity> identity);
  void TakeFinished();
  void TakeResult(CallState& call, Transfer::Result result);
  // Plans another attempt; false if there must not be one.
  bool Repeat(CallState& call, const absl::Status& error, std::chrono::milliseconds wait);
  std::chrono::milliseconds Backoff(int retries);
  // Ends the call, unless it is one of several requests and there is another.
  void Conclude(CallState& call, absl::StatusOr<Answer> result);
  void Detach(CallState& call) noexcept;
  // Takes the call out of everything and calls `done`.
  void End(CallState& call, absl::StatusOr<Answer> result) noexcept;
  Clock::time_point NextEvent(Clock::time_point now) const;
  Clock::time_point TimeOf(const CallState& call) const noexcept;

  const ClientOptions options_;
  const std::string name_space_;
  const TransferSettings settings_;
  std::unique_ptr<Credentials> credentials_;

  // The thread's own.
  std::unique_ptr<CURLM, FreeMulti> multi_;
  Calls calls_;  // all that have not ended
  std::deque<CallState*>
      waiting_;         // of these, those whose turn has not come; null: ended meanwhile
  size_t on_wire_ = 0;  // without streams
  TokenBucket bucket_;
  Clock::time_point next_token_{};  // when a call waits for one
  bool awaits_credentials_ = false;
  std::minstd_rand random_;

  std::atomic<bool> cancelled_{false};  // some call may be
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<uint64_t> count_calls_{0};
  std::atomic<uint64_t> count_requests_{0};
  std::atomic<uint64_t> count_retries_{0};
  std::atomic<uint64_t> count_connections_{0};

  std::mutex mutex_;
  Calls new_calls_;        // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_CORE_H_
