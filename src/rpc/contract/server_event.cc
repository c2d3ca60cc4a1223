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
  constexpr std::string_view kNames[kServerEvents] = {"connection_cut",    "handshake_refused",
                                                      "client_ca_changed", "client_ca_unusable",
                                                      "stream_refused",    "call_refused"};
  return kNames[static_cast<size_t>(event)];
}

void Report(const Telemetry& telemetry, ServerEvent event) noexcept {
  if (telemetry.observer != nullptr) telemetry.observer->OnEvent(event);
  if (telemetry.log == nullptr || !telemetry.log->Wants(LogLevel::kWarning)) return;
  try {
    const LogField fields[] = {{"what", std::string(ServerEventName(event))}};
    telemetry.log->Write(LogLevel::kWarning, "server", fields);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace cbt::rpc
