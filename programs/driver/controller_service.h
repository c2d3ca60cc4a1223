// CSI's Controller service over a Store.
#ifndef CBT_PROGRAMS_DRIVER_CONTROLLER_SERVICE_H_
#define CBT_PROGRAMS_DRIVER_CONTROLLER_SERVICE_H_

#include <functional>
#include <optional>
#include <string>

#include "csi.grpc.pb.h"
#include "programs/driver/calls.h"
#include "programs/driver/host/volume_host.h"
#include "programs/driver/state/store.h"
#include "programs/driver/usage.h"

namespace cbt::driver {

// Calls that the driver does not have are UNIMPLEMENTED: volumes need no attaching by a controller,
// and nothing of them can be modified.
class ControllerService final : public csi::v1::Controller::Service {
 public:
  // The health of a volume that is attached; nothing for others.
  using HealthOf = std::function<std::optional<VolumeHealth>(const std::string& volume)>;

  // Lets the device of a staged volume have all of it.
  using GrowDevice = std::function<absl::Status(const std::string& volume)>;

  // `calls` and `store` must outlive the service.
  ControllerService(Calls& calls, Store& store, NodeTopology topology, HealthOf health,
                    GrowDevice grow)
      : calls_(calls),
        store_(store),
        topology_(std::move(topology)),
        health_(std::move(health)),
        grow_(std::move(grow)) {}

  grpc::Status CreateVolume(grpc::ServerContext* context,
                            const csi::v1::CreateVolumeRequest* request,
                            csi::v1::CreateVolumeResponse* response) override;
  grpc::Status DeleteVolume(grpc::ServerContext* context,
                            const csi::v1::DeleteVolumeRequest* request,
                            csi::v1::DeleteVolumeResponse* response) override;
  grpc::Status ValidateVolumeCapabilities(
      grpc::ServerContext* context, const csi::v1::ValidateVolumeCapabilitiesRequest* request,
      csi::v1::ValidateVolumeCapabilitiesResponse* response) override;
  grpc::Status ListVolumes(grpc::ServerContext* context, const csi::v1::ListVolumesRequest* request,
                           csi::v1::ListVolumesResponse* response) override;
  grpc::Status GetCapacity(grpc::ServerContext* context, const csi::v1::GetCapacityRequest* request,
                           csi::v1::GetCapacityResponse* response) override;
  grpc::Status ControllerGetCapabilities(
      grpc::ServerContext* context, const csi::v1::ControllerGetCapabilitiesRequest* request,
      csi::v1::ControllerGetCapabilitiesResponse* response) override;
  grpc::Status CreateSnapshot(grpc::ServerContext* context,
                              const csi::v1::CreateSnapshotRequest* request,
                              csi::v1::CreateSnapshotResponse* response) override;
  grpc::Status DeleteSnapshot(grpc::ServerContext* context,
                              const csi::v1::DeleteSnapshotRequest* request,
                              csi::v1::DeleteSnapshotResponse* response) override;
  grpc::Status ListSnapshots(grpc::ServerContext* context,
                             const csi::v1::ListSnapshotsRequest* request,
                             csi::v1::ListSnapshotsResponse* response) override;
  grpc::Status GetSnapshot(grpc::ServerContext* context, const csi::v1::GetSnapshotRequest* request,
                           csi::v1::GetSnapshotResponse* response) override;
  grpc::Status ControllerExpandVolume(grpc::ServerContext* context,
                                      const csi::v1::ControllerExpandVolumeRequest* request,
                                      csi::v1::ControllerExpandVolumeResponse* response) override;
  grpc::Status ControllerGetVolume(grpc::ServerContext* context,
                                   const csi::v1::ControllerGetVolumeRequest* request,
                                   csi::v1::ControllerGetVolumeResponse* response) override;
  grpc::Status ControllerGetVolumeHealth(
      grpc::ServerContext* context, const csi::v1::ControllerGetVolumeHealthRequest* request,
      csi::v1::ControllerGetVolumeHealthResponse* response) override;
  // Those that something is wrong with.
  grpc::Status ControllerListVolumeHealth(
      grpc::ServerContext* context, const csi::v1::ControllerListVolumeHealthRequest* request,
      csi::v1::ControllerListVolumeHealthResponse* response) override;

 private:
  absl::Status CheckTopology(const csi::v1::TopologyRequirement& requirement) const;
  absl::Status DoCreateVolume(const grpc::ServerContext& context,
                              const csi::v1::CreateVolumeRequest& request,
                              csi::v1::CreateVolumeResponse& response);
  absl::Status DoValidate(const csi::v1::ValidateVolumeCapabilitiesRequest& request,
                          csi::v1::ValidateVolumeCapabilitiesResponse& response) const;
  absl::Status DoListSnapshots(const csi::v1::ListSnapshotsRequest& request,
                               csi::v1::ListSnapshotsResponse& response);
  absl::Status DoListHealth(const csi::v1::ControllerListVolumeHealthRequest& request,
                            csi::v1::ControllerListVolumeHealthResponse& response) const;
  void FillIn(csi::v1::Volume& message, const Volume& volume) const;

  Calls& calls_;
  Store& store_;
  const NodeTopology topology_;
  const HealthOf health_;
  const GrowDevice grow_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_CONTROLLER_SERVICE_H_
