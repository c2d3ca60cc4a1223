#include "programs/sidecar/class_secrets.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "cbt/kube/typed_objects.h"
#include "programs/cluster/secret_template.h"
#include "programs/cluster/snapshot_lookup.h"
#include "programs/sidecar/resolver.h"

namespace cbt::kube::sidecar {
namespace {

// The client's error for what does not mend itself; the log says more.
constexpr absl::string_view kNoClass =
    "the snapshot's VolumeSnapshotClass can't be used: it must exist and be one of the driver's, "
    "or "
    "the driver needs exactly one default class";
constexpr absl::string_view kNoName =
    "the snapshot's VolumeSnapshotClass does not name a secret as it should";
constexpr absl::string_view kNoSecret =
    "the secret that the snapshot's VolumeSnapshotClass names does not exist, or may not be read";

// UNAVAILABLE, unless another attempt does not help.
absl::Status Lasting(const absl::Status& error) {
  if (absl::IsNotFound(error) || absl::IsPermissionDenied(error) ||
      absl::IsUnauthenticated(error) || absl::IsInvalidArgument(error)) {
    return error;
  }
  return absl::UnavailableError(error.message());
}

}  // namespace

absl::Status ClassSecrets::Failed(const BoundSnapshot& snapshot, const absl::Status& why,
                                  absl::string_view for_good) {
  log_.Failed("secrets can't be read", why,
              {{.key = "namespace", .value = snapshot.name_space},
               {.key = "snapshot", .value = snapshot.name},
               {.key = "class", .value = snapshot.class_name.value_or("")}});
  if (absl::IsUnavailable(why)) return absl::UnavailableError("the secrets can't be read now");
  return absl::FailedPreconditionError(for_good);
}

void ClassSecrets::GetSecrets(const std::string&, const rpc::ResolvedSnapshots& snapshots,
                              rpc::Done<Secrets> done) {
  const auto details = std::dynamic_pointer_cast<const SnapshotDetails>(snapshots.details);
  if (details == nullptr) return done(absl::InternalError("the snapshot has no details"));
  using Class = std::optional<VolumeSnapshotClass>;
  const auto find = [details](cluster::Objects& objects, const cluster::Found<Class>& found) {
    cluster::FindClass(objects, details->target, [found](absl::StatusOr<Class> one) {
      if (one.ok() && !one->has_value()) {
        return found(absl::NotFoundError("the driver has no default class"));
      }
      found(std::move(one));
    });
  };
  cluster::FindWatchedOrLive<Class>(
      watched_, live_, find, [this, details, done = std::move(done)](absl::StatusOr<Class> one) {
        if (!one.ok()) return done(Failed(details->target, one.status(), kNoClass));
        Read(**one, details->target, done);
      });
}

void ClassSecrets::Read(const VolumeSnapshotClass& snapshot_class, const BoundSnapshot& snapshot,
                        const rpc::Done<Secrets>& done) {
  const absl::StatusOr<std::optional<cluster::SecretName>> name =
      cluster::SecretOf(snapshot_class, {.snapshot_namespace = snapshot.name_space,
                                         .snapshot_name = snapshot.name,
                                         .content_name = snapshot.content});
  if (!name.ok()) return done(Failed(snapshot, name.status(), kNoName));
  if (!name->has_value()) return done(Secrets());
  GetOptions options;
  options.timeout = timeout_;
  client_.GetAsync<SecretObject>(
      (*name)->name_space, (*name)->name, options,
      [this, snapshot, done](absl::StatusOr<SecretObject> secret) {
        if (!secret.ok()) {
          return done(Failed(snapshot, Lasting(secret.status()), kNoSecret));
        }
        done(std::move(secret->data));
      });
}

}  // namespace cbt::kube::sidecar
