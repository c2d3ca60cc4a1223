#include "rpc/client/streaming_inbound.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "rpc/client/paged_inbound.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/resumption.h"

namespace cbt::rpc {
namespace {

// Limits of what is received ahead of the consumer, not counting one message.
constexpr size_t kAheadBytes = 512 * kKiB;
constexpr size_t kAheadMessages = 64;

absl::Status TwoVersions() {
  return absl::DataLossError(absl::StrCat("metadata stream: ", AbslView(kTwoVersions)));
}

}  // namespace

// Passes messages from the transport's threads to the consumer's.
class StreamingInbound::Receiver final : public ClientCallHandler {
 public:
  Receiver(Channel& channel, Deadline deadline)
      : call(channel.NewCall(deadline)), channel_(channel) {}

  bool OnMessage(absl::Cord message) override {
    bool wake = false;
    bool go_on = false;
    {
      const std::lock_guard lock(mutex_);
      bytes_ += message.size();
      messages_.push_back(std::move(message));
      wake = waiting_;
      go_on = bytes_ < kAheadBytes && messages_.size() < kAheadMessages;
      paused_ = !go_on;
    }
    if (wake) changed_.notify_one();
    return go_on;
  }

  void OnEnd(const absl::Status& status) override {
    {
      const std::lock_guard lock(mutex_);
      status_ = status;
      ended_ = true;
      // Under the lock: the waiting thread may destroy this at once.
      changed_.notify_one();
    }
  }

  // The next message; empty at the end. DEADLINE_EXCEEDED if neither arrives within the limit.
  absl::StatusOr<std::optional<absl::Cord>> Take(StallLimit stall) {
    std::optional<absl::Cord> message;
    bool read_on = false;
    const auto something = [this] { return !messages_.empty() || ended_; };
    {
      std::unique_lock lock(mutex_);
      if (!something()) Wait(lock, something, stall);
      if (!something()) {
        return absl::DeadlineExceededError(
            absl::StrCat("metadata stream: the server sent nothing for ", stall->count(), " ms"));
      }
      if (messages_.empty()) return std::optional<absl::Cord>();
      message = std::move(messages_.front());
      messages_.pop_front();
      bytes_ -= message->size();
      received_ = true;
      // Not after each message.
      read_on = paused_ && bytes_ * 2 <= kAheadBytes && messages_.size() * 2 <= kAheadMessages;
      if (read_on) paused_ = false;
    }
    if (read_on) call->ReadOn();
    return message;
  }

  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    const auto ended = [this] { return ended_; };
    if (!ended()) Wait(lock, ended, {});
  }

  bool received() const noexcept { return received_; }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  absl::Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  const std::unique_ptr<ClientCall> call;

 private:
  // With the lock, until `done`.
  template <typename Done>
  void Wait(std::unique_lock<std::mutex>& lock, const Done& done, StallLimit limit) {
    using Clock = std::chrono::steady_clock;
    // Later is never, for a clock that would overflow.
    constexpr Clock::duration kLongest = std::chrono::hours(24 * 365);
    const auto until = Clock::now() + (limit.has_value() && *limit < kLongest ? *limit : kLongest);
    waiting_ = true;
    lock.unlock();
    const auto locked_done = [&] {
      const std::lock_guard inner(mutex_);
      return done();
    };
    const bool handled = channel_.HandleEvents(locked_done, until);
    lock.lock();
    if (!handled) changed_.wait_until(lock, until, done);
    waiting_ = false;
  }

  Channel& channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::Cord> messages_;
  size_t bytes_ = 0;
  bool waiting_ = false;  // the consumer waits
  bool paused_ = false;   // the call is not read
  bool ended_ = false;
  bool received_ = false;  // a message was taken; belongs to the consumer
  absl::Status status_;
};

StreamingInbound::StreamingInbound(std::shared_ptr<Channel> channel, const Contract& contract,
                                   const MethodContract& method, const std::string& request,
                                   Deadline deadline, std::stop_token stop, StallLimit stall)
    : channel_(std::move(channel)),
      contract_(contract),
      stall_(stall),
      receiver_(std::make_unique<Receiver>(*channel_, deadline)),
      // Constructed in place: emplace() would check for an earlier value, which GCC 14 warns about.
      on_stop_(stop.stop_possible()
                   ? OnStop(std::in_place, std::move(stop), [this] { receiver_->call->Cancel(); })
                   : OnStop()) {
  receiver_->call->Start(method.path, request, *receiver_);
}

absl::StatusOr<bool> StreamingInbound::Next(MetadataMessage& message) {
  const absl::StatusOr<std::optional<absl::Cord>> bytes = receiver_->Take(stall_);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) {
    absl::Status status = receiver_->status();
    timed_out_ = absl::IsDeadlineExceeded(status);
    if (!status.ok()) return status;
    if (Trailing(kSourceVersionKey) == kGivenTwice) return TwoVersions();
    return false;
  }
  if (Initial(kSourceVersionKey) == kGivenTwice) return TwoVersions();
  absl::Status status = flat_.Decode(**bytes, message);
  if (status.ok()) status = TranslateType(contract_, message);
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat("metadata stream: ", status.message()));
  }
  return true;
}

std::optional<std::string_view> StreamingInbound::Initial(std::string_view key) const {
  if (!receiver_->received() && !receiver_->ended()) return std::nullopt;
  return receiver_->call->Initial(key);
}

std::optional<std::string_view> StreamingInbound::Trailing(std::string_view key) const {
  if (!receiver_->ended()) return std::nullopt;
  return receiver_->call->Trailing(key);
}

StreamingInbound::~StreamingInbound() {
  on_stop_.reset();
  receiver_->call->Cancel();
  // Returns at once, whatever the server does; the channel must not be destroyed before.
  receiver_->AwaitEnd();
}

std::unique_ptr<InboundStream> OpenMessageStream(const std::shared_ptr<Channel>& channel,
                                                 const Contract& contract,
                                                 const MetadataRequest& request, Deadline deadline,
                                                 std::stop_token stop, StallLimit stall) {
  const MethodContract& method =
      request.base_snapshot_id.has_value() ? contract.delta : contract.allocated;
  if (contract.api == Api::kPaged) {
    return std::make_unique<PagedInbound>(channel, method, request, deadline, std::move(stop),
                                          stall);
  }
  return std::make_unique<StreamingInbound>(
      channel, contract, method, EncodeRequest(method, request), deadline, std::move(stop), stall);
}

}  // namespace cbt::rpc
