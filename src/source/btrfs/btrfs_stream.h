// Reads the commands of a btrfs send stream one by one.
#ifndef CBT_SOURCE_BTRFS_BTRFS_STREAM_H_
#define CBT_SOURCE_BTRFS_BTRFS_STREAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/byte_stream.h"
#include "cbt/units.h"

namespace cbt {

// Numbers of fs/btrfs/send.h.
enum class BtrfsCommandType : uint16_t {
  kSubvolume = 1,
  kSnapshot = 2,
  kMakeFile = 3,
  kMakeDirectory = 4,
  kMakeNode = 5,
  kMakeFifo = 6,
  kMakeSocket = 7,
  kSymlink = 8,
  kRename = 9,
  kLink = 10,
  kUnlink = 11,
  kRemoveDirectory = 12,
  kSetXattr = 13,
  kRemoveXattr = 14,
  kWrite = 15,
  kClone = 16,
  kTruncate = 17,
  kChmod = 18,
  kChown = 19,
  kTimes = 20,
  kEnd = 21,
  kUpdateExtent = 22,
  // Version 2.
  kFallocate = 23,
  kFileAttributes = 24,
  kEncodedWrite = 25,
  // Version 3.
  kEnableVerity = 26,
};

// Paths are names joined by slashes, none of them empty, "." or "..".
inline constexpr size_t kMaxBtrfsPathBytes = 4096;

// True for such a path; the empty one is the subvolume's root.
bool IsBtrfsPath(std::string_view path) noexcept;

// A command with a valid checksum, without attributes that say nothing about ranges or names.
struct BtrfsCommand {
  using Uuid = std::array<uint8_t, 16>;

  uint64_t position = 0;  // of its first byte in the stream
  BtrfsCommandType type = BtrfsCommandType::kEnd;
  std::optional<std::string> path = {};
  std::optional<std::string> path_to = {};
  std::optional<std::string> path_link = {};
  std::optional<uint64_t> size = {};
  std::optional<uint64_t> file_offset = {};
  std::optional<uint64_t> clone_length = {};
  std::optional<uint64_t> unencoded_file_length = {};
  std::optional<uint64_t> data_length = {};  // the data itself has been skipped
  std::optional<uint32_t> fallocate_mode = {};
  std::optional<Uuid> uuid = {};
  std::optional<Uuid> clone_uuid = {};
};

class BtrfsStreamReader {
 public:
  // Reads the header. `stream` must outlive the reader.
  // Errors: DATA_LOSS, UNIMPLEMENTED for another version; those of the stream.
  static absl::StatusOr<BtrfsStreamReader> Create(ByteStream& stream);

  // The next command. There is always one more until kEnd: an earlier end is an error.
  // Errors: DATA_LOSS naming the byte; UNIMPLEMENTED for unknown commands and attributes with a
  //         valid checksum; those of the stream.
  absl::StatusOr<BtrfsCommand> Next();

  // An error at `position` of the stream.
  absl::Status Damaged(uint64_t position, std::string_view what) const;

 private:
  BtrfsStreamReader(ByteStream& stream, uint32_t version);

  absl::Status Take(std::span<uint8_t> out);
  absl::Status Pass(uint64_t count);
  absl::Status ReadAttribute(BtrfsCommand& command);
  absl::Status ReadPath(size_t length, std::optional<std::string>& path);
  absl::Status ReadUuid(size_t length, std::optional<BtrfsCommand::Uuid>& uuid);
  template <typename T>
  absl::Status ReadNumber(size_t length, std::optional<T>& number);

  ByteStream* stream_;
  uint32_t version_;
  std::unique_ptr<std::array<uint8_t, 64 * kKiB>> scratch_;
  // State of the command being read.
  uint64_t left_ = 0;
  uint32_t crc_ = 0;
  uint64_t seen_ = 0;                     // one bit per type of attribute
  std::optional<uint16_t> unknown_ = {};  // an attribute
};

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_BTRFS_STREAM_H_
