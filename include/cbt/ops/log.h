// A log sink that writes lines through spdlog. Part of cbt::ops.
//
// snippet: tests/consumer/snippets/ops.cc#log
//   auto log = cbt::ops::MakeLog({.level = cbt::rpc::LogLevel::kInfo});
//   if (!log.ok()) return log.status();
//   options.service.telemetry.log = log->get();
//
// A record is one line of key=value pairs:
//
//   time=2026-01-31T12:00:00.000Z level=info event="stream closed" stream=7 api=csi code=OK ...
//
// Values with blanks, quotes or control characters are quoted and escaped, so that a name can't
// forge a line.
#ifndef CBT_OPS_LOG_H_
#define CBT_OPS_LOG_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::ops {

struct LogOptions {
  rpc::LogLevel level = rpc::LogLevel::kInfo;
  // Appends to this file; stderr if empty.
  std::string file = {};
};

// Thread safe. Errors: UNAVAILABLE when the file can't be opened.
absl::StatusOr<std::unique_ptr<rpc::LogSink>> MakeLog(const LogOptions& options);

// A value as it is written in a line.
std::string LogValue(std::string_view value);

}  // namespace cbt::ops

#endif  // CBT_OPS_LOG_H_
