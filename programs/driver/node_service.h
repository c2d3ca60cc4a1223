// CSI's Node service over a Node.
#ifndef CBT_PROGRAMS_DRIVER_NODE_SERVICE_H_
#define CBT_PROGRAMS_DRIVER_NODE_SERVICE_H_

#include "csi.grpc.pb.h"
#include "programs/driver/calls.h"
#include "programs/driver/node/node.h"
#include "programs/driver/usage.h"

namespace cbt::driver {

class NodeService final : public csi::v1::Node::Service {
 public:
  // `calls` and `node` must outlive the service.
  NodeService(Calls& calls, Node& node, NodeTopology topology)
      : calls_(calls), node_(node), topology_(std::move(topology)) {}

  grpc::Status NodeStageVolume(grpc::ServerContext* context,
                               const csi::v1::NodeStageVolumeRequest* request,
                               csi::v1::NodeStageVolumeResponse* response) override;
  grpc::Status NodeUnstageVolume(grpc::ServerContext* context,
                                 const csi::v1::NodeUnstageVolumeRequest* request,
                                 csi::v1::NodeUnstageVolumeResponse* response) override;
  grpc::Status NodePublishVolume(grpc::ServerContext* context,
                                 const csi::v1::NodePublishVolumeRequest* request,
                                 csi::v1::NodePublishVolumeResponse* response) override;
  grpc::Status NodeUnpublishVolume(grpc::ServerContext* context,
                                   const csi::v1::NodeUnpublishVolumeRequest* request,
                                   csi::v1::NodeUnpublishVolumeResponse* response) override;
  grpc::Status NodeGetVolumeStats(grpc::ServerContext* context,
                                  const csi::v1::NodeGetVolumeStatsRequest* request,
                                  csi::v1::NodeGetVolumeStatsResponse* response) override;
  grpc::Status NodeGetVolumeHealth(grpc::ServerContext* context,
                                   const csi::v1::NodeGetVolumeHealthRequest* request,
                                   csi::v1::NodeGetVolumeHealthResponse* response) override;
  grpc::Status NodeExpandVolume(grpc::ServerContext* context,
                                const csi::v1::NodeExpandVolumeRequest* request,
                                csi::v1::NodeExpandVolumeResponse* response) override;
  grpc::Status NodeGetCapabilities(grpc::ServerContext* context,
                                   const csi::v1::NodeGetCapabilitiesRequest* request,
                                   csi::v1::NodeGetCapabilitiesResponse* response) override;
  grpc::Status NodeGetInfo(grpc::ServerContext* context, const csi::v1::NodeGetInfoRequest* request,
                           csi::v1::NodeGetInfoResponse* response) override;

 private:
  Calls& calls_;
  Node& node_;
  const NodeTopology topology_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_NODE_SERVICE_H_
