// The messages of a server-streaming call for a consumer that blocks until they arrive.
#ifndef CBT_RPC_CLIENT_MESSAGE_RECEIVER_H_
#define CBT_RPC_CLIENT_MESSAGE_RECEIVER_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "rpc/client/inbound_stream.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// Passes messages from the transport's threads to the consumer's: at most some hundred kilobytes
// ahead of it, not counting one message. Unless noted, functions belong to the consumer's thread.
class MessageReceiver final : private ClientCallHandler {
 public:
  // `stop` cancels the call. Throws std::bad_alloc.
  MessageReceiver(std::shared_ptr<Channel> channel, Deadline deadline, std::stop_token stop);
  // Cancels a running call and does not wait for the server.
  ~MessageReceiver() override;

  // Sends `request` (encoded) to the method at `path`. Call once, before anything else. Throws
  // std::bad_alloc before anything has started.
  void Start(const std::string& path, const std::string& request) {
    call_->Start(path, request, *this);
    started_ = true;
  }

  // The next message; empty at the end: see status(). DEADLINE_EXCEEDED if neither arrives within
  // the limit.
  absl::StatusOr<std::optional<absl::Cord>> Take(StallLimit stall);

  // A message was taken.
  bool received() const noexcept { return received_; }
  bool ended() const;
  // Once it has ended.
  absl::Status status() const;
  // For its metadata.
  const ClientCall& call() const noexcept { return *call_; }

 private:
  using OnStop = std::optional<std::stop_callback<std::function<void()>>>;

  bool OnMessage(absl::Cord message) override;
  void OnEnd(const absl::Status& status) override;

  template <typename Done>
  void Wait(std::unique_lock<std::mutex>& lock, const Done& done, StallLimit limit);
  void AwaitEnd();

  const std::shared_ptr<Channel> channel_;
  const std::unique_ptr<ClientCall> call_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::Cord> messages_;
  size_t bytes_ = 0;
  bool waiting_ = false;  // the consumer waits
  bool paused_ = false;   // the call is not read
  bool ended_ = false;
  bool received_ = false;  // a message was taken; belongs to the consumer
  bool started_ = false;
  absl::Status status_;
  OnStop on_stop_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_MESSAGE_RECEIVER_H_
