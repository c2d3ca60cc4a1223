// Raw volume images as change sources: what differs between two of them, and where one may hold
// data. Part of cbt::source.
//
// Images are read with pread in large chunks, several at once if an executor is given; holes are
// found with SEEK_DATA and SEEK_HOLE and never read. An image must not change while a cursor reads
// it. A cursor that detects a change of a file (Image::CheckUnchanged) fails with ABORTED before it
// is complete. Writes to a block device can't be detected.
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
#include "cbt/units.h"

namespace cbt {

// A regular file or block device opened for reading. Immutable; safe to share between threads.
class Image {
 public:
  // Opens the file at `path`. `label` names the image in error messages, the path if empty; a
  // server passes the snapshot's id, so that clients don't learn its paths.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory, a pipe, ...),
  //         RESOURCE_EXHAUSTED (descriptors, memory), UNAVAILABLE.
  static absl::StatusOr<std::shared_ptr<const Image>> Open(const std::string& path,
                                                           std::string_view label = {});

  // As Open() for a descriptor open for reading; takes ownership, also on failure.
  static absl::StatusOr<std::shared_ptr<const Image>> FromDescriptor(int descriptor,
                                                                     std::string_view label);

  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Size in bytes when it was opened.
  uint64_t size() const noexcept { return size_; }
  const std::string& label() const noexcept { return label_; }
  int descriptor() const noexcept { return descriptor_; }

  // True only if both are certainly the same file, so that they can't differ: one block device, or
  // regular files with one device and inode number, not modified between the times they were
  // opened, that the kernel finds under one path. The numbers alone prove nothing: when snapshots
  // are seen through NFS or virtiofs, or on bcachefs, a file and its older state share them. False
  // proves nothing either: for a file with two names, or a deleted one, the bytes have to decide.
  bool SameFileAs(const Image& other) const noexcept;

  // True for one block device, and if device and inode number are equal: the same file, or two that
  // the numbers can't distinguish. Use this to refuse when in doubt; to leave something out, use
  // SameFileAs().
  bool MayBeSameFileAs(const Image& other) const noexcept;

  // Reads the bytes [offset, offset + length) into `out`; bytes past size() read as zeros.
  // Errors: ABORTED when the file has become shorter than size(), UNAVAILABLE when reading fails.
  absl::Status Read(uint64_t offset, size_t length, uint8_t* out) const;

  // The first range [begin, end) at or after `offset` that may hold data, cut at size(); an empty
  // range at size() if no data follows, and only then. Everything is data if the file system can't
  // report holes.
  // Errors: UNAVAILABLE when the file system fails.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  absl::StatusOr<Range> FindData(uint64_t offset) const;

  // OK while the file has the size, the modification time and the change time that it had when it
  // was opened; always OK for a block device, which has no such times. A new name, another link and
  // other attributes change the change time too; it does not count once a name was removed.
  //
  // What leaves no trace: a write in the tick of the file system's clock in which the file was last
  // changed before it was opened (milliseconds; not from Linux 6.13 on, on ext4, XFS, btrfs and
  // tmpfs), and stores to a shared mapping into pages that were already dirty.
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

  // Reads and compares chunks ahead of the consumer. Without one, Next() reads. Must outlive the
  // cursor and must not be the executor that runs Next(), which could then wait for its own chunks
  // forever.
  Executor* executor = nullptr;

  // The most chunks (1 MiB of the volume each) to read ahead. Costs two buffers of that size per
  // busy thread of the executor, and nothing for a cursor that is not being read.
  size_t chunks_in_flight = 4;

  // The most chunks that the kernel is asked to fetch before they are read (posix_fadvise), of both
  // images side by side, the chunks in flight included. Begins once a read has waited for the
  // storage. These requests need no thread, so a few threads keep storage busy that takes long to
  // answer. Costs page cache; images that are read around it are never asked for. 0: asks for
  // nothing.
  size_t chunks_ahead = 8;

  // Trusts the file system about holes. Without it every byte is read.
  bool skip_holes = true;

  // MakeImageAllocationCursor() only: also leaves out blocks that hold only zeros, which requires
  // reading the image.
  bool skip_zeros = false;
};

inline constexpr uint64_t kMinImageBlockSize = 512;
inline constexpr uint64_t kMaxImageBlockSize = 64 * kMiB;

// OK for a block size (bytes) that images support, else INVALID_ARGUMENT.
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
