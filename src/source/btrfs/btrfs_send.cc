#include "cbt/source/btrfs_send.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "source/btrfs/btrfs_files.h"
#include "source/btrfs/btrfs_stream.h"

namespace cbt {
namespace {

// Without a capacity: the limit on blocks, 64 TiB in blocks of 4096 bytes. A change further out in
// an untrusted stream must not cost memory in proportion to its offset.
constexpr uint64_t kBlocksUnasked = uint64_t{1} << 34;

// The number of files that an error names.
constexpr size_t kFilesNamed = 8;

// Of fallocate(2).
constexpr uint32_t kKeepSize = 0x01;
constexpr uint32_t kPunchHole = 0x02;
constexpr uint32_t kZeroRange = 0x10;
constexpr uint32_t kUnshare = 0x40;

std::string Text(const BtrfsCommand::Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

std::string Named(const std::vector<std::string>& files) {
  const bool more = files.size() > kFilesNamed;
  return absl::StrCat(absl::StrJoin(files.begin(), files.end() - (more ? 1 : 0), ", "),
                      more ? ", ..." : "");
}

absl::StatusOr<VolumeGeometry> WorkingGeometry(const BtrfsSendOptions& options) {
  const uint64_t granularity = options.granularity;
  absl::Status status =
      CheckGeometry({.capacity = options.capacity.value_or(0), .granularity = granularity});
  if (!status.ok()) return status;
  const uint64_t unasked =
      granularity > kMaxCapacity / kBlocksUnasked ? kMaxCapacity : granularity * kBlocksUnasked;
  return VolumeGeometry{std::max(unasked, options.capacity.value_or(0)), granularity};
}

// Applies one stream.
class Player {
 public:
  Player(BtrfsStreamReader& reader, std::string label, const BtrfsSendOptions& options,
         const VolumeGeometry& geometry)
      : reader_(reader), label_(std::move(label)), options_(options), geometry_(geometry) {}

  // Applies all commands. Errors name the place.

  absl::Status Run();
  // The changes of the file in question. Errors name the stream.
  absl::StatusOr<ChangeMap> Result() {
    absl::StatusOr<ChangeMap> map = Judge();
    if (map.ok()) return map;
    return absl::Status(map.status().code(), absl::StrCat(label_, ": ", map.status().message()));
  }

 private:
  absl::StatusOr<ChangeMap> Judge();
  absl::Status Begin(const BtrfsCommand& command);
  absl::Status Play(const BtrfsCommand& command);
  absl::Status Allocate(const BtrfsCommand& command);
  static absl::Status Require(const BtrfsCommand& command, bool there, const char* what);
  static absl::Status RequirePath(const BtrfsCommand& command,
                                  const std::optional<std::string>& path, const char* what);
  absl::Status Change(const BtrfsCommand& command, const std::optional<uint64_t>& length,
                      const char* what);
  absl::StatusOr<std::string> Choose() const;
  absl::Status CheckNamed(const std::string& path, const BtrfsFiles::Found& found) const;
  absl::StatusOr<uint64_t> Capacity(const std::string& path, const BtrfsFile* file) const;

  BtrfsStreamReader& reader_;
  const std::string label_;
  const BtrfsSendOptions& options_;
  const VolumeGeometry geometry_;
  std::optional<BtrfsFiles> files_;
  bool full_ = false;
  ChangeMapIdentity identity_;
};

absl::Status Player::Require(const BtrfsCommand& command, bool there, const char* what) {
  if (there) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("command ", static_cast<uint16_t>(command.type), " lacks ", what));
}

absl::Status Player::RequirePath(const BtrfsCommand& command,
                                 const std::optional<std::string>& path, const char* what) {
  return Require(command, path.has_value() && !path->empty(), what);
}

absl::Status Player::Run() {
  for (;;) {
    const absl::StatusOr<BtrfsCommand> command = reader_.Next();
    if (!command.ok()) return command.status();
    if (command->type == BtrfsCommandType::kEnd) {
      if (files_.has_value()) return absl::OkStatus();
      return reader_.Damaged(command->position, "the stream ends before it names its snapshot");
    }
    absl::Status status = Play(*command);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(label_, ": byte ", command->position, ": ",
                                                      status.message()));
    }
  }
}

absl::Status Player::Begin(const BtrfsCommand& command) {
  if (files_.has_value()) {
    return absl::DataLossError("a second snapshot begins in one stream");
  }
  full_ = command.type == BtrfsCommandType::kSubvolume;
  absl::Status status = RequirePath(command, command.path, "the snapshot's name");
  if (!status.ok()) return status;
  status = Require(command, command.uuid.has_value(), "the snapshot's UUID");
  if (!status.ok()) return status;
  identity_.target = *command.path;
  std::optional<std::string> wanted;
  if (!full_) {
    status = Require(command, command.clone_uuid.has_value(), "the UUID of its base");
    if (!status.ok()) return status;
    identity_.base = Text(*command.clone_uuid);
    if (!options_.path.empty()) {
      wanted = options_.base_path.empty() ? options_.path : options_.base_path;
    }
  }
  files_.emplace(full_, std::move(wanted), geometry_);
  return absl::OkStatus();
}

absl::Status Player::Change(const BtrfsCommand& command, const std::optional<uint64_t>& length,
                            const char* what) {
  absl::Status status = Require(command, command.file_offset.has_value(), "an offset");
  if (!status.ok()) return status;
  if (status = Require(command, length.has_value(), what); !status.ok()) return status;
  return files_->Change(*command.path, {*command.file_offset, *length}, true);
}

absl::Status Player::Allocate(const BtrfsCommand& command) {
  absl::Status status = Require(command, command.fallocate_mode.has_value(), "a mode");
  if (!status.ok()) return status;
  const uint32_t mode = *command.fallocate_mode;
  // Other modes move the data after the range.
  if ((mode & ~(kKeepSize | kPunchHole | kZeroRange | kUnshare)) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("fallocate with mode ", mode, " is unknown and could move data"));
  }
  if ((mode & kKeepSize) == 0) return Change(command, command.size, "a length");
  status = Require(command, command.file_offset.has_value(), "an offset");
  if (!status.ok()) return status;
  if (status = Require(command, command.size.has_value(), "a length"); !status.ok()) return status;
  return files_->Change(*command.path, {*command.file_offset, *command.size}, false);
}

absl::Status Player::Play(const BtrfsCommand& command) {
  using Type = BtrfsCommandType;
  if (command.type == Type::kSubvolume || command.type == Type::kSnapshot) return Begin(command);
  if (!files_.has_value()) {
    return absl::DataLossError("the stream does not begin with its snapshot");
  }
  switch (command.type) {
    case Type::kChmod:
    case Type::kChown:
    case Type::kTimes:
    case Type::kSetXattr:
    case Type::kRemoveXattr:
    case Type::kFileAttributes:
    case Type::kEnableVerity:
      // The only commands that may refer to the subvolume's root, whose path is empty.
      if (absl::Status status = Require(command, command.path.has_value(), "a path");
          !status.ok()) {
        return status;
      }
      return files_->Mention(*command.path);
    default:
      break;
  }
  absl::Status status = RequirePath(command, command.path, "a path");
  if (!status.ok()) return status;
  const std::string& path = *command.path;
  switch (command.type) {
    case Type::kMakeFile:
      return files_->MakeFile(path);
    case Type::kMakeDirectory:
    case Type::kMakeNode:
    case Type::kMakeFifo:
    case Type::kMakeSocket:
    case Type::kSymlink:
      return files_->MakeOther(path);
    case Type::kRename:
      status = RequirePath(command, command.path_to, "where to");
      if (!status.ok()) return status;
      return files_->Rename(path, *command.path_to);
    case Type::kLink:
      status = RequirePath(command, command.path_link, "what to link");
      if (!status.ok()) return status;
      return files_->Link(path, *command.path_link);
    case Type::kUnlink:
    case Type::kRemoveDirectory:
      return files_->Remove(path);
    case Type::kWrite:
      return Change(command, command.data_length, "the data");
    case Type::kClone:
      return Change(command, command.clone_length, "a length");
    case Type::kUpdateExtent:
      return Change(command, command.size, "a length");
    case Type::kEncodedWrite:
      return Change(command, command.unencoded_file_length, "the length in the file");
    case Type::kFallocate:
      return Allocate(command);
    case Type::kTruncate:
      if (status = Require(command, command.size.has_value(), "a size"); !status.ok()) {
        return status;
      }
      return files_->Truncate(path, *command.size);
    default:
      // All command numbers that the reader accepts are handled above.
      return absl::InternalError("a command without a meaning");
  }
}

absl::StatusOr<std::string> Player::Choose() const {
  if (!options_.path.empty()) return options_.path;
  std::vector<std::string> touched = files_->Touched(kFilesNamed + 1);
  if (touched.size() == 1) return std::move(touched.front());
  if (touched.empty()) {
    return absl::FailedPreconditionError("the stream changes no file: name the file");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the stream changes several files, name one of them: ", Named(touched)));
}

absl::StatusOr<uint64_t> Player::Capacity(const std::string& path, const BtrfsFile* file) const {
  const std::optional<uint64_t> known_size = file != nullptr ? file->size() : std::nullopt;
  if (!options_.capacity.has_value()) {
    if (known_size.has_value()) return *known_size;
    return absl::FailedPreconditionError(
        absl::StrCat("the stream does not hold the size of ", path, ": give the capacity"));
  }
  if (known_size.has_value() && *known_size != *options_.capacity) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", *known_size,
                                                   " bytes in the stream, ", *options_.capacity,
                                                   " were given as the capacity"));
  }
  if (file != nullptr && !known_size.has_value() && file->furthest() > *options_.capacity) {
    return absl::InvalidArgumentError(absl::StrCat(path, " changes up to byte ", file->furthest(),
                                                   " in the stream, ", *options_.capacity,
                                                   " were given as the capacity"));
  }
  return *options_.capacity;
}

// OK if the stream's changes of the file at `path`, one of the base, are complete, as shown by the
// stream or promised by the caller.
absl::Status Player::CheckNamed(const std::string& path, const BtrfsFiles::Found& found) const {
  if (found.file != nullptr && found.file->named) return absl::OkStatus();
  std::string lacking;
  if (!found.proven && !options_.path_exists) {
    lacking =
        "; a misspelt path and one in a nested subvolume, whose files are in no stream of the one "
        "around it, look the same: say path-exists if the file is in both snapshots and in no "
        "nested subvolume";
  }
  if (!options_.single_name && files_->OthersTouched(found.file)) {
    const std::vector<std::string> touched = files_->Touched(kFilesNamed + 1);
    absl::StrAppend(&lacking, "; it may refer to the file by another name",
                    touched.empty() ? "" : ", among ", Named(touched),
                    ": say single-name if it has no other name");
  }
  if (lacking.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the stream does not name ", path, lacking));
}

absl::StatusOr<ChangeMap> Player::Judge() {
  const absl::StatusOr<std::string> path = Choose();
  if (!path.ok()) return path.status();
  const absl::StatusOr<BtrfsFiles::Found> found = files_->Find(*path);
  if (!found.ok()) return found.status();
  const std::string& base_path = options_.base_path.empty() ? *path : options_.base_path;
  const bool replaced = !full_ && (!found->in_base || found->origin != base_path);
  if (!full_ && !replaced) {
    if (absl::Status status = CheckNamed(*path, *found); !status.ok()) return status;
  }
  const absl::StatusOr<uint64_t> capacity = Capacity(*path, found->file);
  if (!capacity.ok()) return capacity.status();

  absl::StatusOr<ChangeMap> map = absl::UnknownError("");
  if (replaced) {
    // Not the base's file: the stream does not say what that one held where this one holds nothing.
    map = ChangeMap::Full({*capacity, geometry_.granularity});
  } else {
    map = found->file != nullptr ? found->file->Build(*capacity, geometry_)
                                 : ChangeMap::Empty({*capacity, geometry_.granularity});
  }
  if (!map.ok()) return map.status();
  const auto choose = [](const std::string& given, const std::string& own) {
    return given.empty() ? own : given;
  };
  map->set_identity({.volume = choose(options_.identity.volume, *path),
                     .base = choose(options_.identity.base, identity_.base),
                     .target = choose(options_.identity.target, identity_.target)});
  return map;
}

}  // namespace

absl::StatusOr<ChangeMap> ReadBtrfsSend(ByteStream& stream, const BtrfsSendOptions& options) {
  for (const std::string* path : {&options.path, &options.base_path}) {
    if (!IsBtrfsPath(*path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a path inside a subvolume, from its root: '", *path, "'"));
    }
  }
  const absl::StatusOr<VolumeGeometry> geometry = WorkingGeometry(options);
  if (!geometry.ok()) return geometry.status();
  absl::StatusOr<BtrfsStreamReader> reader = BtrfsStreamReader::Create(stream);
  if (!reader.ok()) return reader.status();
  Player player(*reader, stream.label(), options, *geometry);
  if (absl::Status status = player.Run(); !status.ok()) return status;
  // A second stream may follow in the same file; its changes must not be missed.
  const uint64_t end = stream.position();
  std::array<uint8_t, 1> more;
  const absl::StatusOr<size_t> count = stream.Read(more);
  if (!count.ok()) return count.status();
  if (*count != 0) return reader->Damaged(end, "data after the end of the stream");
  return player.Result();
}

}  // namespace cbt
