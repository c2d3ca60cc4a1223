#include "programs/driver/group_service.h"

#include "programs/driver/messages.h"

namespace cbt::driver {

void GroupService::FillIn(csi::v1::VolumeGroupSnapshot& message, const GroupSnapshot& group) const {
  message.set_group_snapshot_id(group.id);
  for (const Snapshot& snapshot : group.members) {
    driver::FillIn(*message.add_snapshots(), snapshot, topology_);
  }
  *message.mutable_creation_time() = message.snapshots(0).creation_time();
  message.set_ready_to_use(group.ready());
}

grpc::Status GroupService::GroupControllerGetCapabilities(
    grpc::ServerContext*, const csi::v1::GroupControllerGetCapabilitiesRequest*,
    csi::v1::GroupControllerGetCapabilitiesResponse* response) {
  return calls_.Run("/csi.v1.GroupController/GroupControllerGetCapabilities", [&] {
    using Rpc = csi::v1::GroupControllerServiceCapability::RPC;
    response->add_capabilities()->mutable_rpc()->set_type(
        Rpc::CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT);
    return absl::OkStatus();
  });
}

grpc::Status GroupService::CreateVolumeGroupSnapshot(
    grpc::ServerContext*, const csi::v1::CreateVolumeGroupSnapshotRequest* request,
    csi::v1::CreateVolumeGroupSnapshotResponse* response) {
  return calls_.Run("/csi.v1.GroupController/CreateVolumeGroupSnapshot", [&] {
    if (absl::Status name = Require(request->name(), "name"); !name.ok()) return name;
    if (absl::Status none = RequireNoParameters(request->parameters()); !none.ok()) return none;
    const auto& ids = request->source_volume_ids();
    const absl::StatusOr<GroupSnapshot> group =
        store_.CreateGroup(request->name(), {ids.begin(), ids.end()});
    if (!group.ok()) return group.status();
    FillIn(*response->mutable_group_snapshot(), *group);
    return absl::OkStatus();
  });
}

grpc::Status GroupService::DeleteVolumeGroupSnapshot(
    grpc::ServerContext*, const csi::v1::DeleteVolumeGroupSnapshotRequest* request,
    csi::v1::DeleteVolumeGroupSnapshotResponse*) {
  return calls_.Run("/csi.v1.GroupController/DeleteVolumeGroupSnapshot", [&] {
    const std::string& id = request->group_snapshot_id();
    if (absl::Status given = Require(id, "group_snapshot_id"); !given.ok()) return given;
    const auto& members = request->snapshot_ids();
    return store_.DeleteGroup(id, {members.begin(), members.end()});
  });
}

grpc::Status GroupService::GetVolumeGroupSnapshot(
    grpc::ServerContext*, const csi::v1::GetVolumeGroupSnapshotRequest* request,
    csi::v1::GetVolumeGroupSnapshotResponse* response) {
  return calls_.Run("/csi.v1.GroupController/GetVolumeGroupSnapshot", [&] {
    const std::string& id = request->group_snapshot_id();
    if (absl::Status given = Require(id, "group_snapshot_id"); !given.ok()) return given;
    const auto& members = request->snapshot_ids();
    const absl::StatusOr<GroupSnapshot> group =
        store_.GetGroup(id, {members.begin(), members.end()});
    if (!group.ok()) return group.status();
    FillIn(*response->mutable_group_snapshot(), *group);
    return absl::OkStatus();
  });
}

}  // namespace cbt::driver
