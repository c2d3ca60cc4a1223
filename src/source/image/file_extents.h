// Lists of extents as file systems give them, and what can be relied on in them.
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

// An extent of a file, all in bytes; flags as in linux/fiemap.h. Not checked in any way.
struct FileExtent {
  uint64_t logical = 0;
  uint64_t physical = 0;
  uint64_t length = 0;
  uint32_t flags = 0;
};

// Who can be asked for them: the kernel, or what a test recorded. Threads as its implementation.
class ExtentLister {
 public:
  virtual ~ExtentLister() = default;
  ExtentLister(const ExtentLister&) = delete;
  ExtentLister& operator=(const ExtentLister&) = delete;

  // Writes the extents that hold a byte of [begin, end), begin < end, into `out`, from the first
  // on, as many as there is room for.
  // Returns: their number; less than out.size() when there are no more.
  // Errors:  UNIMPLEMENTED when the file system can't tell; UNAVAILABLE.
  virtual absl::StatusOr<size_t> List(uint64_t begin, uint64_t end,
                                      std::span<FileExtent> out) const = 0;

 protected:
  ExtentLister() = default;
};

// Asks the kernel. Safe to share between threads.
std::shared_ptr<const ExtentLister> MakeFiemapLister(std::shared_ptr<const Image> image);

// What is asked for in one call.
inline constexpr size_t kExtentsPerCall = 1024;

// What is known of the bytes [begin, end) of a file.
struct Placement {
  enum class Kind {
    kZeros,    // a hole or unwritten: reads as zeros
    kKnown,    // byte `begin` lies at `physical`, the others behind it
    kUnknown,  // data, but the address proves nothing; `physical` is 0
  };
  uint64_t begin = 0;
  uint64_t end = 0;
  Kind kind = Kind::kZeros;
  uint64_t physical = 0;

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Placements that touch and are maximal, however the extents were cut.
struct PlacementList {
  std::vector<Placement> pieces;
  uint64_t end() const noexcept { return pieces.back().end; }
};

// Where the bytes of a file of `size` bytes are, from `begin` on, at most to `end` (begin < end):
// as far as one call of `lister` tells, more than nothing. Zeros past the size. The end of a list
// is never taken from FIEMAP_EXTENT_LAST: there is none until nothing more is listed.
// Errors: DATA_LOSS that names `label` and the offset when extents are empty, overflow, overlap, or
//         don't belong to what was asked for; those of `lister`.
absl::StatusOr<PlacementList> ReadPlacement(const ExtentLister& lister, std::string_view label,
                                            uint64_t size, uint64_t begin, uint64_t end);

// The first `end` bytes of the volume in `list`; begin of the list < end <= list.end().
PlacementList CutPlacement(const PlacementList& list, uint64_t end);

// True for file systems that answer for what is allocated and not.
bool HasReliableExtents(const Image& image);

// A file and where it lies.
struct PlacedImage {
  std::shared_ptr<const Image> image;
  std::shared_ptr<const ExtentLister> extents;
};

// As those in cbt/source/file_extents.h, with no look at the file systems: `extents` are taken to
// be addresses of the same disk.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementDeltaCursor(
    PlacedImage base, PlacedImage target, const ReflinkDeltaOptions& options);
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementAllocationCursor(
    PlacedImage placed, const ImageOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_FILE_EXTENTS_H_
