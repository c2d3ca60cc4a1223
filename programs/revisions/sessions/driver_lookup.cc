#include "programs/revisions/sessions/driver_lookup.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/typed_objects.h"
#include "programs/cluster/object_name.h"

namespace cbt::kube::sessions {
namespace {

using DriverFinding = Finding<std::string>;

DriverFinding Refused(absl::string_view why) { return {.refusal = std::string(why)}; }

absl::StatusOr<DriverFinding> FindDriverOf(Client& client, const std::string& name_space,
                                           const std::string& name) {
  // The API server could take other texts for something else than a name.
  if (!cluster::IsObjectName(name)) {
    return Refused(absl::StrCat("'", name, "' is no name of a VolumeSnapshot"));
  }
  const auto snapshot = client.Get<VolumeSnapshot>(name_space, name);
  if (absl::IsNotFound(snapshot.status())) {
    return Refused(absl::StrCat("VolumeSnapshot ", name_space, "/", name, " does not exist"));
  }
  if (!snapshot.ok()) return snapshot.status();
  constexpr BindingPolicy kPolicy = BindingPolicy::kOwner;
  const absl::StatusOr<std::string> content_name = ContentNameOf(*snapshot, kPolicy);
  if (!content_name.ok()) return Refused(content_name.status().message());
  const auto content = client.Get<VolumeSnapshotContent>("", *content_name);
  if (absl::IsNotFound(content.status())) {
    return Refused(absl::StrCat("VolumeSnapshotContent ", *content_name, " of VolumeSnapshot ",
                                name_space, "/", name, " does not exist"));
  }
  if (!content.ok()) return content.status();
  absl::StatusOr<BoundSnapshot> bound = Bind(*snapshot, *content, kPolicy);
  if (!bound.ok()) return Refused(bound.status().message());
  return DriverFinding{.value = std::move(bound->driver)};
}

// Also keeps a driver's name from being read as a selector of its own.
bool IsLabelValue(const std::string& text) {
  const auto is_inner = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), is_inner) &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.front())) &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.back()));
}

std::string NameOf(const Object& object) { return std::string(object.name()); }

}  // namespace

absl::StatusOr<DriverFinding> FindDriver(Client& client, const std::string& name_space,
                                         const std::vector<std::string>& snapshots) {
  if (snapshots.empty()) return DriverFinding{.refusal = "spec.snapshots is empty"};
  DriverFinding all;
  for (const std::string& name : snapshots) {
    absl::StatusOr<DriverFinding> one = FindDriverOf(client, name_space, name);
    if (!one.ok() || !one->refusal.empty()) return one;
    if (all.value.empty()) all.value = one->value;
    if (one->value != all.value) {
      return DriverFinding{
          .refusal =
              absl::StrCat("the VolumeSnapshots are of more than one driver: ", snapshots.front(),
                           " of ", all.value, ", ", name, " of ", one->value)};
    }
  }
  return all;
}

absl::StatusOr<Finding<cluster::SnapshotServicesConfiguration>> FindConfiguration(
    Client& client, const std::string& driver) {
  using ConfigurationFinding = Finding<cluster::SnapshotServicesConfiguration>;
  if (!IsLabelValue(driver)) {
    return ConfigurationFinding{
        .refusal = absl::StrCat("the name of driver ", driver, " is not a valid label value")};
  }
  const std::string label = absl::StrCat(AbslView(cluster::kDriverLabel), "=", driver);
  ListOptions options;
  options.label_selector = label;
  const absl::StatusOr<ObjectList> list =
      client.ListAll(cluster::kSnapshotServicesConfigurations, "", options);
  if (!list.ok()) return list.status();
  if (list->items.empty()) {
    return ConfigurationFinding{
        .refusal = absl::StrCat("no SnapshotServicesConfiguration has the label ", label)};
  }
  if (list->items.size() > 1) {
    return ConfigurationFinding{
        .refusal = absl::StrCat("more than one SnapshotServicesConfiguration has the label ", label,
                                ": ", NameOf(list->items[0]), ", ", NameOf(list->items[1]))};
  }
  absl::StatusOr<cluster::SnapshotServicesConfiguration> configuration =
      cluster::SnapshotServicesConfiguration::Decode(list->items.front());
  if (!configuration.ok() || configuration->address.empty() || configuration->ca.empty() ||
      !cluster::IsNamespaceName(configuration->driver_namespace)) {
    return ConfigurationFinding{
        .refusal = absl::StrCat("SnapshotServicesConfiguration ", NameOf(list->items[0]),
                                " lacks an address, a CA or the driver's namespace")};
  }
  return ConfigurationFinding{.value = *std::move(configuration)};
}

}  // namespace cbt::kube::sessions
