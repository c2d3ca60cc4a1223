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
absl::StatusOr<VolumeSnapshotContent> ContentOf(Client& client, const std::string& name_space,
                                                const std::string& name) {
  const std::string what = absl::StrCat("snapshot ", name_space, "/", name);
  const absl::StatusOr<VolumeSnapshot> snapshot = client.Get<VolumeSnapshot>(name_space, name);
  if (!snapshot.ok()) return At(what, snapshot.status());
  if (!snapshot->status.has_value() || !snapshot->status->bound_content.has_value() ||
      snapshot->status->bound_content->empty()) {
    return absl::UnavailableError(absl::StrCat(what, ": not bound to a content yet"));
  }
  absl::StatusOr<VolumeSnapshotContent> content =
      client.Get<VolumeSnapshotContent>("", *snapshot->status->bound_content);
  if (!content.ok()) {
    return At(absl::StrCat(what, ": content ", *snapshot->status->bound_content), content.status());
  }
  // A content that existed before its snapshot has no uid until a controller has bound it.
  if (content->snapshot_namespace != name_space || content->snapshot_name != name ||
      (!content->snapshot_uid.empty() && content->snapshot_uid != snapshot->meta.uid)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": content ", content->meta.name, " belongs to another snapshot"));
  }
  // A handle may be used only once the storage is done with it.
  if (snapshot->status->ready_to_use.has_value() && !*snapshot->status->ready_to_use) {
    return absl::UnavailableError(absl::StrCat(what, ": not ready to use yet"));
  }
  return content;
}

absl::StatusOr<std::string> BaseHandle(Client& client, const SnapshotMetadataRequest& request,
                                       const std::string& driver) {
  const std::string what = absl::StrCat("base ", request.name_space, "/", *request.base);
  const absl::StatusOr<VolumeSnapshotContent> content =
      ContentOf(client, request.name_space, *request.base);
  if (!content.ok()) return At("base", content.status());
  if (content->driver != driver) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": of driver ", content->driver, ", the snapshot is of ", driver));
  }
  const auto& status = content->status;
  if (!status.has_value() || !status->ready_to_use.value_or(true) ||
      !status->snapshot_handle.has_value() || status->snapshot_handle->empty()) {
    return absl::UnavailableError(absl::StrCat(what, ": not ready to use yet"));
  }
  return *status->snapshot_handle;
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
    const absl::StatusOr<VolumeSnapshotContent> content =
        ContentOf(*client, request.name_space, request.snapshot);
    if (!content.ok()) return content.status();
    driver = content->driver;
    const int64_t size =
        content->status.has_value() ? content->status->restore_size.value_or(0) : 0;
    if (!capacity.has_value() && size > 0) capacity = static_cast<uint64_t>(size);
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
    absl::StatusOr<std::string> handle = BaseHandle(*client, request, driver);
    if (!handle.ok()) return handle.status();
    stream.base_snapshot_id = *std::move(handle);
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
