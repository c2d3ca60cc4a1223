// Snippets that need cbt::ops.
#include "cbt/ops/log.h"
#include "cbt/ops/metrics.h"
#include "cbt/rpc/server.h"

absl::StatusOr<std::unique_ptr<cbt::rpc::Server>> Serve(cbt::SnapshotProvider& provider,
                                                        cbt::rpc::ServerOptions& options) {
  // [log]
  auto log = cbt::ops::MakeLog({.level = cbt::rpc::LogLevel::kInfo});
  if (!log.ok()) return log.status();
  options.service.telemetry.log = log->get();
  // [/log]
  // [metrics]
  auto metrics = cbt::ops::Metrics::Serve("127.0.0.1:9100");
  if (!metrics.ok()) return metrics.status();
  options.service.telemetry.observer = metrics->get();
  // [/metrics]
  return cbt::rpc::Server::Start(provider, options);
}
