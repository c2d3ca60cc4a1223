#include "programs/driver/usage.h"

#include "absl/strings/str_cat.h"
#include "programs/driver/node/file_system.h"

namespace cbt::driver {

absl::StatusOr<Usage> UsageOf(const csi::v1::VolumeCapability& capability) {
  using Mode = csi::v1::VolumeCapability::AccessMode;
  Usage usage;
  if (capability.has_block()) {
    usage.block = true;
  } else if (capability.has_mount()) {
    usage.file_system = capability.mount().fs_type();
    if (absl::Status known = CheckFileSystem(usage.file_system); !known.ok()) return known;
    for (const std::string& flag : capability.mount().mount_flags()) {
      if (flag.empty() || flag.find(',') != std::string::npos) {
        return absl::InvalidArgumentError("volume_capability: invalid mount flag");
      }
      usage.mount_options.push_back(flag);
    }
    if (!capability.mount().volume_mount_group().empty()) {
      return absl::InvalidArgumentError("volume_capability: volume_mount_group is not supported");
    }
  } else {
    return absl::InvalidArgumentError("volume_capability: neither block nor mount");
  }
  switch (capability.access_mode().mode()) {
    case Mode::SINGLE_NODE_WRITER:
    case Mode::SINGLE_NODE_MULTI_WRITER:
      break;
    case Mode::SINGLE_NODE_SINGLE_WRITER:
      usage.single_target = true;
      break;
    case Mode::SINGLE_NODE_READER_ONLY:
      usage.read_only = true;
      break;
    case Mode::MULTI_NODE_READER_ONLY:
      // A file system has to replay its journal once, in a volume of its own; its readers only read.
      usage.read_only = usage.block;
      usage.many_nodes = true;
      break;
    case Mode::UNKNOWN:
      return absl::InvalidArgumentError("volume_capability: access_mode is missing");
    default:
      return absl::InvalidArgumentError("volume_capability: a volume is for one node");
  }
  return usage;
}

absl::Status CheckUsage(const Usage& usage, bool view, bool of_snapshot) {
  if (view && (!usage.read_only || !usage.block)) {
    return absl::InvalidArgumentError(
        "volume_capability: the volume is a snapshot that is only read, as a block device");
  }
  if (!view && usage.many_nodes && (usage.block || !of_snapshot)) {
    return absl::InvalidArgumentError(
        "volume_capability: a volume is for one node; many readers can have a snapshot (a claim "
        "with no other accessModes than ReadOnlyMany, and the VolumeSnapshot as its dataSource)");
  }
  return absl::OkStatus();
}

void NodeTopology::FillIn(csi::v1::Topology& topology) const {
  (*topology.mutable_segments())[key] = node_id;
}

bool NodeTopology::Matches(const csi::v1::Topology& topology) const {
  const auto found = topology.segments().find(key);
  return found == topology.segments().end() || found->second == node_id;
}

}  // namespace cbt::driver
