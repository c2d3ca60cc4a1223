// qcow2 images as change sources: what a state of an image has allocated, what differs between two
// states, what an overlay says against its backing file, and persistent dirty bitmaps. Part of
// cbt::source.
//
// Reads the format itself (versions 2 and 3, subclusters, compressed clusters, internal snapshots,
// chains of backing files), after qemu's public description of it, docs/interop/qcow2; qemu is not
// needed. Nothing but tables is read, never a cluster's data, so that encryption and the kind of
// compression don't matter.
//
// Images must not change while they are read. One that another program has open for writing is
// refused when it is opened (qemu keeps tables in memory that the file does not have yet), and a
// cursor that sees that a file of a chain was written to or changed its size fails with ABORTED
// before it is complete.
//
// Files are somebody else's bytes: every table is checked before it is believed, and an error names
// the file, the offset and the reason. Memory is bounded whatever the files say: a cursor takes
// some 70 KiB at most for each file of a chain; lists of snapshots and of bitmaps are refused above
// 64 MiB.
//
// Status codes of everything here, beside what Image::Open() and Image::Read() say:
//   INVALID_ARGUMENT     no qcow2 image; an argument out of range
//   UNIMPLEMENTED        sound, as far as one can see, but with something that is not supported
//   FAILED_PRECONDITION  open for writing elsewhere, or marked as dirty, corrupt, in use
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

// True when a file that begins with these bytes calls itself qcow2: the magic number, which the
// first image format of that name shares. At least four bytes are needed. It says nothing about
// whether the image can be read.
bool LooksLikeQcow2(std::span<const uint8_t> first_bytes) noexcept;

struct Qcow2Options {
  // Opens the backing files too, so that what lies in them counts. Without it, what an image leaves
  // to its backing file is not known: it counts as allocated, and is equal only to itself.
  bool follow_backing = true;

  // Files of a chain at most, the image itself included; 1 .. kMaxQcow2Depth.
  size_t max_depth = 256;

  // Reads an image that qemu has open for writing elsewhere. What qemu has not yet written to the
  // tables is missing from the answer then: only for images that are known to be quiescent.
  bool allow_writer = false;

  // Opens a backing file, whose name an image gives: the path, relative names already resolved
  // against the folder of the image that gives it. Whoever reads images of strangers should refuse
  // here what lies outside of their folders. Default: Image::Open(path, label).
  std::function<absl::StatusOr<std::shared_ptr<const Image>>(const std::string& path,
                                                             const std::string& label)>
      open_backing = nullptr;
};

inline constexpr size_t kMaxQcow2Depth = 4096;

// An internal snapshot as the snapshot table lists it.
struct Qcow2Snapshot {
  std::string id;             // unique within the image, mostly "1", "2", ...
  std::string name;           // the user's; need not be unique
  uint64_t virtual_size = 0;  // bytes
  uint64_t seconds = 0;       // when it was taken, since the epoch
  uint64_t l1_offset = 0;     // where its first-level table lies in the file, bytes
  uint64_t l1_entries = 0;
};

// A persistent dirty bitmap as the bitmap directory lists it.
struct Qcow2Bitmap {
  std::string name;
  uint64_t granularity = 0;  // bytes a bit
  bool in_use = false;       // was not saved: its contents are not to be trusted
  bool enabled = false;      // goes on recording when the image is opened for writing
};

// An opened image and its chain of backing files. Immutable; safe to share between threads.
class Qcow2Image {
 public:
  // Opens the image at `path` and what it is backed by. `label` names the image in error messages,
  // the path if empty; backing files are named by the label of the image and their depth.
  // Backing names that are no paths (json:, nbd:// and the like) and backing formats other than raw
  // and qcow2 are refused. A backing file whose format the image does not give is qcow2 when it has
  // the magic number, refused when it has that of another image format, and raw otherwise.
  // Errors: as above. Cost: reads headers and snapshot tables.
  static absl::StatusOr<std::shared_ptr<const Qcow2Image>> Open(const std::string& path,
                                                                const Qcow2Options& options = {},
                                                                std::string_view label = {});

  // As Open() for a file that is open already; relative backing names are resolved against
  // `folder`.
  static absl::StatusOr<std::shared_ptr<const Qcow2Image>> FromImage(
      std::shared_ptr<const Image> file, const std::string& folder,
      const Qcow2Options& options = {});

  ~Qcow2Image();
  Qcow2Image(const Qcow2Image&) = delete;
  Qcow2Image& operator=(const Qcow2Image&) = delete;

  // Of the active state, in bytes.
  uint64_t virtual_size() const noexcept;
  uint64_t cluster_size() const noexcept;

  // Size in bytes of the least that is allocated for itself: a subcluster where the image has
  // extended entries, else a cluster.
  uint64_t allocation_unit() const noexcept;

  const std::string& label() const noexcept;

  // Files in the chain, this one included; 1 for an image without backing file.
  size_t depth() const noexcept;

  // True when the image names a backing file, whether it was opened or not.
  bool has_backing() const noexcept;

  // In the order of the table, oldest first.
  const std::vector<Qcow2Snapshot>& snapshots() const noexcept;

  // The snapshot with this id or name.
  // Errors: NOT_FOUND; INVALID_ARGUMENT when more than one goes by it.
  absl::StatusOr<Qcow2Snapshot> FindSnapshot(std::string_view id_or_name) const;

  // Reads the bitmap directory. Empty when the image has no bitmaps.
  // Errors: FAILED_PRECONDITION when the image was written to by a program that does not know
  //         bitmaps, so that none of them can be trusted; DATA_LOSS, UNAVAILABLE.
  absl::StatusOr<std::vector<Qcow2Bitmap>> ListBitmaps() const;

  // For the library's own cursors.
  struct Parts;
  const Parts& parts() const noexcept { return *parts_; }

 private:
  explicit Qcow2Image(std::unique_ptr<const Parts> parts);

  const std::unique_ptr<const Parts> parts_;
};

// What a volume held at some time: the active state of an image, or one of its internal snapshots.
struct Qcow2State {
  std::shared_ptr<const Qcow2Image> image;
  std::optional<std::string> snapshot;  // id or name; the active state if none
};

// What `state` holds data for, in its image or in a file below it: clusters that are neither absent
// everywhere nor marked as zeros, and the data ranges of a raw file at the end of the chain.
// Extents are maximal. The capacity is the virtual size of the state, the granularity 1 byte: files
// of a chain have clusters of different sizes, and sizes of their own that cut them.
// Errors: as above, from the factory for what concerns the state as a whole, from Next() for what
//         stands in its tables.
// Cost:   Seek() O(1); Next() reads 8 bytes of table for each cluster, and none where there are no
//         tables; in stretches that an image leaves to its backing file, those of the next one too.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2AllocationCursor(const Qcow2State& state);

// What the image of `state` says by itself, whatever lies below: data, and clusters marked as zeros
// (written so, or discarded). Of an overlay, that is its delta against its backing file, as far as
// both are of one size. As above; the granularity is allocation_unit().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2LayerCursor(const Qcow2State& state);

// Where `target` may differ from `base`, told by where their bytes lie: a range is equal when both
// read it from the same place of the same file, or both read zeros because it is marked so or
// nothing holds it. Anything else is reported, also where the bytes happen to be the same. The
// capacity is the virtual size of `target`; the shorter state counts as followed by zeros. As
// MakeQcow2AllocationCursor() otherwise.
//
// The states share files, or there is nothing to be won: a snapshot of an image against a later one
// or against the active state; an image against an overlay above it; two overlays of one image.
// Whatever they share must have been left alone in between: a file that was written to is read as
// it is now on both sides, so that a base that was written to after an overlay had been made above
// it is no base of it any more. Files are the same when Image::SameFileAs() says so: one that the
// two chains reach by two names (hard links, bind mounts) is another one there, and all that it
// holds is reported.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2DeltaCursor(const Qcow2State& base,
                                                                   const Qcow2State& target);

// The blocks that are set in the dirty bitmap `name` of `image`. Extents are maximal; the capacity
// is the virtual size of the active state, where the last one is cut. Backing files have no part in
// it.
// Errors: NOT_FOUND; FAILED_PRECONDITION when the bitmap was not saved, or as ListBitmaps();
//         UNIMPLEMENTED for a type, flags or data that came after this code; DATA_LOSS.
// Cost:   Seek() O(1); Next() one pass over the bits; nothing for clusters of them that are clear.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2BitmapCursor(
    const std::shared_ptr<const Qcow2Image>& image, std::string_view name);

}  // namespace cbt

#endif  // CBT_SOURCE_QCOW2_H_
