// A relay of all contracts in front of a plugin, and a client that stores what it receives.
#ifndef CBT_TESTS_RPC_SUPPORT_SIDECAR_H_
#define CBT_TESTS_RPC_SUPPORT_SIDECAR_H_

#include <chrono>
#include <memory>
#include <string>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/access_parts.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

inline constexpr char kToken[] = "token-canary";

// A relay of all contracts in front of the server at `plugin`.
class Sidecar : public AccessParts {
 public:
  explicit Sidecar(const std::string& plugin, bool check = true, rpc::StreamOptions stream = {},
                   const rpc::Telemetry& telemetry = {},
                   std::chrono::milliseconds plugin_stall = std::chrono::minutes(5))
      : AccessParts(kToken) {
    rpc::RelayOptions options;
    options.listen = "unix://" + (dir / "relay");
    options.plugin = plugin;
    options.check_tuples = check;
    options.service.stream = stream;
    options.service.telemetry = telemetry;
    options.plugin_stall_timeout = plugin_stall;
    ApplyTo(options);
    relay = ValueOf(rpc::Relay::Start(options));
  }

  rpc::ListRequest Request(rpc::Api api, bool delta = false) const {
    return RequestTo(relay->address(), api, delta);
  }

  TempDir dir;
  std::unique_ptr<rpc::Relay> relay;
};

struct Listed {
  absl::Status status;
  reference::Ranges tuples;
  rpc::Completeness completeness = rpc::Completeness::kUnderWay;
};

// Lists to the end or an error, and keeps what came before it.
inline Listed ListWhatComes(const rpc::ListRequest& request) {
  Listed listed;
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(request);
  if (!cursor.ok()) return {.status = cursor.status(), .tuples = {}};
  listed.status = ForEachBatch(**cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      listed.tuples.emplace_back(batch[i].offset, batch[i].length);
    }
    return absl::OkStatus();
  });
  listed.completeness = (*cursor)->completeness();
  return listed;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_SIDECAR_H_
