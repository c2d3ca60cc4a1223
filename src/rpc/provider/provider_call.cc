#include "rpc/provider/provider_call.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"
#include "rpc/contract/status.h"
#include "rpc/relay/plugin_errors.h"

namespace cbt::rpc {
namespace {

constexpr std::chrono::milliseconds kMomentOfSilence(100);
constexpr std::string_view kUnreachable =
    "provider: it can't be reached, or it ended before its answer; try again later";

absl::Status Incomplete(std::string_view why) {
  return absl::DataLossError(absl::StrCat("provider: ", AbslView(why)));
}

void Log(LogSink* log, const absl::Status& status, const Secrets& secrets) {
  if (log == nullptr || !log->Wants(LogLevel::kWarning)) return;
  const std::string text(status.message());
  const std::array<LogField, 2> fields = {
      {{"code", absl::StatusCodeToString(status.code())},
       {"text", Resembles(text, secrets) ? "withheld: may contain a secret"
                                         : text.substr(0, kMaxStatusText)}}};
  log->Write(LogLevel::kWarning, "provider failed", fields);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProviderCall>> ProviderCall::Open(const ProviderQuestion& question,
                                                                 uint64_t starting_offset) {
  std::unique_ptr<ProviderCall> call(new ProviderCall(question));
  std::string request =
      EncodeOpenRequest(question.base, question.target, question.secrets, starting_offset);
  const Wiper wiper(request);
  call->receiver_.Start(std::string(kProviderOpen), request);
  Event event = Event::kNothing;
  while (event == Event::kNothing) {
    const absl::StatusOr<Event> next = call->NextMessage();
    if (!next.ok()) return next.status();
    event = *next;
  }
  if (event == Event::kEnd) return Incomplete("it ended its answer without a head");
  if (call->part_.kind != AnswerPart::Kind::kHead) {
    return ProviderBroken("its answer does not begin with a head");
  }
  call->head_ = call->part_.head;
  if (call->head_.begins_at > starting_offset) {
    return ProviderBroken("its answer begins after the starting offset");
  }
  return call;
}

absl::StatusOr<ProviderCall::Event> ProviderCall::Next() {
  for (;;) {
    const absl::StatusOr<Event> event = NextMessage();
    if (!event.ok() || *event == Event::kNothing) return event;
    if (*event == Event::kEnd) {
      if (end_said_) return Event::kEnd;
      return Incomplete("it ended its answer without an end: what it left out is unknown");
    }
    if (end_said_) return ProviderBroken("it sent more after its end");
    switch (part_.kind) {
      case AnswerPart::Kind::kHead:
        return ProviderBroken("it sent a second head");
      case AnswerPart::Kind::kBitmap:
        if (head_.content != AnswerContent::kBitmap)
          return ProviderBroken("it sent a bitmap unannounced");
        count_ += part_.bitmap.size();
        return Event::kPart;
      case AnswerPart::Kind::kExtents:
        if (head_.content != AnswerContent::kExtents) {
          return ProviderBroken("it sent extents unannounced");
        }
        count_ += part_.offsets.size();
        return Event::kPart;
      case AnswerPart::Kind::kEnd:
        if (part_.count != count_) {
          return Incomplete(
              absl::StrCat("its end counts ", part_.count, ", but ", count_, " arrived"));
        }
        end_said_ = true;
        break;  // the status follows
    }
  }
}

absl::StatusOr<ProviderCall::Event> ProviderCall::NextMessage() {
  // Only the time in which somebody waits counts: the client may be slow.
  std::chrono::milliseconds wait = kMomentOfSilence;
  if (question_.silence.has_value()) wait = std::min(wait, *question_.silence - waited_);
  absl::StatusOr<std::optional<absl::Cord>> message = receiver_.Take(wait);
  if (!message.ok()) {
    waited_ += wait;
    if (!question_.silence.has_value() || waited_ < *question_.silence) return Event::kNothing;
    return absl::Status(message.status().code(),
                        absl::StrCat("provider: it sent nothing for ", waited_.count(), " ms"));
  }
  waited_ = std::chrono::milliseconds(0);
  if (!message->has_value()) {
    absl::Status status = EndOfCall();
    if (!status.ok()) return status;
    return Event::kEnd;
  }
  message_ = **std::move(message);
  absl::Status status = DecodeAnswer(flat_.Of(message_), part_);
  if (!status.ok()) return status;
  return Event::kPart;
}

// The call's status as a client may see it.
absl::Status ProviderCall::EndOfCall() {
  absl::Status status = receiver_.status();
  if (status.ok()) return status;
  if (question_.stop.stop_requested()) return absl::CancelledError("the stream was cancelled");
  const std::optional<std::string_view> code = receiver_.call().Trailing("grpc-status");
  const bool said = code.has_value() && *code != "0";
  if (said && !Resembles(std::string(status.message()), question_.secrets)) {
    // The client's own call was not cancelled.
    if (!absl::IsCancelled(status)) return status;
    return absl::UnavailableError(AbslView(kUnreachable));
  }
  Log(question_.log, status, question_.secrets);
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError("provider: it took too long");
  }
  if (said) return absl::Status(status.code(), "provider: it failed; its text is withheld");
  // The transport's own: a lost connection, an answer that is not gRPC's, a message that is too
  // long.
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(
        "provider: it sent a message over 4 MiB, or memory ran out");
  }
  if (absl::IsUnavailable(status)) return absl::UnavailableError(AbslView(kUnreachable));
  return ProviderBroken("its answer is not one of gRPC");
}

}  // namespace cbt::rpc
