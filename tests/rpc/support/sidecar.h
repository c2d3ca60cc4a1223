// A relay of all contracts in front of a plugin, and a client that keeps what it is given.
#ifndef CBT_TESTS_RPC_SUPPORT_SIDECAR_H_
#define CBT_TESTS_RPC_SUPPORT_SIDECAR_H_

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "reference/volume.h"
#include "support/temp_dir.h"

namespace cbt::test {

inline constexpr char kToken[] = "token-canary";

// A relay of all contracts before whatever listens at `plugin`.
class Sidecar {
 public:
  explicit Sidecar(const std::string& plugin, bool check = true, rpc::StreamOptions stream = {},
                   const rpc::Telemetry& telemetry = {},
                   std::chrono::milliseconds plugin_stall = std::chrono::minutes(5))
      : sessions(rpc::MemorySessionStore::Create()) {
    std::vector<rpc::TokenGrant> grants(1);
    grants[0] = {.token = Secret(kToken), .name = "operator", .name_spaces = {"ns"}};
    access = rpc::MakeTokenAccess(std::move(grants));
    folders = rpc::MakeFolderResolver();
    Secrets held;
    held.Set("key", "secret-canary");
    secrets = rpc::MakeStaticSecrets(std::move(held));
    rpc::RelayOptions options;
    options.listen = "unix://" + (dir / "relay");
    options.plugin = plugin;
    options.apis = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kPaged};
    options.check_tuples = check;
    options.access = {.authenticator = access.get(),
                      .authorizer = access.get(),
                      .resolver = folders.get(),
                      .secrets = secrets.get()};
    options.sessions = sessions.get();
    options.stream = stream;
    options.telemetry = telemetry;
    options.plugin_stall_timeout = plugin_stall;
    absl::StatusOr<std::unique_ptr<rpc::Relay>> started = rpc::Relay::Start(options);
    if (!started.ok()) throw std::runtime_error(started.status().ToString());
    relay = *std::move(started);
    session = std::string(
        sessions
            ->Open({.name_space = "ns",
                    .snapshots = {"a", "b"},
                    .expires = std::chrono::system_clock::now() + std::chrono::hours(1)})
            ->Reveal());
  }

  rpc::ListRequest Request(rpc::Api api, bool delta = false) const {
    rpc::ListRequest request;
    request.address = relay->address();
    request.api = api;
    const bool named = api == rpc::Api::kKubernetes || api == rpc::Api::kSession;
    request.snapshot_id = std::string(named ? "b" : "ns/b");
    if (delta) request.base_snapshot_id = std::string(api == rpc::Api::kSession ? "a" : "ns/a");
    request.token = api == rpc::Api::kKubernetes ? std::string(kToken) : session;
    request.name_space = std::string("ns");
    request.timeout = std::chrono::seconds(60);
    request.max_resumes = 0;
    return request;
  }

  TempDir dir;
  std::unique_ptr<rpc::MemorySessionStore> sessions;
  std::unique_ptr<rpc::TokenAccess> access;
  std::unique_ptr<rpc::SnapshotResolver> folders;
  std::unique_ptr<rpc::SecretProvider> secrets;
  std::unique_ptr<rpc::Relay> relay;
  std::string session;
};

struct Listed {
  absl::Status status;
  reference::Ranges tuples;
  rpc::Completeness completeness = rpc::Completeness::kUnderWay;
};

inline Listed ListAll(const rpc::ListRequest& request) {
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
