// What a server or relay of all contracts needs besides its provider: tokens, sessions, directories
// as namespaces, secrets.
#ifndef CBT_TESTS_RPC_SUPPORT_ACCESS_PARTS_H_
#define CBT_TESTS_RPC_SUPPORT_ACCESS_PARTS_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/access.h"
#include "cbt/rpc/client.h"
#include "tests/support/status.h"

namespace cbt::test {

struct AccessParts {
  // `bearer` gets access to namespace ns.
  explicit AccessParts(std::string bearer)
      : token(std::move(bearer)), sessions(rpc::MemorySessionStore::Create()) {
    std::vector<rpc::TokenGrant> grants(2);
    grants[0] = {.token = Secret(token), .name = "operator", .name_spaces = {"ns"}};
    grants[1] = {.token = Secret("other-token-of-somebody-else"), .name = "x", .name_spaces = {}};
    access = rpc::MakeTokenAccess(std::move(grants));
    directories = rpc::MakeDirectoryResolver();
    Secrets held;
    held.Set("key", "secret-canary");
    secrets = rpc::MakeStaticSecrets(std::move(held));
    session = std::string(ValueOf(sessions->Open({.name_space = "ns",
                                                  .snapshots = {"a", "b"},
                                                  .expires = std::chrono::system_clock::now() +
                                                             std::chrono::hours(1)}))
                              .Reveal());
  }

  // Configures the options of a server or relay for all contracts.
  template <typename Options>
  void ApplyTo(Options& options, rpc::SnapshotResolver* resolver = nullptr) const {
    options.service.apis = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession,
                            rpc::Api::kPaged};
    options.service.access = {.authenticator = access.get(),
                              .authorizer = access.get(),
                              .resolver = resolver != nullptr ? resolver : directories.get(),
                              .secrets = secrets.get()};
    options.service.sessions = sessions.get();
  }

  // Asks `address` for snapshot b of namespace ns, against a if `delta`.
  rpc::ListRequest RequestTo(const std::string& address, rpc::Api api, bool delta) const {
    rpc::ListRequest request;
    request.address = address;
    request.retry_for = {};
    request.wire_tuples = true;
    request.api = api;
    const bool named = api == rpc::Api::kKubernetes || api == rpc::Api::kSession;
    request.snapshot_id = std::string(named ? "b" : "ns/b");
    if (delta) request.base_snapshot_id = std::string(api == rpc::Api::kSession ? "a" : "ns/a");
    request.token = Secret(api == rpc::Api::kKubernetes ? token : session);
    request.name_space = std::string("ns");
    request.timeout = std::chrono::seconds(60);
    return request;
  }

  const std::string token;
  std::unique_ptr<rpc::MemorySessionStore> sessions;
  std::unique_ptr<rpc::TokenAccess> access;
  std::unique_ptr<rpc::SnapshotResolver> directories;
  std::unique_ptr<rpc::SecretProvider> secrets;
  std::string session;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_ACCESS_PARTS_H_
