// Where SEEK_DATA and SEEK_HOLE are not to be trusted.
#ifndef CBT_BASE_HOLES_H_
#define CBT_BASE_HOLES_H_

#include <cstdint>
#include <string_view>

namespace cbt {

// Whether SEEK_DATA skips data that has not reached the disk, on a file system with this magic
// number (statfs(2)) and a kernel of this release (uname(2)): XFS did until Linux 6.9, where a hole
// that clones share had been overwritten. True where a release can't be read.
bool SkipsUnwrittenData(uint64_t magic, std::string_view release) noexcept;

// The same for an open file on this system; true where its file system can't be asked. What is on
// the disk is found in any case.
bool SkipsUnwrittenData(int file) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_HOLES_H_
