// CSI's GroupController service over a Store: snapshots of several volumes, of one moment.
#ifndef CBT_PROGRAMS_DRIVER_GROUP_SERVICE_H_
#define CBT_PROGRAMS_DRIVER_GROUP_SERVICE_H_

#include <utility>

#include "csi_groups.grpc.pb.h"
#include "programs/driver/calls.h"
#include "programs/driver/state/store.h"
#include "programs/driver/usage.h"

namespace cbt::driver {

class GroupService final : public csi::v1::GroupController::Service {
 public:
  // `calls` and `store` must outlive the service.
  GroupService(Calls& calls, Store& store, NodeTopology topology)
      : calls_(calls), store_(store), topology_(std::move(topology)) {}

  grpc::Status GroupControllerGetCapabilities(
      grpc::ServerContext* context, const csi::v1::GroupControllerGetCapabilitiesRequest* request,
      csi::v1::GroupControllerGetCapabilitiesResponse* response) override;
  grpc::Status CreateVolumeGroupSnapshot(
      grpc::ServerContext* context, const csi::v1::CreateVolumeGroupSnapshotRequest* request,
      csi::v1::CreateVolumeGroupSnapshotResponse* response) override;
  grpc::Status DeleteVolumeGroupSnapshot(
      grpc::ServerContext* context, const csi::v1::DeleteVolumeGroupSnapshotRequest* request,
      csi::v1::DeleteVolumeGroupSnapshotResponse* response) override;
  grpc::Status GetVolumeGroupSnapshot(grpc::ServerContext* context,
                                      const csi::v1::GetVolumeGroupSnapshotRequest* request,
                                      csi::v1::GetVolumeGroupSnapshotResponse* response) override;

 private:
  void FillIn(csi::v1::VolumeGroupSnapshot& message, const GroupSnapshot& group) const;

  Calls& calls_;
  Store& store_;
  const NodeTopology topology_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_GROUP_SERVICE_H_
