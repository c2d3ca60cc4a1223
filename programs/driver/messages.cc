#include "programs/driver/messages.h"

namespace cbt::driver {

void FillIn(csi::v1::Snapshot& message, const Snapshot& snapshot, const NodeTopology& topology) {
  topology.FillIn(*message.add_accessible_topology());
  constexpr int64_t kNanoseconds = 1'000'000'000;
  message.set_snapshot_id(snapshot.id);
  message.set_source_volume_id(snapshot.volume_id);
  message.set_group_snapshot_id(snapshot.record.group);
  const SnapshotCut& cut = *snapshot.record.cut;
  message.set_size_bytes(static_cast<int64_t>(cut.size));
  message.mutable_creation_time()->set_seconds(cut.created_ns / kNanoseconds);
  message.mutable_creation_time()->set_nanos(static_cast<int32_t>(cut.created_ns % kNanoseconds));
  message.set_ready_to_use(snapshot.ready());
}

}  // namespace cbt::driver
