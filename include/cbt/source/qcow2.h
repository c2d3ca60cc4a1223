// qcow2 images as change sources: what a state of an image has allocated, what differs between two
// states, what an overlay changes of its backing file, and persistent dirty bitmaps. Part of
// cbt::source.
//
// Reads the format itself (versions 2 and 3, subclusters, compressed clusters, internal snapshots,
// chains of backing files) as qemu documents it in docs/interop/qcow2; qemu is not needed. Only
// tables are read, never a cluster's data, so encryption and the kind of compression don't matter.
//
// Images must not change while they are read. One that another program has open for writing is
// refused when it is opened (qemu keeps tables in memory that the file does not have yet), and a
// cursor that detects a write to a file of the chain, or a change of its size, fails with ABORTED
// before it is complete.
//
// Files are untrusted: every table is checked before it is used, and an error names the file, the
// offset and the reason. Memory is bounded whatever the files say: a cursor takes at most some 70
// KiB per file of a chain; lists of snapshots and of bitmaps over 64 MiB are refused.
//
// Status codes of all functions here, in addition to those of Image::Open() and Image::Read():
//   INVALID_ARGUMENT     not a qcow2 image; an argument out of range
//   UNIMPLEMENTED        apparently sound, but uses something that is not supported
//   FAILED_PRECONDITION  open for writing elsewhere, or marked as dirty, corrupt, in use; may be
//                        something else than it seems
//   DATA_LOSS            contradicts the format
//   NOT_FOUND            no such file, snapshot or bitmap
//   ABORTED              changed while it was read
#ifndef CBT_SOURCE_QCOW2_H_
#define CBT_SOURCE_QCOW2_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/image.h"

namespace cbt {

// True if these first bytes of a file (at least four) are the magic number of qcow2, which the
// original qcow format shares. Says nothing about whether the image can be read.
bool LooksLikeQcow2(std::span<const uint8_t> first_bytes) noexcept;

struct Qcow2Options {
  // Opens the backing files too, so that their contents count. Otherwise what an image leaves to
  // its backing file is unknown: it counts as allocated, and is equal only to itself.
  bool follow_backing = true;

  // The most files in a chain, including the image itself; 1 .. kMaxQcow2Depth.
  size_t max_depth = 256;

  // Reads an image that qemu has open for writing elsewhere. The answer then lacks what qemu has
  // not yet written to the tables: only for images known to be quiescent.
  bool allow_writer = false;

  // Reads an image in whose first cluster, or first 64 KiB if that is smaller, libblkid finds
  // another signature. A header may be left over on a disk that is something else by now.
  bool ignore_other_signatures = false;

  // Opens a backing file. `path` is the name in the image, already resolved against the image's
  // directory if relative. Callers that read untrusted images should refuse paths outside of their
  // directories here. Default: Image::Open(path, label).
  std::function<absl::StatusOr<std::shared_ptr<const Image>>(const std::string& path,
                                                             const std::string& label)>
      open_backing = nullptr;
};

inline constexpr size_t kMaxQcow2Depth = 4096;

// An internal snapshot as the snapshot table lists it.
struct Qcow2Snapshot {
  std::string id;             // unique within the image, usually "1", "2", ...
  std::string name;           // chosen by the user; need not be unique
  uint64_t virtual_size = 0;  // bytes
  uint64_t seconds = 0;       // creation time, since the epoch
  uint64_t l1_offset = 0;     // where its first-level table lies in the file, bytes
  uint64_t l1_entries = 0;
};

// A persistent dirty bitmap as the bitmap directory lists it.
struct Qcow2Bitmap {
  std::string name;
  uint64_t granularity = 0;  // bytes per bit
  bool in_use = false;       // was not saved: its contents are unreliable
  bool enabled = false;      // records again when the image is opened for writing
};

// An opened image and its chain of backing files. Immutable; safe to share between threads.
class Qcow2Image {
 public:
  // Opens the image at `path` and its backing files. `label` names the image in error messages, the
  // path if empty; backing files go by the label of the image and their depth.
  // Backing names that are not paths (json:, nbd:// and the like) and backing formats other than
  // raw and qcow2 are refused. A backing file whose format the image does not give is qcow2 if it
  // has the magic number, refused if it has that of another image format, and raw otherwise, if
  // neither its name nor its size contradicts that.
  // Errors: as above.
  // Cost:   reads headers and snapshot tables.
  static absl::StatusOr<std::shared_ptr<const Qcow2Image>> Open(const std::string& path,
                                                                const Qcow2Options& options = {},
                                                                std::string_view label = {});

  // As Open() for an open file; relative backing names are resolved against `directory`.
  static absl::StatusOr<std::shared_ptr<const Qcow2Image>> FromImage(
      std::shared_ptr<const Image> file, const std::string& directory,
      const Qcow2Options& options = {});

  ~Qcow2Image();
  Qcow2Image(const Qcow2Image&) = delete;
  Qcow2Image& operator=(const Qcow2Image&) = delete;

  // Of the active state, in bytes.
  uint64_t virtual_size() const noexcept;
  uint64_t cluster_size() const noexcept;

  // The smallest unit of allocation in bytes: a subcluster if the image has extended entries, else
  // a cluster.
  uint64_t allocation_unit() const noexcept;

  const std::string& label() const noexcept;

  // Files in the chain, including this one; 1 for an image without a backing file.
  size_t depth() const noexcept;

  // True if the image names a backing file, opened or not.
  bool has_backing() const noexcept;

  // In the order of the table, oldest first.
  const std::vector<Qcow2Snapshot>& snapshots() const noexcept;

  // The snapshot with this id or name.
  // Errors: NOT_FOUND; INVALID_ARGUMENT if several match.
  absl::StatusOr<Qcow2Snapshot> FindSnapshot(std::string_view id_or_name) const;

  // Reads the bitmap directory. Empty if the image has no bitmaps.
  // Errors: FAILED_PRECONDITION if a program that does not support bitmaps has written to the
  //         image, so that none of them can be trusted; DATA_LOSS, UNAVAILABLE.
  absl::StatusOr<std::vector<Qcow2Bitmap>> ListBitmaps() const;

  // For the library's own cursors.
  struct Parts;
  const Parts& parts() const noexcept { return *parts_; }

 private:
  explicit Qcow2Image(std::unique_ptr<const Parts> parts);

  const std::unique_ptr<const Parts> parts_;
};

// The state of a volume: the active state of an image, or one of its internal snapshots.
struct Qcow2State {
  std::shared_ptr<const Qcow2Image> image;
  std::optional<std::string> snapshot;  // id or name; the active state if none
};

// What `state` holds data for, in its image or in a file below it: clusters that are neither absent
// everywhere nor marked as zeros, and the data ranges of a raw file at the end of the chain.
// Extents are maximal. The capacity is the virtual size of the state, the granularity 1 byte: files
// of a chain have clusters of different sizes, and sizes of their own that cut them.
// Errors: as above; the factory reports errors of the state as a whole, Next() those in its tables.
// Cost:   Seek() O(1); Next() reads 8 bytes of table per cluster, and none where there are no
//         tables; in stretches that an image leaves to its backing file, those of the next one too.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2AllocationCursor(const Qcow2State& state);

// What the image of `state` itself holds, whatever lies below: data, and clusters marked as zeros
// (written as such, or discarded). For an overlay, this is its delta against its backing file, as
// far as both have the same size. As above; the granularity is allocation_unit().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2LayerCursor(const Qcow2State& state);

// Where `target` may differ from `base`, by where their bytes lie: a range is equal if both read it
// from the same place of the same file, or if both read zeros because it is marked so or not held
// anywhere. Anything else is reported, even if the bytes happen to be the same. The capacity is the
// virtual size of `target`; the shorter state counts as followed by zeros. Otherwise as
// MakeQcow2AllocationCursor().
//
// Useful only for states that share files: a snapshot of an image against a later one or against
// the active state; an image against an overlay above it; two overlays of one image. The shared
// files must not have been written to in between: a file is read as it is now on both sides, so a
// base that was written to after an overlay was made above it is no longer its base. Files are the
// same if Image::SameFileAs() says so: a file that the two chains reach by two names (hard links,
// bind mounts) counts as another one, and all that it holds is reported.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2DeltaCursor(const Qcow2State& base,
                                                                   const Qcow2State& target);

// The blocks set in the dirty bitmap `name` of `image`. Extents are maximal; the capacity is the
// virtual size of the active state, where the last one is cut. Backing files don't matter.
// Errors: NOT_FOUND; FAILED_PRECONDITION if the bitmap was not saved, or as ListBitmaps();
//         UNIMPLEMENTED for an unknown type, unknown flags or mandatory extra data; DATA_LOSS.
// Cost:   Seek() O(1); Next() one pass over the bits; nothing for clusters of them that are clear.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2BitmapCursor(
    const std::shared_ptr<const Qcow2Image>& image, std::string_view name);

}  // namespace cbt

#endif  // CBT_SOURCE_QCOW2_H_
