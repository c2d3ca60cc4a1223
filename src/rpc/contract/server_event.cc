#include "rpc/contract/server_event.h"

#include <cstddef>
#include <new>
#include <string>

namespace cbt::rpc {

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
  constexpr std::string_view kNames[kEndReasons] = {"completed",    "source",  "refused",
                                                    "client",       "stalled", "time_limit",
                                                    "request_late", "drained"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view ServerEventName(ServerEvent event) noexcept {
  constexpr std::string_view kNames[kServerEvents] = {
      "connection_cut",   "handshake_refused", "client_ca_changed",    "client_ca_unusable",
      "stream_refused",   "call_refused",      "connection_refused",   "handshake_failed",
      "connection_flood", "connection_silent", "connection_too_large", "connection_aged",
      "connection_idle"};
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
    telemetry.log->Write(level, "server", fields);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace cbt::rpc
