#include "programs/cbt/options/kube_address.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/snapshot_metadata.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

absl::StatusOr<kube::ServiceAccountName> AccountOf(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size() ||
      text.find('/', slash + 1) != std::string::npos) {
    return UsageError("--service-account: " + text, "expected NAMESPACE/NAME");
  }
  return kube::ServiceAccountName{.name_space = text.substr(0, slash),
                                  .name = text.substr(slash + 1)};
}

}  // namespace

absl::StatusOr<rpc::ListRequest> FindInKube(const RemoteArguments& arguments,
                                            rpc::ListRequest stream) {
  absl::StatusOr<SnapshotName> snapshot = ParseKubeAddress(arguments.address);
  if (!snapshot.ok()) return snapshot.status();
  kube::SnapshotMetadataRequest request;
  request.name_space = std::move(snapshot->name_space);
  request.snapshot = std::move(snapshot->name);
  request.base = arguments.base;
  request.base_handle = arguments.kube.base_handle;
  const auto timeout = stream.timeout;
  request.stream = std::move(stream);
  if (arguments.kube.token_expiry.has_value()) {
    request.token_lifetime = std::chrono::seconds(*arguments.kube.token_expiry);
  }
  if (!arguments.kube.service_account.empty()) {
    absl::StatusOr<kube::ServiceAccountName> account = AccountOf(arguments.kube.service_account);
    if (!account.ok()) return account.status();
    request.service_account = *std::move(account);
  }
  absl::StatusOr<kube::Config> config = kube::LoadDefaultConfig(arguments.kube.kubeconfig);
  if (!config.ok()) return config.status();
  kube::ClientOptions options;
  options.user_agent = "cbt";
  // The rest of the time is for the stream.
  if (timeout.has_value()) options.timeout = std::min(options.timeout, *timeout);
  absl::StatusOr<std::unique_ptr<kube::Client>> client =
      kube::Client::Create(*std::move(config), options);
  if (!client.ok()) return client.status();
  absl::StatusOr<rpc::ListRequest> found =
      kube::ResolveSnapshotMetadata(*std::move(client), request);
  if (found.ok()) return found;
  return absl::Status(found.status().code(),
                      absl::StrCat(arguments.address, ": ", found.status().message()));
}

}  // namespace cbt::cli
