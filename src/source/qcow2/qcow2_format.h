// A qcow2 file outside of its cluster tables: header, extensions, snapshot table, bitmap directory.
// As documented in qemu's docs/interop/qcow2; all numbers are big-endian.
#ifndef CBT_SOURCE_QCOW2_QCOW2_FORMAT_H_
#define CBT_SOURCE_QCOW2_QCOW2_FORMAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/image.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"

namespace cbt {

inline constexpr uint32_t kQcow2Magic = 0x514649fb;  // "QFI\xfb"

// qemu's own limits, which bound the cost of hostile files.
inline constexpr uint64_t kMaxL1Bytes = 32 * kMiB;
inline constexpr uint64_t kMaxQcow2Snapshots = 65536;
inline constexpr uint64_t kMaxSnapshotTableBytes = 64 * kMiB;
inline constexpr uint64_t kMaxQcow2Bitmaps = 65535;
inline constexpr uint64_t kMaxBitmapDirectoryBytes = 64 * kMiB;

// Bits 9 - 55 of an entry of any table: an offset into the file.
inline constexpr uint64_t kQcow2OffsetMask = 0x00fffffffffffe00;

constexpr uint64_t LoadBig(const uint8_t* bytes, unsigned size) noexcept {
  uint64_t value = 0;
  for (unsigned i = 0; i < size; ++i) value = value << 8 | bytes[i];
  return value;
}
constexpr uint16_t LoadBig16(const uint8_t* bytes) noexcept {
  return static_cast<uint16_t>(LoadBig(bytes, 2));
}
constexpr uint32_t LoadBig32(const uint8_t* bytes) noexcept {
  return static_cast<uint32_t>(LoadBig(bytes, 4));
}
constexpr uint64_t LoadBig64(const uint8_t* bytes) noexcept { return LoadBig(bytes, 8); }

// Where the first-level table of a state lies, and how much it maps (bytes).
struct Qcow2Tables {
  uint64_t size = 0;
  uint64_t l1_offset = 0;
  uint64_t l1_entries = 0;

  friend bool operator==(const Qcow2Tables&, const Qcow2Tables&) = default;
};

struct Qcow2BitmapArea {
  uint64_t count = 0;
  uint64_t directory_bytes = 0;
  uint64_t directory_offset = 0;
};

struct Qcow2Header {
  uint32_t version = 0;
  unsigned cluster_bits = 0;
  bool extended = false;       // entries of 16 bytes, with 32 subclusters per cluster
  bool external_data = false;  // clusters lie in another file; bitmaps don't
  bool encrypted = false;
  bool zstd = false;  // compressed clusters are zstd's, not zlib's
  Qcow2Tables active;
  uint64_t snapshot_count = 0;
  uint64_t snapshots_offset = 0;
  std::optional<std::string> backing_name;
  std::optional<std::string> backing_format;
  std::optional<Qcow2BitmapArea> bitmaps;
  bool bitmaps_consistent = false;

  uint64_t cluster_size() const noexcept { return uint64_t{1} << cluster_bits; }
  // Shift counts: bytes of volume per subcluster (or cluster), and per table.
  unsigned unit_bits() const noexcept { return extended ? cluster_bits - 5 : cluster_bits; }
  unsigned entry_bits() const noexcept { return extended ? 4 : 3; }
  unsigned table_bits() const noexcept { return 2 * cluster_bits - entry_bits(); }
};

// An error naming the place: bytes at `offset` of `file`.
absl::Status Qcow2Broken(const Image& file, uint64_t offset, std::string_view reason);

// `text` from a file, escaped for an error message.
std::string Qcow2Quoted(std::string_view text);

// OK if `bytes` bytes at `offset` lie inside the file and begin a cluster; `what` names them.
// `field` is the offset of the field that says so.
absl::Status CheckQcow2Area(const Image& file, unsigned cluster_bits, uint64_t field,
                            uint64_t offset, uint64_t bytes, std::string_view what);

// OK if a first-level table can map what it has to. `field` as above.
absl::Status CheckQcow2Tables(const Image& file, const Qcow2Header& header,
                              const Qcow2Tables& tables, uint64_t field);

absl::StatusOr<Qcow2Header> ReadQcow2Header(const Image& file);

absl::StatusOr<std::vector<Qcow2Snapshot>> ReadQcow2Snapshots(const Image& file,
                                                              const Qcow2Header& header);

// A bitmap and what its cursor needs.
struct Qcow2BitmapEntry {
  Qcow2Bitmap bitmap;
  uint64_t position = 0;  // of the directory entry in the file
  uint64_t table_offset = 0;
  uint64_t table_entries = 0;
  uint32_t flags = 0;
  uint32_t type = 0;
  uint32_t granularity_bits = 0;
  uint64_t extra_bytes = 0;
};
absl::StatusOr<std::vector<Qcow2BitmapEntry>> ReadQcow2Bitmaps(const Image& file,
                                                               const Qcow2Header& header);

// One file of a chain.
struct Qcow2Layer {
  std::shared_ptr<const Image> file;
  bool raw = false;
  Qcow2Header header;  // of qcow2 files

  uint64_t size() const noexcept { return raw ? file->size() : header.active.size; }
};

struct Qcow2Image::Parts {
  std::vector<Qcow2Layer> layers;  // from the image itself down
  std::vector<Qcow2Snapshot> snapshots;
  bool cut = false;  // the last layer names a backing file that was not opened
};

// OK if `base` can hold the volume below `overlay` byte by byte. Errors: FAILED_PRECONDITION if it
// begins like an image of the format that the overlay says its base has, or of any if it says none.
absl::Status CheckQcow2Base(const Qcow2Image& overlay, const Image& base);

}  // namespace cbt

#endif  // CBT_SOURCE_QCOW2_QCOW2_FORMAT_H_
