#include "cbt/kube/snapshot_metadata.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/typed_objects.h"
#include "kube/watch/token_source.h"

namespace cbt::kube {
namespace {

// The same code, with what was being done in front.
absl::Status At(const std::string& what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

absl::Status Check(const SnapshotMetadataRequest& request) {
  if (request.name_space.empty() || request.snapshot.empty()) {
    return absl::InvalidArgumentError(
        "snapshot metadata: the namespace or the snapshot is missing");
  }
  if (request.base.has_value() && request.base_handle.has_value()) {
    return absl::InvalidArgumentError(
        "snapshot metadata: the base is given both by its name and by its handle");
  }
  if ((request.base.has_value() && request.base->empty()) ||
      (request.base_handle.has_value() && request.base_handle->empty())) {
    return absl::InvalidArgumentError("snapshot metadata: the base is empty");
  }
  if (request.service_account.has_value() &&
      (request.service_account->name_space.empty() || request.service_account->name.empty())) {
    return absl::InvalidArgumentError(
        "snapshot metadata: the service account has no namespace or no name");
  }
  constexpr std::chrono::seconds kShortest(600);
  if (request.token_lifetime < kShortest) {
    return absl::InvalidArgumentError("snapshot metadata: tokens live for 600 s at least");
  }
  return absl::OkStatus();
}

absl::StatusOr<ServiceAccountName> AccountOf(Client& client,
                                             const SnapshotMetadataRequest& request) {
  if (request.service_account.has_value()) return *request.service_account;
  const absl::StatusOr<SelfSubjectReview> review =
      client.Create<SelfSubjectReview>(SelfSubjectReview{});
  if (!review.ok()) return At("own account", review.status());
  const std::string username = review->user.has_value() ? review->user->username : "";
  std::optional<ServiceAccountName> account = ServiceAccountOf(username);
  if (!account.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the API server knows this client as \"", username,
        "\", which is no service account: name the service account that asks for metadata"));
  }
  return *std::move(account);
}

// The content that a snapshot is bound to; the two must point to each other.
absl::StatusOr<BoundSnapshot> FindBound(Client& client, const std::string& name_space,
                                        const std::string& name,
                                        const std::optional<std::string>& driver = {}) {
  const std::string what = absl::StrCat("VolumeSnapshot ", name_space, "/", name);
  const absl::StatusOr<VolumeSnapshot> snapshot = client.Get<VolumeSnapshot>(name_space, name);
  if (!snapshot.ok()) return At(what, snapshot.status());
  // A handle may be used only once the storage is done with it.
  constexpr BindingPolicy kPolicy = BindingPolicy::kReadable;
  const absl::StatusOr<std::string> content_name = ContentNameOf(*snapshot, kPolicy);
  if (!content_name.ok()) return content_name.status();
  const absl::StatusOr<VolumeSnapshotContent> content =
      client.Get<VolumeSnapshotContent>("", *content_name);
  if (!content.ok()) {
    return At(absl::StrCat(what, ": content ", *content_name), content.status());
  }
  absl::StatusOr<BoundSnapshot> bound = Bind(*snapshot, *content, kPolicy, driver);
  if (absl::IsInvalidArgument(bound.status())) {
    return absl::FailedPreconditionError(bound.status().message());
  }
  return bound;
}

}  // namespace

absl::StatusOr<rpc::ListRequest> ResolveSnapshotMetadata(std::shared_ptr<Client> client,
                                                         const SnapshotMetadataRequest& request) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  absl::StatusOr<ServiceAccountName> account = AccountOf(*client, request);
  if (!account.ok()) return account.status();

  std::string driver = request.driver;
  std::optional<uint64_t> capacity = request.stream.capacity;
  if (driver.empty()) {
    const absl::StatusOr<BoundSnapshot> target =
        FindBound(*client, request.name_space, request.snapshot);
    if (!target.ok()) return target.status();
    driver = target->driver;
    if (!capacity.has_value()) capacity = target->restore_size;
  }
  absl::StatusOr<SnapshotMetadataService> service =
      client->Get<SnapshotMetadataService>("", driver);
  if (!service.ok()) {
    return At(absl::StrCat("metadata service of driver ", driver), service.status());
  }
  if (service->address.empty() || service->audience.empty() || service->ca.empty()) {
    // Without a CA, TLS would trust the system's authorities.
    return absl::FailedPreconditionError(
        absl::StrCat("metadata service of driver ", driver, ": address, audience or CA is empty"));
  }

  rpc::ListRequest stream = request.stream.Copy();
  stream.api = rpc::Api::kKubernetes;
  stream.address = service->address;
  stream.capacity = capacity;
  stream.name_space = request.name_space;
  stream.snapshot_id = request.snapshot;
  stream.base_snapshot_id = request.base_handle;
  stream.tls = {.enabled = true, .ca = std::move(service->ca)};
  if (request.base.has_value()) {
    const absl::StatusOr<BoundSnapshot> base =
        FindBound(*client, request.name_space, *request.base, driver);
    if (!base.ok()) return At("base", base.status());
    stream.base_snapshot_id = base->handle;
  }
  const auto tokens = std::make_shared<TokenSource>(
      std::move(client), *std::move(account), std::move(service->audience), request.token_lifetime);
  absl::StatusOr<Secret> token = tokens->Get();
  if (!token.ok()) return token.status();
  stream.token = *std::move(token);
  stream.token_source = [tokens] { return tokens->Get(); };
  return stream;
}

absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> OpenSnapshotMetadata(
    std::shared_ptr<Client> client, const SnapshotMetadataRequest& request) {
  const absl::StatusOr<rpc::ListRequest> stream =
      ResolveSnapshotMetadata(std::move(client), request);
  if (!stream.ok()) return stream.status();
  return rpc::RemoteCursor::Open(*stream);
}

}  // namespace cbt::kube
