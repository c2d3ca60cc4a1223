// What the driver keeps on disk about a volume, beside the volume itself.
#ifndef CBT_PROGRAMS_DRIVER_STATE_RECORD_H_
#define CBT_PROGRAMS_DRIVER_STATE_RECORD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/volume/data_stamp.h"

namespace cbt::driver {

// What a volume was made from.
struct ContentSource {
  enum class Kind : uint8_t { kNone, kSnapshot, kVolume };

  Kind kind = Kind::kNone;
  std::string id = {};

  friend bool operator==(const ContentSource&, const ContentSource&) = default;
};

// The possible writers of a volume, which decide whether a file system may be made on it.
enum class Content : uint8_t {
  kBlank,       // no one: it has no source, and was never handed out for writing
  kFormatting,  // only the driver's own mkfs, which was not completed
  kUsed,        // anybody
};

// The file RECORD of a volume. A directory without it holds no volume.
struct VolumeRecord {
  std::string name;       // as the client chose it
  uint64_t capacity = 0;  // bytes
  ContentSource source = {};
  // Deleted, but kept for its snapshots. Its name is free again.
  bool removed = false;
  // Written before the event that it announces: after a crash, a volume never counts as emptier
  // than it is.
  Content content = Content::kUsed;
  // It is a snapshot's own data, to be read only; nothing was copied.
  bool view = false;
  // With kFormatting: the data as a mkfs left it that had failed. Any write since then has changed
  // it. Nothing while a mkfs runs, and after its driver was killed.
  std::optional<volume::DataStamp> left = {};

  friend bool operator==(const VolumeRecord&, const VolumeRecord&) = default;
};

// Where a staged volume is visible.
struct Target {
  std::string path;
  bool read_only = false;

  friend bool operator==(const Target&, const Target&) = default;
};

// The file NODE of a volume. Written before the volume is attached and removed after it has been
// detached, so that whatever a killed driver left can be found.
struct NodeRecord {
  std::string staging_path;
  bool block = false;
  std::string file_system = {};
  bool read_only = false;
  std::vector<std::string> mount_options = {};
  // Empty: FUSE and a loop device. Otherwise the kernel's NBD client, and the device that it was to
  // have or had last, which may be another volume's by now: proves nothing.
  std::string nbd_device = {};
  std::vector<Target> targets = {};

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// The moment that a snapshot is of, and its size.
struct SnapshotCut {
  int64_t created_ns = 0;  // nanoseconds since 1970; 0: not known
  uint64_t size = 0;       // bytes

  friend bool operator==(const SnapshotCut&, const SnapshotCut&) = default;
};

// The file names/ID of a volume, for each snapshot of a client.
struct SnapshotRecord {
  std::string name;  // as the client chose it; of a group's member, the driver's own
  // Recorded before a client learns of the snapshot. Nothing: the name is only reserved, and no
  // client knows of a snapshot.
  std::optional<SnapshotCut> cut = {};
  // The group snapshot that it is a member of, or empty. It is taken and deleted with the group.
  std::string group = {};

  friend bool operator==(const SnapshotRecord&, const SnapshotRecord&) = default;
};

struct GroupMember {
  std::string volume_id;
  std::string snapshot_id = {};  // once it is reserved
  SnapshotCut cut = {};          // once the group is taken

  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

// The file groups/ID: a group snapshot.
struct GroupRecord {
  std::string name;  // as the client chose it
  // All members are cut, at one moment. Before, no client knows of any.
  bool taken = false;
  std::vector<GroupMember> members = {};  // sorted by volume
  // All members were complete. Before, no client knows its id.
  bool answered = false;

  friend bool operator==(const GroupRecord&, const GroupRecord&) = default;
};

// `shown` is the file's name in messages. Errors of the decoders: INVALID_ARGUMENT, DATA_LOSS,
// UNIMPLEMENTED, see ManifestReader::Open().
std::vector<uint8_t> EncodeVolume(const VolumeRecord& record);
absl::StatusOr<VolumeRecord> DecodeVolume(std::span<const uint8_t> bytes, std::string_view shown);
std::vector<uint8_t> EncodeNode(const NodeRecord& record);
absl::StatusOr<NodeRecord> DecodeNode(std::span<const uint8_t> bytes, std::string_view shown);
std::vector<uint8_t> EncodeSnapshot(const SnapshotRecord& record);
// A record of version 1.0 has only a name: its snapshot may have been acknowledged, so it counts as
// cut at an unknown moment.
absl::StatusOr<SnapshotRecord> DecodeSnapshot(std::span<const uint8_t> bytes,
                                              std::string_view shown);

std::vector<uint8_t> EncodeGroup(const GroupRecord& record);
// A group of version 1.0 counts as answered.
absl::StatusOr<GroupRecord> DecodeGroup(std::span<const uint8_t> bytes, std::string_view shown);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_RECORD_H_
