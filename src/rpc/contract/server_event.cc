#include "rpc/contract/server_event.h"

#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cbt::rpc {
namespace {

// The phrase of Report()'s records.
constexpr std::string_view kServerRecord = "server";

// Which limit holds for a record; none for what only known callers cause.
std::optional<size_t> LimitOf(std::string_view event, std::span<const LogField> fields) {
  if (fields.empty()) return std::nullopt;
  const LogField& last = fields.back();
  if (event == kStreamClosed && last.key == kNotAdmitted.key && last.value == kNotAdmitted.value) {
    return kServerEvents;
  }
  if (event != kServerRecord || fields.size() != 1) return std::nullopt;
  for (size_t number = 0; number < kServerEvents; ++number) {
    if (ServerEventName(static_cast<ServerEvent>(number)) == last.value) return number;
  }
  return std::nullopt;
}

}  // namespace

std::string_view LogLevelName(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      break;
  }
  return "error";
}

std::string_view EndReasonName(EndReason reason) noexcept {
  constexpr std::string_view kNames[kEndReasons] = {"completed", "source",     "refused", "client",
                                                    "stalled",   "time_limit", "drained"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view ServerEventName(ServerEvent event) noexcept {
  constexpr std::string_view kNames[kServerEvents] = {
      "connection_cut",   "handshake_refused",  "client_ca_changed",    "client_ca_unusable",
      "stream_refused",   "call_refused",       "connection_refused",   "handshake_failed",
      "connection_flood", "connection_silent",  "connection_too_large", "connection_aged",
      "connection_idle",  "connection_replaced"};
  return kNames[static_cast<size_t>(event)];
}

void Report(const Telemetry& telemetry, ServerEvent event) noexcept {
  if (telemetry.observer != nullptr) telemetry.observer->OnEvent(event);
  // What happens without anything wrong.
  const bool usual = event == ServerEvent::kConnectionAged || event == ServerEvent::kConnectionIdle;
  const LogLevel level = usual ? LogLevel::kInfo : LogLevel::kWarning;
  if (telemetry.log == nullptr || !telemetry.log->Wants(level)) return;
  try {
    const LogField fields[] = {{"what", std::string(ServerEventName(event))}};
    telemetry.log->Write(level, kServerRecord, fields);
  } catch (const std::bad_alloc&) {
    return;
  }
}

void LimitedLog::Write(LogLevel level, std::string_view event,
                       std::span<const LogField> fields) noexcept {
  const std::optional<size_t> number = LimitOf(event, fields);
  if (!number.has_value()) return sink_.Write(level, event, fields);
  uint64_t unlogged = 0;
  {
    const std::lock_guard lock(mutex_);
    Count& count = counts_[*number];
    const Clock::time_point now = now_();
    for (; count.allowed < kBurst && now - count.since >= kInterval; count.since += kInterval) {
      ++count.allowed;
    }
    if (count.allowed == kBurst) count.since = now;
    if (count.allowed == 0) {
      ++count.unlogged;
      return;
    }
    --count.allowed;
    unlogged = std::exchange(count.unlogged, 0);
  }
  if (unlogged == 0) return sink_.Write(level, event, fields);
  try {
    std::vector<LogField> with(fields.begin(), fields.end());
    with.push_back({"unlogged", std::to_string(unlogged)});
    sink_.Write(level, event, with);
  } catch (const std::bad_alloc&) {
    sink_.Write(level, event, fields);
  }
}

LimitedTelemetry::LimitedTelemetry(const Telemetry& telemetry) : telemetry_(telemetry) {
  if (telemetry.log != nullptr) telemetry_.log = &log_.emplace(*telemetry.log);
}

}  // namespace cbt::rpc
