#include "programs/driver/node_service.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "programs/driver/health.h"

namespace cbt::driver {
namespace {

absl::Status Require(std::initializer_list<std::pair<const char*, const std::string*>> fields) {
  for (const auto& [name, value] : fields) {
    if (value->empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": is missing"));
  }
  return absl::OkStatus();
}

// The usage that a request asks for in its field volume_capability.
template <typename Request>
absl::StatusOr<Usage> UsageIn(const Request& request) {
  if (!request.has_volume_capability()) {
    return absl::InvalidArgumentError("volume_capability: is missing");
  }
  return UsageOf(request.volume_capability());
}

}  // namespace

grpc::Status NodeService::NodeStageVolume(grpc::ServerContext*,
                                          const csi::v1::NodeStageVolumeRequest* request,
                                          csi::v1::NodeStageVolumeResponse*) {
  return calls_.Run("/csi.v1.Node/NodeStageVolume", [&] {
    if (absl::Status fields = Require({{"volume_id", &request->volume_id()},
                                       {"staging_target_path", &request->staging_target_path()}});
        !fields.ok()) {
      return fields;
    }
    const absl::StatusOr<Usage> usage = UsageIn(*request);
    if (!usage.ok()) return usage.status();
    return node_.Stage(request->volume_id(), request->staging_target_path(), *usage);
  });
}

grpc::Status NodeService::NodeUnstageVolume(grpc::ServerContext*,
                                            const csi::v1::NodeUnstageVolumeRequest* request,
                                            csi::v1::NodeUnstageVolumeResponse*) {
  return calls_.Run("/csi.v1.Node/NodeUnstageVolume", [&] {
    if (absl::Status fields = Require({{"volume_id", &request->volume_id()},
                                       {"staging_target_path", &request->staging_target_path()}});
        !fields.ok()) {
      return fields;
    }
    return node_.Unstage(request->volume_id(), request->staging_target_path());
  });
}

grpc::Status NodeService::NodePublishVolume(grpc::ServerContext*,
                                            const csi::v1::NodePublishVolumeRequest* request,
                                            csi::v1::NodePublishVolumeResponse*) {
  return calls_.Run("/csi.v1.Node/NodePublishVolume", [&] {
    if (absl::Status fields = Require(
            {{"volume_id", &request->volume_id()}, {"target_path", &request->target_path()}});
        !fields.ok()) {
      return fields;
    }
    const absl::StatusOr<Usage> usage = UsageIn(*request);
    if (!usage.ok()) return usage.status();
    return node_.Publish(request->volume_id(), request->staging_target_path(),
                         request->target_path(), *usage, request->readonly());
  });
}

grpc::Status NodeService::NodeUnpublishVolume(grpc::ServerContext*,
                                              const csi::v1::NodeUnpublishVolumeRequest* request,
                                              csi::v1::NodeUnpublishVolumeResponse*) {
  return calls_.Run("/csi.v1.Node/NodeUnpublishVolume", [&] {
    if (absl::Status fields = Require(
            {{"volume_id", &request->volume_id()}, {"target_path", &request->target_path()}});
        !fields.ok()) {
      return fields;
    }
    return node_.Unpublish(request->volume_id(), request->target_path());
  });
}

grpc::Status NodeService::NodeGetVolumeStats(grpc::ServerContext*,
                                             const csi::v1::NodeGetVolumeStatsRequest* request,
                                             csi::v1::NodeGetVolumeStatsResponse* response) {
  return calls_.Run("/csi.v1.Node/NodeGetVolumeStats", [&] {
    if (absl::Status fields = Require(
            {{"volume_id", &request->volume_id()}, {"volume_path", &request->volume_path()}});
        !fields.ok()) {
      return fields;
    }
    const absl::StatusOr<VolumeStats> stats =
        node_.Stats(request->volume_id(), request->volume_path());
    if (!stats.ok()) return stats.status();
    const auto add = [response](csi::v1::VolumeUsage::Unit unit, uint64_t total, uint64_t used,
                                uint64_t available) {
      csi::v1::VolumeUsage& usage = *response->add_usage();
      usage.set_unit(unit);
      usage.set_total(static_cast<int64_t>(total));
      usage.set_used(static_cast<int64_t>(used));
      usage.set_available(static_cast<int64_t>(available));
    };
    add(csi::v1::VolumeUsage::BYTES, stats->total_bytes, stats->used_bytes, stats->available_bytes);
    if (stats->has_inodes) {
      add(csi::v1::VolumeUsage::INODES, stats->total_inodes, stats->used_inodes,
          stats->available_inodes);
    }
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetVolumeHealth(grpc::ServerContext*,
                                              const csi::v1::NodeGetVolumeHealthRequest* request,
                                              csi::v1::NodeGetVolumeHealthResponse* response) {
  return calls_.Run("/csi.v1.Node/NodeGetVolumeHealth", [&] {
    if (absl::Status id = Require({{"volume_id", &request->volume_id()}}); !id.ok()) return id;
    if (absl::Status known = node_.CheckVolume(request->volume_id()); !known.ok()) return known;
    DescribeHealth(*response->mutable_volume_health(), request->volume_id(),
                   node_.host().health(request->volume_id()));
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeExpandVolume(grpc::ServerContext*,
                                           const csi::v1::NodeExpandVolumeRequest* request,
                                           csi::v1::NodeExpandVolumeResponse* response) {
  return calls_.Run("/csi.v1.Node/NodeExpandVolume", [&] {
    if (absl::Status fields = Require(
            {{"volume_id", &request->volume_id()}, {"volume_path", &request->volume_path()}});
        !fields.ok()) {
      return fields;
    }
    const absl::StatusOr<uint64_t> capacity =
        node_.Expand(request->volume_id(), request->volume_path());
    if (!capacity.ok()) return capacity.status();
    response->set_capacity_bytes(static_cast<int64_t>(*capacity));
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetCapabilities(grpc::ServerContext*,
                                              const csi::v1::NodeGetCapabilitiesRequest*,
                                              csi::v1::NodeGetCapabilitiesResponse* response) {
  return calls_.Run("/csi.v1.Node/NodeGetCapabilities", [&] {
    using Rpc = csi::v1::NodeServiceCapability::RPC;
    for (const auto type : {Rpc::STAGE_UNSTAGE_VOLUME, Rpc::GET_VOLUME_STATS, Rpc::EXPAND_VOLUME,
                            Rpc::SINGLE_NODE_MULTI_WRITER, Rpc::GET_VOLUME_HEALTH}) {
      response->add_capabilities()->mutable_rpc()->set_type(type);
    }
    return absl::OkStatus();
  });
}

grpc::Status NodeService::NodeGetInfo(grpc::ServerContext*, const csi::v1::NodeGetInfoRequest*,
                                      csi::v1::NodeGetInfoResponse* response) {
  return calls_.Run("/csi.v1.Node/NodeGetInfo", [&] {
    response->set_node_id(topology_.node_id);
    topology_.FillIn(*response->mutable_accessible_topology());
    return absl::OkStatus();
  });
}

}  // namespace cbt::driver
