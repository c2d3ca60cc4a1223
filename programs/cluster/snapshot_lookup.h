// From the name of a snapshot to what its driver knows it by.
#ifndef CBT_PROGRAMS_CLUSTER_SNAPSHOT_LOOKUP_H_
#define CBT_PROGRAMS_CLUSTER_SNAPSHOT_LOOKUP_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::cluster {

// A search among objects, by as many steps as it takes.
template <typename Result>
using Finder = std::function<void(Objects& objects, Found<Result> found)>;

// Repeats the search at the API server.
template <typename Result>
using AskLive = std::function<void(Found<Result> found)>;
// Decides whether `ask` is called: a limit, or a cache of answers.
template <typename Result>
using Gate = std::function<void(Found<Result> found, AskLive<Result> ask)>;

// What `find` finds among `watched`, or else among `live`. A yes may come from what a watch has
// seen; what it does not confirm, because it lags behind or is not current, is asked of the API
// server before a no is said. Calls `found` once; both must live until then.
template <typename Result>
void FindWatchedOrLive(Objects& watched, Objects& live, const Finder<Result>& find,
                       Found<Result> found, Gate<Result> gate = {}) {
  find(watched, [&live, find, found = std::move(found),
                 gate = std::move(gate)](absl::StatusOr<Result> seen) {
    if (seen.ok()) return found(std::move(seen));
    if (!gate) return find(live, found);
    gate(found, [&live, find](Found<Result> answer) { find(live, std::move(answer)); });
  });
}

// Bind() with kReadable, for callers who may know their own snapshots only: a content that belongs
// to another one is no different from one that does not exist.
// Errors: UNAVAILABLE, and INVALID_ARGUMENT for another driver.
absl::StatusOr<BoundSnapshot> BindForCaller(const VolumeSnapshot& snapshot,
                                            const VolumeSnapshotContent& content,
                                            const std::optional<std::string>& driver);

// Follows the snapshot of this name to its content. Errors: NOT_FOUND if there is no such snapshot,
// those of BindForCaller(), and UNAVAILABLE for what can't be read now.
void FindBound(Objects& objects, const std::string& name_space, const std::string& name,
               const std::optional<std::string>& driver, const Found<BoundSnapshot>& found);

// The class that the snapshot names, or its driver's default; nothing if there is neither. Errors:
// NOT_FOUND if it does not exist; FAILED_PRECONDITION for a class of another driver, and for
// several defaults; UNAVAILABLE for what can't be read now.
void FindClass(Objects& objects, const BoundSnapshot& snapshot,
               const Found<std::optional<VolumeSnapshotClass>>& found);

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_SNAPSHOT_LOOKUP_H_
