// The metadata of a driver's snapshots, from the chains of their volumes.
#ifndef CBT_PROGRAMS_DRIVER_METADATA_PROVIDER_H_
#define CBT_PROGRAMS_DRIVER_METADATA_PROVIDER_H_

#include <memory>

#include "cbt/provider.h"
#include "programs/driver/state/store.h"

namespace cbt::driver {

// Reads beside the process that serves a volume, and no data: a delta is a union of change maps,
// the allocated parts are those that are no holes. `store` must outlive the provider. Thread safe.
class MetadataProvider final : public SnapshotProvider {
 public:
  explicit MetadataProvider(Store& store) : store_(store) {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override;
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override;

 private:
  Store& store_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_METADATA_PROVIDER_H_
