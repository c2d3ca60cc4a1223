#include "rpc/server/stream_telemetry.h"

#include <atomic>
#include <new>
#include <span>

#include "absl/strings/str_cat.h"
#include "rpc/contract/server_event.h"

namespace cbt::rpc {
namespace {

std::atomic<uint64_t> next_id = 1;

std::string Seconds(std::chrono::nanoseconds time) {
  return absl::StrCat(std::chrono::duration<double>(time).count());
}

}  // namespace

StreamTelemetry::StreamTelemetry(const Telemetry& telemetry, const StreamKind& kind)
    : telemetry_(telemetry), id_(next_id++) {
  report_.kind = kind;
  if (telemetry_.observer != nullptr) telemetry_.observer->OnOpen(kind);
  if (telemetry_.log != nullptr && telemetry_.log->Wants(LogLevel::kDebug)) LogOpened();
}

StreamTelemetry::StreamTelemetry(StreamTelemetry&& other) noexcept
    : telemetry_(other.telemetry_),
      report_(other.report_),
      id_(other.id_),
      opened_at_(other.opened_at_),
      open_(other.open_),
      admitted_(other.admitted_) {
  other.open_ = false;
}

StreamTelemetry::~StreamTelemetry() { End(absl::CancelledError(""), EndReason::kClient); }

void StreamTelemetry::Message(uint64_t tuples, uint64_t reported, uint64_t wire_bytes) {
  if (report_.messages++ == 0) report_.to_first_message = Clock::now() - opened_at_;
  report_.tuples += tuples;
  report_.reported_bytes += reported;
  report_.wire_bytes += wire_bytes;
}

void StreamTelemetry::End(const absl::Status& status, EndReason reason) noexcept {
  if (!open_) return;
  open_ = false;
  report_.code = status.code();
  report_.reason = status.ok() ? EndReason::kCompleted : reason;
  report_.total = Clock::now() - opened_at_;
  if (telemetry_.observer != nullptr) telemetry_.observer->OnClose(report_);
  const LogLevel level = status.ok() ? LogLevel::kInfo : LogLevel::kWarning;
  if (telemetry_.log != nullptr && telemetry_.log->Wants(level)) LogClosed(level);
}

void StreamTelemetry::LogOpened() const noexcept try {
  const StreamKind& kind = report_.kind;
  const LogField fields[] = {{"stream", absl::StrCat(id_)},
                             {"api", std::string(ApiName(kind.api))},
                             {"method", kind.delta ? "delta" : "allocated"},
                             {"resumed", kind.resumed ? "true" : "false"}};
  telemetry_.log->Write(LogLevel::kDebug, "stream opened", fields);
} catch (const std::bad_alloc&) {
  return;
}

void StreamTelemetry::LogClosed(LogLevel level) const noexcept try {
  // The code without the text: providers may put anything into texts.
  const LogField fields[] = {{"stream", absl::StrCat(id_)},
                             {"api", std::string(ApiName(report_.kind.api))},
                             {"method", report_.kind.delta ? "delta" : "allocated"},
                             {"code", absl::StatusCodeToString(report_.code)},
                             {"reason", std::string(EndReasonName(report_.reason))},
                             {"messages", absl::StrCat(report_.messages)},
                             {"tuples", absl::StrCat(report_.tuples)},
                             {"reported_bytes", absl::StrCat(report_.reported_bytes)},
                             {"wire_bytes", absl::StrCat(report_.wire_bytes)},
                             {"first_message_s", Seconds(report_.to_first_message)},
                             {"total_s", Seconds(report_.total)},
                             kNotAdmitted};
  const std::span all(fields);
  telemetry_.log->Write(level, kStreamClosed, admitted_ ? all.first(all.size() - 1) : all);
} catch (const std::bad_alloc&) {
  return;
}

}  // namespace cbt::rpc
