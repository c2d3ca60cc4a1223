// Raw volume images as change sources: what differs between two of them, and where one may hold
// data. Part of cbt::source.
//
// Images are read with pread in large chunks, several of them at once when an executor is given;
// holes are found with SEEK_DATA and SEEK_HOLE and never read. An image must not change while a
// cursor reads it. A cursor that sees that a file did (it got shorter or longer, or was written to)
// fails with ABORTED before it is complete. Nobody can see that a block device was written to.
#ifndef CBT_SOURCE_IMAGE_H_
#define CBT_SOURCE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"

namespace cbt {

// A regular file or block device opened for reading. Immutable; safe to share between threads.
class Image {
 public:
  // Opens the file at `path`. `label` names the image in error messages, the path if empty; a
  // server gives the snapshot's id, so that clients don't learn its paths.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory, a pipe, ...), UNAVAILABLE.
  static absl::StatusOr<std::shared_ptr<const Image>> Open(const std::string& path,
                                                           std::string_view label = {});

  // As Open() for a descriptor that is open for reading; takes it over, also on failure.
  static absl::StatusOr<std::shared_ptr<const Image>> FromDescriptor(int descriptor,
                                                                     std::string_view label);

  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Size in bytes when it was opened.
  uint64_t size() const noexcept { return size_; }
  const std::string& label() const noexcept { return label_; }
  int descriptor() const noexcept { return descriptor_; }

  // True when both are surely the same file, so that they can't differ: one block device, or
  // regular files of one device and inode number, not touched between the times they were opened,
  // that the kernel finds under one path. Numbers alone don't tell: where snapshots are seen
  // through NFS or virtiofs, or in a bcachefs, a file and its older state have the same ones. False
  // proves nothing: of a file with two names, or one that was deleted, it can't be told, and the
  // bytes have to decide.
  bool SameFileAs(const Image& other) const noexcept;

  // True for one block device, and when device and inode number are equal: the same file, or two
  // that can't be told apart by them. For what is refused when in doubt; what is left out needs
  // SameFileAs().
  bool MayBeSameFileAs(const Image& other) const noexcept;

  // Reads the bytes [offset, offset + length) into `out`; what lies past size() reads as zeros.
  // Errors: ABORTED when the file has become shorter than size(), UNAVAILABLE when reading fails.
  absl::Status Read(uint64_t offset, size_t length, uint8_t* out) const;

  // The first range [begin, end) at or after `offset` that may hold data, cut at size(); an empty
  // range at size() when there is none, and nowhere else. Everything is data where holes can't be
  // told apart.
  // Errors: UNAVAILABLE when the file system fails.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  absl::StatusOr<Range> FindData(uint64_t offset) const;

  // OK while the file still has the size and the modification time it had when it was opened, and
  // always for a block device, which has no time that would tell.
  // Errors: ABORTED, UNAVAILABLE.
  absl::Status CheckUnchanged() const;

 private:
  struct Identity;
  Image(int descriptor, std::string label, uint64_t size, std::unique_ptr<Identity> identity);

  const int descriptor_;
  const std::string label_;
  const uint64_t size_;
  const std::unique_ptr<const Identity> identity_;
};

struct ImageOptions {
  // Granularity of the answer in bytes: a power of two, 512 bytes to 64 MiB.
  uint64_t block_size = 4096;

  // Where chunks are read and compared, ahead of the consumer. Without one, Next() reads by itself.
  // Must outlive the cursor and must not be the executor that runs Next(): a Next() that waits
  // there for its own chunks could wait for ever.
  Executor* executor = nullptr;

  // Chunks (1 MiB of volume each) that are read ahead at most. Costs two buffers of that size for
  // each thread of the executor that is at work, and nothing for a cursor that nobody reads.
  size_t chunks_in_flight = 4;

  // Trusts the file system about holes. Without it every byte is read.
  bool skip_holes = true;

  // MakeImageAllocationCursor only: also leaves out blocks that hold nothing but zeros, which costs
  // reading the image.
  bool skip_zeros = false;
};

inline constexpr uint64_t kMinImageBlockSize = 512;
inline constexpr uint64_t kMaxImageBlockSize = uint64_t{64} << 20;

// OK for a block size (bytes) that images can be read with, else INVALID_ARGUMENT.
absl::Status CheckImageBlockSize(uint64_t block_size);

// The blocks in which `target` differs from `base`. The capacity is the target's size; the shorter
// image counts as followed by zeros, and nothing is reported past the target's end. Extents are
// maximal; the last one is cut at the capacity.
// Errors: INVALID_ARGUMENT for options out of range. From Next(): those of Image::Read() and
//         Image::CheckUnchanged(), RESOURCE_EXHAUSTED when a reading thread has no memory.
// Cost:   reads what is data in either image, once; Seek() O(1).
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeImageDeltaCursor(
    std::shared_ptr<const Image> base, std::shared_ptr<const Image> target,
    const ImageOptions& options = {});

// The blocks of `image` that are not holes. As above; reads no data unless options.skip_zeros.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeImageAllocationCursor(
    std::shared_ptr<const Image> image, const ImageOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_H_
