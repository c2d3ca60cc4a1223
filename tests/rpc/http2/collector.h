// A call handler that stores what it receives.
#ifndef CBT_TESTS_RPC_HTTP2_COLLECTOR_H_
#define CBT_TESTS_RPC_HTTP2_COLLECTOR_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/transport/client_call.h"

namespace cbt::test {

class Collector final : public rpc::ClientCallHandler {
 public:
  // Stops after every `stop_after` messages; 0: never.
  explicit Collector(size_t stop_after = 0) : stop_after_(stop_after) {}

  bool OnMessage(absl::Cord message) override {
    if (on_message) on_message();
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(status_.has_value());
    messages_.emplace_back(message);
    changed_.notify_all();
    return stop_after_ == 0 || messages_.size() % stop_after_ != 0;
  }

  void OnEnd(const absl::Status& status) override {
    if (on_end) on_end();
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(status_.has_value());
    status_ = status;
    // Under the lock: the waiting thread may destroy this object at once.
    changed_.notify_all();
  }

  // Returns the final status; fails the test after half a minute.
  absl::Status Await() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return status_.has_value(); })) {
      ADD_FAILURE() << "the call did not end";
      std::abort();
    }
    return *status_;
  }

  // Waits for `count` messages or the end; false if there were fewer.
  bool AwaitMessages(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30),
                      [&] { return messages_.size() >= count || status_.has_value(); });
    return messages_.size() >= count;
  }

  bool ended() {
    const std::lock_guard lock(mutex_);
    return status_.has_value();
  }
  std::vector<std::string> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

  // Runs in the event loop before the event is stored.
  std::function<void()> on_message;
  std::function<void()> on_end;

 private:
  const size_t stop_after_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> messages_;
  std::optional<absl::Status> status_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_HTTP2_COLLECTOR_H_
