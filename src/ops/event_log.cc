#include "ops/event_log.h"

#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cbt::ops {

bool EventLog::Admit(uint64_t& omitted) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (now - second_ >= std::chrono::seconds(1)) {
    second_ = now;
    written_ = 0;
  }
  if (written_ == kMaxPerSecond) {
    ++omitted_;
    return false;
  }
  ++written_;
  omitted = omitted_;
  omitted_ = 0;
  return true;
}

void EventLog::Write(rpc::LogLevel level, std::string_view event,
                     std::initializer_list<rpc::LogField> fields) noexcept try {
  if (sink_ == nullptr || !sink_->Wants(level)) return;
  uint64_t omitted = 0;
  if (!Admit(omitted)) return;
  std::vector<rpc::LogField> all(fields);
  if (omitted > 0) all.push_back({.key = "omitted", .value = absl::StrCat(omitted)});
  sink_->Write(level, event, all);
} catch (const std::exception&) {
  return;  // no memory for a record
}

void EventLog::Failed(std::string_view event, const absl::Status& error,
                      std::initializer_list<rpc::LogField> fields) noexcept try {
  if (sink_ == nullptr || !sink_->Wants(rpc::LogLevel::kWarning)) return;
  uint64_t omitted = 0;
  if (!Admit(omitted)) return;
  std::vector<rpc::LogField> all(fields);
  all.push_back({.key = "code", .value = absl::StatusCodeToString(error.code())});
  all.push_back({.key = "text", .value = std::string(error.message())});
  if (omitted > 0) all.push_back({.key = "omitted", .value = absl::StrCat(omitted)});
  sink_->Write(rpc::LogLevel::kWarning, event, all);
} catch (const std::exception&) {
  return;  // no memory for a record
}

}  // namespace cbt::ops
