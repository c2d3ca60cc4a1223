// Lists of extents as file systems report them, and how far they can be trusted.
#ifndef CBT_SOURCE_IMAGE_FILE_EXTENTS_H_
#define CBT_SOURCE_IMAGE_FILE_EXTENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/file_extents.h"
#include "cbt/source/image.h"

namespace cbt {

// An extent of a file, in bytes; flags as in linux/fiemap.h. Unchecked.
struct FileExtent {
  uint64_t logical = 0;
  uint64_t physical = 0;
  uint64_t length = 0;
  uint32_t flags = 0;
};

// A source of extents: the kernel, or a recording in a test. Thread safety depends on the
// implementation.
class ExtentLister {
 public:
  virtual ~ExtentLister() = default;
  ExtentLister(const ExtentLister&) = delete;
  ExtentLister& operator=(const ExtentLister&) = delete;

  // Writes the extents that overlap [begin, end), begin < end, to `out`, in order, as many as fit.
  // Returns: their number; less than out.size() if there are no more.
  // Errors:  UNIMPLEMENTED if the file system does not support it; UNAVAILABLE.
  virtual absl::StatusOr<size_t> List(uint64_t begin, uint64_t end,
                                      std::span<FileExtent> out) const = 0;

 protected:
  ExtentLister() = default;
};

// Asks the kernel. Safe to share between threads.
std::shared_ptr<const ExtentLister> MakeFiemapLister(std::shared_ptr<const Image> image);

// The number of extents per call.
inline constexpr size_t kExtentsPerCall = 1024;

// What is known about the bytes [begin, end) of a file.
struct Placement {
  enum class Kind {
    kZeros,    // a hole or unwritten: reads as zeros
    kKnown,    // byte `begin` lies at `physical`, the others follow
    kUnknown,  // data, but the address proves nothing; `physical` is 0
  };
  uint64_t begin = 0;
  uint64_t end = 0;
  Kind kind = Kind::kZeros;
  uint64_t physical = 0;

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Adjacent, maximal placements, however the extents were split.
struct PlacementList {
  std::vector<Placement> pieces;
  uint64_t end() const noexcept { return pieces.back().end; }
};

// Where the bytes of a file of `size` bytes lie, from `begin` to at most `end` (begin < end): as
// far as one call of `lister` reports, at least one byte. Zeros past the size. FIEMAP_EXTENT_LAST
// never ends a list by itself: it ends when nothing more is listed.
// Errors: DATA_LOSS naming `label` and the offset if extents are empty, overflow, overlap, or lie
//         outside of the request; those of `lister`.
absl::StatusOr<PlacementList> ReadPlacement(const ExtentLister& lister, std::string_view label,
                                            uint64_t size, uint64_t begin, uint64_t end);

// The part of `list` below `end` (bytes). begin of the list < end <= list.end().
PlacementList CutPlacement(const PlacementList& list, uint64_t end);

// True for file systems with reliable answers about what is allocated.
bool HasReliableExtents(const Image& image);

// A file and its extents.
struct PlacedImage {
  std::shared_ptr<const Image> image;
  std::shared_ptr<const ExtentLister> extents;
};

// As in cbt/source/file_extents.h, but without checking the file systems: all addresses are assumed
// to be on one disk.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementDeltaCursor(
    PlacedImage base, PlacedImage target, const ReflinkDeltaOptions& options);
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementAllocationCursor(
    PlacedImage placed, const ImageOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_FILE_EXTENTS_H_
