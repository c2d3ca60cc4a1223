#include "programs/cosi/controller/pod_sweeper.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace cbt::kube::cosi {
namespace {

bool IsOfPod(const std::string& finalizer) { return finalizer.starts_with(kPodFinalizerPrefix); }

}  // namespace

void PodSweeper::Sweep() {
  std::map<std::string, std::vector<ObjectPtr>> by_namespace;
  for (const ObjectPtr& object : tools_.watched.Accesses()) {
    const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
    if (!access.ok()) continue;
    const std::vector<std::string>& finalizers = access->meta.finalizers;
    if (std::any_of(finalizers.begin(), finalizers.end(), IsOfPod)) {
      by_namespace[access->request.name_space].push_back(object);
    }
  }
  for (const auto& [name_space, accesses] : by_namespace) {
    const absl::StatusOr<std::set<std::string>> living = FinalizersIn(name_space);
    if (!living.ok()) {
      tools_.log.Failed("pods not listed", living.status(),
                        {{.key = "namespace", .value = name_space}});
      continue;
    }
    for (const ObjectPtr& access : accesses) SweepAccess(*access, *living);
  }
}

absl::StatusOr<std::set<std::string>> PodSweeper::FinalizersIn(const std::string& name_space) {
  const absl::StatusOr<ObjectList> pods = tools_.client.ListAll(kPods, name_space);
  if (!pods.ok()) return pods.status();
  std::set<std::string> finalizers;
  for (const Object& pod : pods->items) finalizers.insert(PodFinalizer(pod.uid()));
  return finalizers;
}

void PodSweeper::SweepAccess(const Object& access, const std::set<std::string>& living) {
  std::vector<std::string> gone;
  const std::vector<std::string> finalizers =
      access.Strings({"metadata", "finalizers"}).value_or(std::vector<std::string>());
  std::copy_if(finalizers.begin(), finalizers.end(), std::back_inserter(gone),
               [&living](const std::string& one) { return IsOfPod(one) && !living.contains(one); });
  if (gone.empty()) return;
  const absl::StatusOr<Object> swept =
      Change(tools_.client, kBucketAccesses, access, Part::kObject, [&gone](Object& changed) {
        bool edited = false;
        for (const std::string& one : gone) edited = RemoveFinalizer(changed, one) || edited;
        return edited;
      });
  if (!swept.ok()) return tools_.log.Failed("access not swept", IfThere(swept.status()));
  for (size_t i = 0; i < gone.size(); ++i) ++tools_.counters.swept;
}

}  // namespace cbt::kube::cosi
