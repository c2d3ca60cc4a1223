// What watches keep of snapshots and their contents. Tenants write these objects, in any size and
// number: their memory has a bound, and what is beyond it is asked of the API server.
#ifndef CBT_PROGRAMS_CLUSTER_KEPT_FIELDS_H_
#define CBT_PROGRAMS_CLUSTER_KEPT_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cbt/kube/watch.h"
#include "cbt/units.h"

namespace cbt::kube::cluster {

// Of one object; an ordinary one has less than 1 KiB.
inline constexpr size_t kMaxKeptBytes = 8 * kKiB;
// Of all objects of a type: about 60,000.
inline constexpr size_t kMaxCacheBytes = 32 * kMiB;
// Objects that are read at a time where a list has no stream. Each may have 1.5 MiB.
inline constexpr int64_t kObjectsOfPage = 100;

inline CacheOptions Bounded(CacheOptions options) {
  options.max_kept_bytes = kMaxKeptBytes;
  options.max_bytes = kMaxCacheBytes;
  options.page_size = kObjectsOfPage;
  return options;
}

// All that VolumeSnapshot::Decode() needs of one that is resolved.
inline CacheOptions SnapshotCache() {
  CacheOptions options;
  options.fields = {{"spec", "source", "persistentVolumeClaimName"},
                    {"spec", "source", "volumeSnapshotContentName"},
                    {"spec", "volumeSnapshotClassName"},
                    {"status", "boundVolumeSnapshotContentName"},
                    {"status", "creationTime"},
                    {"status", "readyToUse"},
                    {"status", "restoreSize"}};
  return Bounded(std::move(options));
}

// The same for VolumeSnapshotContent.
inline CacheOptions ContentCache() {
  CacheOptions options;
  options.fields = {{"spec", "volumeSnapshotRef", "namespace"},
                    {"spec", "volumeSnapshotRef", "name"},
                    {"spec", "volumeSnapshotRef", "uid"},
                    {"spec", "driver"},
                    {"spec", "deletionPolicy"},
                    {"spec", "volumeSnapshotClassName"},
                    {"spec", "source", "volumeHandle"},
                    {"spec", "source", "snapshotHandle"},
                    {"spec", "sourceVolumeMode"},
                    {"status", "snapshotHandle"},
                    {"status", "creationTime"},
                    {"status", "readyToUse"},
                    {"status", "restoreSize"}};
  return Bounded(std::move(options));
}

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_KEPT_FIELDS_H_
