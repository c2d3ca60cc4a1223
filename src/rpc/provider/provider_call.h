// One call of a provider in another process, and its rules.
#ifndef CBT_RPC_PROVIDER_PROVIDER_CALL_H_
#define CBT_RPC_PROVIDER_PROVIDER_CALL_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/secrets.h"
#include "rpc/client/message_receiver.h"
#include "rpc/provider/answer.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {

// What one stream asks, in each of its calls.
struct ProviderQuestion {
  std::shared_ptr<Channel> channel;
  std::string base;  // empty: what is allocated
  std::string target;
  Secrets secrets;
  std::stop_token stop;
  Deadline deadline;
  StallLimit silence;
  LogSink* log = nullptr;  // may be null
};

// The parts of one answer. Belongs to one thread; the destructor cancels the call and does not wait
// for the plugin.
class ProviderCall {
 public:
  // Sends the question and waits for the head. `question` must outlive the call.
  static absl::StatusOr<std::unique_ptr<ProviderCall>> Open(const ProviderQuestion& question,
                                                            uint64_t starting_offset);

  const AnswerHead& head() const noexcept { return head_; }

  enum class Event {
    kPart,  // part() is the next bitmap or extents
    kEnd,   // the plugin has said how much it sent, that much arrived, and the call ended with OK
    kNothing,  // for a moment: call again
  };

  // Waits for the next event, for a tenth of a second: what the consumer has must not wait longer
  // for what may come late.
  absl::StatusOr<Event> Next();

  // The current part; its bytes are valid until the next call of Next().
  const AnswerPart& part() const noexcept { return part_; }

 private:
  explicit ProviderCall(const ProviderQuestion& question)
      : question_(question), receiver_(question.channel, question.deadline, question.stop) {}

  // kPart for any message.
  absl::StatusOr<Event> NextMessage();
  absl::Status EndOfCall();

  const ProviderQuestion& question_;
  MessageReceiver receiver_;
  FlatMessage flat_;
  absl::Cord message_;
  AnswerHead head_;
  AnswerPart part_;
  uint64_t count_ = 0;  // bytes of the bitmap, or extents
  bool end_said_ = false;
  std::chrono::milliseconds waited_{0};  // since the last message
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_PROVIDER_PROVIDER_CALL_H_
