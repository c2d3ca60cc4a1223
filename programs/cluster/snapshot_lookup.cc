#include "programs/cluster/snapshot_lookup.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace cbt::kube::cluster {
namespace {

std::string NameInText(const std::string& name_space, const std::string& name) {
  return absl::StrCat("VolumeSnapshot ", name_space, "/", name);
}

absl::Status NotBound(const VolumeSnapshot& snapshot) {
  return absl::UnavailableError(
      absl::StrCat(NameInText(snapshot.meta.name_space, snapshot.meta.name), " is not bound"));
}

void FindContent(Objects& objects, const VolumeSnapshot& snapshot,
                 const std::optional<std::string>& driver, const Found<BoundSnapshot>& found) {
  const absl::StatusOr<std::string> name = ContentNameOf(snapshot, BindingPolicy::kReadable);
  if (!name.ok()) return found(name.status());
  objects.GetContent(
      *name, [snapshot, driver, found](const absl::StatusOr<VolumeSnapshotContent>& content) {
        if (absl::IsNotFound(content.status())) return found(NotBound(snapshot));
        if (!content.ok()) return found(content.status());
        found(BindForCaller(snapshot, *content, driver));
      });
}

}  // namespace

absl::StatusOr<BoundSnapshot> BindForCaller(const VolumeSnapshot& snapshot,
                                            const VolumeSnapshotContent& content,
                                            const std::optional<std::string>& driver) {
  absl::StatusOr<BoundSnapshot> bound = Bind(snapshot, content, BindingPolicy::kReadable, driver);
  if (absl::IsFailedPrecondition(bound.status())) return NotBound(snapshot);
  return bound;
}

void FindBound(Objects& objects, const std::string& name_space, const std::string& name,
               const std::optional<std::string>& driver, const Found<BoundSnapshot>& found) {
  objects.GetSnapshot(
      name_space, name,
      [&objects, name_space, name, driver, found](const absl::StatusOr<VolumeSnapshot>& snapshot) {
        if (absl::IsNotFound(snapshot.status())) {
          return found(
              absl::NotFoundError(absl::StrCat(NameInText(name_space, name), " does not exist")));
        }
        if (!snapshot.ok()) return found(snapshot.status());
        FindContent(objects, *snapshot, driver, found);
      });
}

void FindClass(Objects& objects, const BoundSnapshot& snapshot,
               const Found<std::optional<VolumeSnapshotClass>>& found) {
  const std::string name = snapshot.class_name.value_or("");
  if (name.empty()) {
    return objects.FindDefaultClasses(
        snapshot.driver, [driver = snapshot.driver,
                          found](absl::StatusOr<std::vector<VolumeSnapshotClass>> classes) {
          if (!classes.ok()) return found(classes.status());
          if (classes->empty()) return found(std::nullopt);
          if (classes->size() > 1) {
            return found(absl::FailedPreconditionError(
                absl::StrCat("the driver ", driver, " has more than one default class")));
          }
          found(std::move(classes->front()));
        });
  }
  objects.GetClass(
      name, [name, driver = snapshot.driver, found](absl::StatusOr<VolumeSnapshotClass> one) {
        if (absl::IsNotFound(one.status())) {
          return found(
              absl::NotFoundError(absl::StrCat("VolumeSnapshotClass ", name, " does not exist")));
        }
        if (!one.ok()) return found(one.status());
        // The secrets of one driver are not for another.
        if (one->driver != driver) {
          return found(absl::FailedPreconditionError(
              absl::StrCat("VolumeSnapshotClass ", name, " is one of another driver")));
        }
        found(*std::move(one));
      });
}

}  // namespace cbt::kube::cluster
