#include "programs/sidecar/resolver.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "programs/cluster/object_name.h"
#include "programs/cluster/snapshot_lookup.h"

namespace cbt::kube::sidecar {
namespace {

// The base of a delta could not be found: one text for one that does not exist and one that the
// caller may not know of.
absl::Status NoBase() { return absl::NotFoundError("the base snapshot was not found"); }

// One query on its way through the objects.
class Resolution : public std::enable_shared_from_this<Resolution> {
 public:
  Resolution(rpc::SnapshotQuery query, std::string driver, BasePolicy policy,
             cluster::Objects& objects, rpc::Done<rpc::ResolvedSnapshots> done)
      : query_(std::move(query)),
        driver_(std::move(driver)),
        policy_(policy),
        objects_(objects),
        done_(std::move(done)) {}

  void Start() {
    FindByName(query_.target, [self = shared_from_this()](absl::StatusOr<BoundSnapshot> target) {
      if (!target.ok()) return self->done_(target.status());
      self->target_ = *std::move(target);
      self->FindBase();
    });
  }

 private:
  void FindByName(const std::string& name, const cluster::Found<BoundSnapshot>& found) {
    cluster::FindBound(objects_, query_.name_space, name, driver_, found);
  }

  void FindBase() {
    if (!query_.base.has_value()) return Finish(std::nullopt);
    switch (policy_) {
      case BasePolicy::kHandle:
        return Finish(*query_.base);
      case BasePolicy::kName:
        return FindByName(*query_.base,
                          [self = shared_from_this()](const absl::StatusOr<BoundSnapshot>& base) {
                            self->CheckBase(base);
                          });
      case BasePolicy::kHandleInNamespace:
        break;
    }
    if (*query_.base == target_.handle) return Finish(target_.handle);
    objects_.FindContents(
        driver_, *query_.base, query_.name_space,
        [self = shared_from_this()](absl::StatusOr<std::vector<VolumeSnapshotContent>> contents) {
          if (!contents.ok()) return self->done_(contents.status());
          if (contents->empty()) return self->AskWithoutBase();
          self->contents_ = *std::move(contents);
          // Others are another tenant's.
          std::erase_if(self->contents_, [&self](const VolumeSnapshotContent& content) {
            return content.snapshot_namespace != self->query_.name_space;
          });
          self->TryNextContent();
        });
  }

  // No content has the base's handle. A driver that needs no base decides whether it was a snapshot
  // of the target's volume.
  void AskWithoutBase() {
    objects_.GetService(driver_, [self = shared_from_this()](
                                     const absl::StatusOr<SnapshotMetadataService>& service) {
      if (absl::IsNotFound(service.status())) return self->done_(NoBase());
      if (!service.ok()) return self->done_(service.status());
      if (service->requires_base) return self->done_(NoBase());
      self->Finish(*self->query_.base);
    });
  }

  // Contents with the base's handle that name a snapshot of the namespace: one of them must be
  // bound to it in truth. A broken one does not keep the next from being looked at.
  void TryNextContent() {
    if (contents_.empty()) return done_(last_failure_.value_or(NoBase()));
    const VolumeSnapshotContent content = std::move(contents_.back());
    contents_.pop_back();
    objects_.GetSnapshot(
        query_.name_space, content.snapshot_name,
        [self = shared_from_this(), content](const absl::StatusOr<VolumeSnapshot>& snapshot) {
          if (!snapshot.ok()) {
            if (!absl::IsNotFound(snapshot.status())) self->last_failure_ = snapshot.status();
            return self->TryNextContent();
          }
          const absl::StatusOr<BoundSnapshot> base =
              cluster::BindForCaller(*snapshot, content, self->driver_);
          if (base.ok()) return self->CheckBase(base);
          self->last_failure_ = base.status();
          self->TryNextContent();
        });
  }

  void CheckBase(const absl::StatusOr<BoundSnapshot>& base) {
    if (!base.ok()) return done_(base.status());
    if (const absl::Status status = CheckPair(*base, target_); !status.ok()) return done_(status);
    Finish(base->handle);
  }

  void Finish(std::optional<std::string> base) {
    auto details = std::make_shared<SnapshotDetails>();
    rpc::ResolvedSnapshots resolved{.base_handle = std::move(base),
                                    .target_handle = target_.handle,
                                    .capacity = target_.restore_size};
    details->target = std::move(target_);
    resolved.details = std::move(details);
    done_(std::move(resolved));
  }

  const rpc::SnapshotQuery query_;
  const std::string driver_;
  const BasePolicy policy_;
  cluster::Objects& objects_;
  const rpc::Done<rpc::ResolvedSnapshots> done_;
  BoundSnapshot target_;
  std::vector<VolumeSnapshotContent> contents_;  // with the base's handle, not yet looked at
  std::optional<absl::Status> last_failure_;
};

}  // namespace

ObjectResolver::ObjectResolver(const cluster::Driver& driver, cluster::Objects& watched,
                               cluster::Objects& live, BasePolicy base_policy,
                               MissingCode missing_code, ops::EventLog& log)
    : driver_(driver),
      watched_(watched),
      live_(live),
      base_policy_(base_policy),
      missing_code_(missing_code),
      log_(log) {}

void ObjectResolver::Resolve(const rpc::SnapshotQuery& query,
                             rpc::Done<rpc::ResolvedSnapshots> done) {
  if (!driver_.ready()) return done(absl::UnavailableError("the driver is not ready"));
  const auto answer = [this, code = missing_code_, name_space = query.name_space,
                       target = query.target, base = query.base.value_or(""),
                       done = std::move(done)](absl::StatusOr<rpc::ResolvedSnapshots> resolved) {
    if (!resolved.ok()) {
      log_.Write(rpc::LogLevel::kInfo, "snapshots not resolved",
                 {{.key = "namespace", .value = name_space},
                  {.key = "snapshot", .value = target},
                  {.key = "base", .value = base},
                  {.key = "code", .value = absl::StatusCodeToString(resolved.status().code())},
                  {.key = "text", .value = std::string(resolved.status().message())}});
    }
    if (code == MissingCode::kUnavailable && absl::IsNotFound(resolved.status())) {
      return done(absl::UnavailableError(resolved.status().message()));
    }
    done(std::move(resolved));
  };
  // The API server could take other texts for something else than a name.
  if (!cluster::IsObjectName(query.name_space) || !cluster::IsObjectName(query.target)) {
    return answer(absl::NotFoundError("the snapshot was not found"));
  }
  // The contract with sessions knows names only.
  const BasePolicy policy = query.base_is_handle ? base_policy_ : BasePolicy::kName;
  if (policy == BasePolicy::kName && query.base.has_value() &&
      !cluster::IsObjectName(*query.base)) {
    return answer(NoBase());
  }
  const auto resolve = [query, policy, driver = driver_.name()](
                           cluster::Objects& objects, rpc::Done<rpc::ResolvedSnapshots> found) {
    std::make_shared<Resolution>(query, driver, policy, objects, std::move(found))->Start();
  };
  // Only what is not there counts: where nothing is watched, for want of rights for example,
  // everybody's snapshots are looked up.
  const auto limit = [this, name_space = query.name_space](
                         const rpc::Done<rpc::ResolvedSnapshots>& found,
                         const cluster::AskLive<rpc::ResolvedSnapshots>& ask) {
    if (lookups_.IsSpent(name_space, FairLimit::Clock::now())) {
      return found(absl::UnavailableError("too many unknown snapshots in this namespace"));
    }
    ask([this, name_space, found](absl::StatusOr<rpc::ResolvedSnapshots> resolved) {
      if (absl::IsNotFound(resolved.status())) {
        lookups_.Charge(name_space, FairLimit::Clock::now());
      }
      found(std::move(resolved));
    });
  };
  cluster::FindWatchedOrLive<rpc::ResolvedSnapshots>(watched_, live_, resolve, answer, limit);
}

}  // namespace cbt::kube::sidecar
