// Copies of sparse files: whole clones, and ranges without their holes; and what both need.
#ifndef CBT_PROGRAMS_VOLUME_FILE_COPY_H_
#define CBT_PROGRAMS_VOLUME_FILE_COPY_H_

#include <cstdint>
#include <span>

#include "cbt/extent.h"

namespace cbt::volume {

// Makes the file `to` a clone of `from` that shares its blocks (FICLONE). Returns 0 or an error
// number.
int CloneFile(int from, int to) noexcept;

// True for the errors of file systems, and of pairs of files, that can't be cloned.
bool CannotClone(int error) noexcept;

// What the target of a copy reads as before.
enum class CopyTarget : uint8_t { kZeros, kAnything };

// Makes the bytes of `range` in `to` equal to those in `from`. Holes stay holes if `to` reads as
// zeros there; where the file system reports none, everything is copied. Returns 0 or an error
// number.
int CopyRange(int from, int to, Extent range, CopyTarget target) noexcept;

// Releases the space of the range, which reads as zeros then. Returns 0 or an error number.
int PunchHole(int file, Extent range) noexcept;

// Writes zeros to the range. Returns 0 or an error number.
int WriteZeros(int file, Extent range) noexcept;

// Makes the bytes of `range` in `to` equal to those in `from`, whatever `to` has: holes become
// holes where that is possible. `from` has `size` bytes; what is beyond them reads as zeros.
// Returns 0 or an error number.
int RestoreRange(int from, uint64_t size, int to, Extent range) noexcept;

// True for the errors of file systems that can't allocate or release parts of a file.
bool CannotAllocate(int error) noexcept;

// Writes all of `bytes` at `offset`. Returns 0 or an error number.
int WriteAt(int file, std::span<const uint8_t> bytes, uint64_t offset) noexcept;

// The part of `range` that begins with it and is data or a hole throughout.
struct DataRun {
  uint64_t end = 0;  // bytes
  bool hole = false;
};
// Requires: range.length > 0. Returns 0 or an error number.
int FindRun(int file, Extent range, DataRun& run) noexcept;

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_FILE_COPY_H_
