#include "programs/driver/controller_service.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/extent.h"
#include "programs/driver/health.h"
#include "programs/driver/messages.h"

namespace cbt::driver {
namespace {

constexpr char kNoMutableParameters[] = "mutable_parameters: there are none";

absl::StatusOr<CapacityRange> RangeOf(const csi::v1::CapacityRange& range) {
  if (range.required_bytes() < 0 || range.limit_bytes() < 0) {
    return absl::InvalidArgumentError("capacity_range: is negative");
  }
  return CapacityRange{.required = static_cast<uint64_t>(range.required_bytes()),
                       .limit = static_cast<uint64_t>(range.limit_bytes())};
}

absl::StatusOr<ContentSource> SourceOf(const csi::v1::VolumeContentSource& source) {
  if (source.has_snapshot()) {
    if (absl::Status id = Require(source.snapshot().snapshot_id(), "snapshot_id"); !id.ok()) {
      return id;
    }
    return ContentSource{ContentSource::Kind::kSnapshot, source.snapshot().snapshot_id()};
  }
  if (source.has_volume()) {
    if (absl::Status id = Require(source.volume().volume_id(), "volume_id"); !id.ok()) return id;
    return ContentSource{ContentSource::Kind::kVolume, source.volume().volume_id()};
  }
  return absl::InvalidArgumentError("volume_content_source: neither snapshot nor volume");
}

// The parameters of a class. Those of Kubernetes are for its own components.
template <typename Map>
absl::Status ReadParameters(const Map& parameters, VolumeRequest& request) {
  for (const auto& [key, value] : parameters) {
    if (key.starts_with(kKubernetesPrefix)) continue;
    if (key != "granularity") {
      return absl::InvalidArgumentError("parameters: unknown parameter; 'granularity' is known");
    }
    const absl::StatusOr<uint64_t> bytes = ParseNumber(value, kMaxGranularity);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameters: granularity: ", bytes.status().message()));
    }
    request.granularity = *bytes;
  }
  return absl::OkStatus();
}

// `is_id`: whether a text can be an entry's id, which is what tokens are.
absl::Status CheckPage(int32_t max_entries, const std::string& token,
                       bool (*is_id)(std::string_view)) {
  if (max_entries < 0) return absl::InvalidArgumentError("max_entries: is negative");
  if (!token.empty() && !is_id(token)) {
    return absl::AbortedError("starting_token: was not returned by this driver");
  }
  return absl::OkStatus();
}

}  // namespace

void ControllerService::FillIn(csi::v1::Volume& message, const Volume& volume) const {
  message.set_volume_id(volume.id);
  message.set_capacity_bytes(static_cast<int64_t>(volume.record.capacity));
  topology_.FillIn(*message.add_accessible_topology());
  switch (volume.record.source.kind) {
    case ContentSource::Kind::kSnapshot:
      message.mutable_content_source()->mutable_snapshot()->set_snapshot_id(
          volume.record.source.id);
      break;
    case ContentSource::Kind::kVolume:
      message.mutable_content_source()->mutable_volume()->set_volume_id(volume.record.source.id);
      break;
    case ContentSource::Kind::kNone:
      break;
  }
}

// Volumes and snapshots are on this node, and nowhere else.
absl::Status ControllerService::CheckTopology(
    const csi::v1::TopologyRequirement& requirement) const {
  const auto& requisite = requirement.requisite();
  if (requisite.empty() ||
      std::any_of(requisite.begin(), requisite.end(),
                  [this](const auto& topology) { return topology_.Matches(topology); })) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("accessibility_requirements: this driver has one node, " +
                                      topology_.node_id);
}

absl::Status ControllerService::DoCreateVolume(const grpc::ServerContext& context,
                                               const csi::v1::CreateVolumeRequest& request,
                                               csi::v1::CreateVolumeResponse& response) {
  if (absl::Status name = Require(request.name(), "name"); !name.ok()) return name;
  if (request.volume_capabilities().empty()) {
    return absl::InvalidArgumentError("volume_capabilities: are missing");
  }
  // A snapshot that is only read as a device needs no copy.
  const bool of_snapshot = request.volume_content_source().has_snapshot();
  bool view = of_snapshot;
  std::vector<Usage> usages;
  for (const csi::v1::VolumeCapability& capability : request.volume_capabilities()) {
    absl::StatusOr<Usage> usage = UsageOf(capability);
    if (!usage.ok()) return usage.status();
    view &= usage->block && usage->read_only;
    usages.push_back(*std::move(usage));
  }
  for (const Usage& usage : usages) {
    if (absl::Status possible = CheckUsage(usage, view, of_snapshot); !possible.ok()) {
      return possible;
    }
  }
  if (!request.mutable_parameters().empty()) {
    return absl::InvalidArgumentError(kNoMutableParameters);
  }
  if (absl::Status here = CheckTopology(request.accessibility_requirements()); !here.ok()) {
    return here;
  }
  const absl::StatusOr<CapacityRange> range = RangeOf(request.capacity_range());
  if (!range.ok()) return range.status();
  VolumeRequest wanted = {.name = request.name(), .range = *range, .view = view};
  if (request.has_volume_content_source()) {
    const absl::StatusOr<ContentSource> source = SourceOf(request.volume_content_source());
    if (!source.ok()) return source.status();
    wanted.source = *source;
  }
  if (absl::Status read = ReadParameters(request.parameters(), wanted); !read.ok()) return read;
  const absl::StatusOr<Volume> volume =
      store_.CreateVolume(wanted, [&context] { return context.IsCancelled(); });
  if (!volume.ok()) return volume.status();
  FillIn(*response.mutable_volume(), *volume);
  return absl::OkStatus();
}

grpc::Status ControllerService::CreateVolume(grpc::ServerContext* context,
                                             const csi::v1::CreateVolumeRequest* request,
                                             csi::v1::CreateVolumeResponse* response) {
  return calls_.Run("/csi.v1.Controller/CreateVolume",
                    [&] { return DoCreateVolume(*context, *request, *response); });
}

grpc::Status ControllerService::DeleteVolume(grpc::ServerContext*,
                                             const csi::v1::DeleteVolumeRequest* request,
                                             csi::v1::DeleteVolumeResponse*) {
  return calls_.Run("/csi.v1.Controller/DeleteVolume", [&] {
    if (absl::Status id = Require(request->volume_id(), "volume_id"); !id.ok()) return id;
    return store_.DeleteVolume(request->volume_id());
  });
}

absl::Status ControllerService::DoValidate(
    const csi::v1::ValidateVolumeCapabilitiesRequest& request,
    csi::v1::ValidateVolumeCapabilitiesResponse& response) const {
  if (absl::Status id = Require(request.volume_id(), "volume_id"); !id.ok()) return id;
  if (request.volume_capabilities().empty()) {
    return absl::InvalidArgumentError("volume_capabilities: are missing");
  }
  const std::optional<Volume> volume = store_.catalog().FindVolume(request.volume_id());
  if (!volume.has_value() || volume->record.removed) {
    return store_.catalog().Absent(request.volume_id());
  }
  for (const csi::v1::VolumeCapability& capability : request.volume_capabilities()) {
    const absl::StatusOr<Usage> usage = UsageOf(capability);
    const absl::Status possible =
        usage.ok() ? CheckUsage(*usage, volume->record.view,
                                volume->record.source.kind == ContentSource::Kind::kSnapshot)
                   : usage.status();
    if (!possible.ok()) {
      response.set_message(std::string(possible.message()));
      return absl::OkStatus();
    }
  }
  if (!request.mutable_parameters().empty()) {
    response.set_message(kNoMutableParameters);
    return absl::OkStatus();
  }
  VolumeRequest read;
  if (absl::Status known = ReadParameters(request.parameters(), read); !known.ok()) {
    response.set_message(std::string(known.message()));
    return absl::OkStatus();
  }
  auto& confirmed = *response.mutable_confirmed();
  *confirmed.mutable_volume_context() = request.volume_context();
  *confirmed.mutable_volume_capabilities() = request.volume_capabilities();
  *confirmed.mutable_parameters() = request.parameters();
  return absl::OkStatus();
}

grpc::Status ControllerService::ValidateVolumeCapabilities(
    grpc::ServerContext*, const csi::v1::ValidateVolumeCapabilitiesRequest* request,
    csi::v1::ValidateVolumeCapabilitiesResponse* response) {
  return calls_.Run("/csi.v1.Controller/ValidateVolumeCapabilities",
                    [&] { return DoValidate(*request, *response); });
}

grpc::Status ControllerService::ListVolumes(grpc::ServerContext*,
                                            const csi::v1::ListVolumesRequest* request,
                                            csi::v1::ListVolumesResponse* response) {
  return calls_.Run("/csi.v1.Controller/ListVolumes", [&] {
    const absl::Status valid =
        CheckPage(request->max_entries(), request->starting_token(), IsVolumeId);
    if (!valid.ok()) return valid;
    const Page<Volume> page = store_.catalog().ListVolumes(
        request->starting_token(), static_cast<size_t>(request->max_entries()));
    for (const Volume& volume : page.entries) {
      FillIn(*response->add_entries()->mutable_volume(), volume);
    }
    if (page.more) response->set_next_token(page.entries.back().id);
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::GetCapacity(grpc::ServerContext*,
                                            const csi::v1::GetCapacityRequest* request,
                                            csi::v1::GetCapacityResponse* response) {
  return calls_.Run("/csi.v1.Controller/GetCapacity", [&] {
    response->set_available_capacity(0);
    for (const csi::v1::VolumeCapability& capability : request->volume_capabilities()) {
      if (!UsageOf(capability).ok()) return absl::OkStatus();  // no room for such volumes
    }
    if (request->has_accessible_topology() && !topology_.Matches(request->accessible_topology())) {
      return absl::OkStatus();
    }
    const absl::StatusOr<uint64_t> available = store_.AvailableCapacity();
    if (!available.ok()) return available.status();
    response->set_available_capacity(static_cast<int64_t>(std::min(*available, kMaxCapacity)));
    response->mutable_minimum_volume_size()->set_value(static_cast<int64_t>(Store::kCapacityUnit));
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::ControllerGetCapabilities(
    grpc::ServerContext*, const csi::v1::ControllerGetCapabilitiesRequest*,
    csi::v1::ControllerGetCapabilitiesResponse* response) {
  return calls_.Run("/csi.v1.Controller/ControllerGetCapabilities", [&] {
    using Rpc = csi::v1::ControllerServiceCapability::RPC;
    for (const auto type :
         {Rpc::CREATE_DELETE_VOLUME, Rpc::LIST_VOLUMES, Rpc::GET_CAPACITY, Rpc::CLONE_VOLUME,
          Rpc::EXPAND_VOLUME, Rpc::GET_VOLUME, Rpc::CREATE_DELETE_SNAPSHOT, Rpc::LIST_SNAPSHOTS,
          Rpc::GET_SNAPSHOT, Rpc::SINGLE_NODE_MULTI_WRITER, Rpc::GET_VOLUME_HEALTH,
          Rpc::LIST_VOLUME_HEALTH}) {
      response->add_capabilities()->mutable_rpc()->set_type(type);
    }
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::CreateSnapshot(grpc::ServerContext*,
                                               const csi::v1::CreateSnapshotRequest* request,
                                               csi::v1::CreateSnapshotResponse* response) {
  return calls_.Run("/csi.v1.Controller/CreateSnapshot", [&] {
    if (absl::Status name = Require(request->name(), "name"); !name.ok()) return name;
    if (absl::Status id = Require(request->source_volume_id(), "source_volume_id"); !id.ok()) {
      return id;
    }
    if (absl::Status none = RequireNoParameters(request->parameters()); !none.ok()) return none;
    if (absl::Status here = CheckTopology(request->accessibility_requirements()); !here.ok()) {
      return here;
    }
    const absl::StatusOr<Snapshot> snapshot =
        store_.CreateSnapshot(request->source_volume_id(), request->name());
    if (!snapshot.ok()) return snapshot.status();
    driver::FillIn(*response->mutable_snapshot(), *snapshot, topology_);
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::DeleteSnapshot(grpc::ServerContext*,
                                               const csi::v1::DeleteSnapshotRequest* request,
                                               csi::v1::DeleteSnapshotResponse*) {
  return calls_.Run("/csi.v1.Controller/DeleteSnapshot", [&] {
    if (absl::Status id = Require(request->snapshot_id(), "snapshot_id"); !id.ok()) return id;
    return store_.DeleteSnapshot(request->snapshot_id());
  });
}

absl::Status ControllerService::DoListSnapshots(const csi::v1::ListSnapshotsRequest& request,
                                                csi::v1::ListSnapshotsResponse& response) {
  const absl::Status valid =
      CheckPage(request.max_entries(), request.starting_token(), IsSnapshotId);
  if (!valid.ok()) return valid;
  if (!request.snapshot_id().empty()) {
    const absl::StatusOr<Snapshot> snapshot = store_.GetSnapshot(request.snapshot_id());
    if (absl::IsNotFound(snapshot.status())) return absl::OkStatus();
    if (!snapshot.ok()) return snapshot.status();
    const std::string& volume = request.source_volume_id();
    if (volume.empty() || volume == snapshot->volume_id) {
      driver::FillIn(*response.add_entries()->mutable_snapshot(), *snapshot, topology_);
    }
    return absl::OkStatus();
  }
  Page<Snapshot> page = store_.catalog().ListSnapshots(request.starting_token(),
                                                       static_cast<size_t>(request.max_entries()),
                                                       request.source_volume_id());
  for (Snapshot& snapshot : page.entries) {
    // The catalog does not know whether a snapshot is ready by now.
    const absl::Status fresh = store_.Refresh(snapshot);
    if (absl::IsNotFound(fresh) || absl::IsDataLoss(fresh)) continue;
    driver::FillIn(*response.add_entries()->mutable_snapshot(), snapshot, topology_);
  }
  if (page.more) response.set_next_token(page.entries.back().id);
  return absl::OkStatus();
}

grpc::Status ControllerService::ListSnapshots(grpc::ServerContext*,
                                              const csi::v1::ListSnapshotsRequest* request,
                                              csi::v1::ListSnapshotsResponse* response) {
  return calls_.Run("/csi.v1.Controller/ListSnapshots",
                    [&] { return DoListSnapshots(*request, *response); });
}

grpc::Status ControllerService::GetSnapshot(grpc::ServerContext*,
                                            const csi::v1::GetSnapshotRequest* request,
                                            csi::v1::GetSnapshotResponse* response) {
  return calls_.Run("/csi.v1.Controller/GetSnapshot", [&] {
    if (absl::Status id = Require(request->snapshot_id(), "snapshot_id"); !id.ok()) return id;
    const absl::StatusOr<Snapshot> snapshot = store_.GetSnapshot(request->snapshot_id());
    if (!snapshot.ok()) return snapshot.status();
    driver::FillIn(*response->mutable_snapshot(), *snapshot, topology_);
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::ControllerExpandVolume(
    grpc::ServerContext*, const csi::v1::ControllerExpandVolumeRequest* request,
    csi::v1::ControllerExpandVolumeResponse* response) {
  return calls_.Run("/csi.v1.Controller/ControllerExpandVolume", [&] {
    if (absl::Status id = Require(request->volume_id(), "volume_id"); !id.ok()) return id;
    const absl::StatusOr<CapacityRange> range = RangeOf(request->capacity_range());
    if (!range.ok()) return range.status();
    if (range->required == 0 && range->limit == 0) {
      return absl::InvalidArgumentError("capacity_range: is missing");
    }
    if (request->has_volume_capability()) {
      const absl::StatusOr<Usage> usage = UsageOf(request->volume_capability());
      if (!usage.ok()) return usage.status();
    }
    const absl::StatusOr<uint64_t> capacity = store_.ExpandVolume(request->volume_id(), *range);
    if (!capacity.ok()) return capacity.status();
    response->set_capacity_bytes(static_cast<int64_t>(*capacity));
    // The device of a staged volume grows at once. Waiting for NodeExpandVolume would leave the claim
    // at its old size until the next Pod, if the present one is on its way out.
    const std::optional<Volume> volume = store_.catalog().FindVolume(request->volume_id());
    const bool staged = volume.has_value() && volume->node.has_value();
    response->set_node_expansion_required(!request->volume_capability().has_block() ||
                                          (staged && !grow_(request->volume_id()).ok()));
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::ControllerGetVolume(
    grpc::ServerContext*, const csi::v1::ControllerGetVolumeRequest* request,
    csi::v1::ControllerGetVolumeResponse* response) {
  return calls_.Run("/csi.v1.Controller/ControllerGetVolume", [&] {
    if (absl::Status id = Require(request->volume_id(), "volume_id"); !id.ok()) return id;
    const std::optional<Volume> volume = store_.catalog().FindVolume(request->volume_id());
    if (!volume.has_value() || volume->record.removed) {
      return store_.catalog().Absent(request->volume_id());
    }
    FillIn(*response->mutable_volume(), *volume);
    response->mutable_status();
    return absl::OkStatus();
  });
}

grpc::Status ControllerService::ControllerGetVolumeHealth(
    grpc::ServerContext*, const csi::v1::ControllerGetVolumeHealthRequest* request,
    csi::v1::ControllerGetVolumeHealthResponse* response) {
  return calls_.Run("/csi.v1.Controller/ControllerGetVolumeHealth", [&] {
    if (absl::Status id = Require(request->volume_id(), "volume_id"); !id.ok()) return id;
    const std::optional<Volume> volume = store_.catalog().FindVolume(request->volume_id());
    if (!volume.has_value() || volume->record.removed) {
      return absl::NotFoundError("there is no volume " + request->volume_id());
    }
    DescribeHealth(*response->mutable_volume_health(), volume->id, health_(volume->id));
    return absl::OkStatus();
  });
}

absl::Status ControllerService::DoListHealth(
    const csi::v1::ControllerListVolumeHealthRequest& request,
    csi::v1::ControllerListVolumeHealthResponse& response) const {
  const absl::Status valid = CheckPage(request.max_entries(), request.starting_token(), IsVolumeId);
  if (!valid.ok()) return valid;
  // Few volumes have something to say: a page of answers may need several of volumes.
  constexpr size_t kAtATime = 256;
  std::string after = request.starting_token();
  for (bool more = true; more;) {
    const Page<Volume> page = store_.catalog().ListVolumes(after, kAtATime);
    for (const Volume& volume : page.entries) {
      csi::v1::VolumeHealth health;
      DescribeHealth(health, volume.id, health_(volume.id));
      if (health.health_statuses().empty()) continue;
      if (request.max_entries() > 0 && response.entries_size() == request.max_entries()) {
        response.set_next_token(response.entries().rbegin()->volume_id());
        return absl::OkStatus();
      }
      *response.add_entries() = std::move(health);
    }
    more = page.more;
    if (more) after = page.entries.back().id;
  }
  return absl::OkStatus();
}

grpc::Status ControllerService::ControllerListVolumeHealth(
    grpc::ServerContext*, const csi::v1::ControllerListVolumeHealthRequest* request,
    csi::v1::ControllerListVolumeHealthResponse* response) {
  return calls_.Run("/csi.v1.Controller/ControllerListVolumeHealth",
                    [&] { return DoListHealth(*request, *response); });
}

}  // namespace cbt::driver
