#include "rpc/client/unary_call.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace cbt::rpc {
namespace {

class Answer final : public ClientCallHandler {
 public:
  explicit Answer(ClientCall& call) : call_(call) {}

  bool OnMessage(absl::Cord message) override {
    if (message_.has_value()) {
      too_many_ = true;
      call_.Cancel();
      return false;
    }
    message_ = std::move(message);
    // The status comes after the end of the messages.
    return true;
  }

  void OnEnd(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    ended_ = true;
    // Under the lock: the waiting thread destroys this at once.
    changed_.notify_one();
  }

  absl::StatusOr<absl::Cord> Await(Channel& channel) {
    const auto ended = [this] {
      const std::lock_guard lock(mutex_);
      return ended_;
    };
    const bool handled = channel.HandleEvents(ended, std::chrono::steady_clock::time_point::max());
    std::unique_lock lock(mutex_);
    if (!handled) changed_.wait(lock, [this] { return ended_; });
    if (too_many_) return absl::InternalError("the server sent more than one message");
    if (!status_.ok()) return status_;
    if (!message_.has_value()) return absl::InternalError("the server sent no message");
    return *std::move(message_);
  }

 private:
  ClientCall& call_;
  // The transport's until OnEnd().
  std::optional<absl::Cord> message_;
  bool too_many_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<absl::Cord> UnaryCall::Run(const std::string& path, const std::string& request,
                                          const std::stop_token& stop) {
  Answer answer(*call_);
  call_->Start(path, request, answer);
  const std::stop_callback on_stop(stop, [this] { call_->Cancel(); });
  return answer.Await(channel_);
}

}  // namespace cbt::rpc
