// Opening files below a directory that nothing can lead out of.
#ifndef CBT_SOURCE_DIRECTORY_BENEATH_H_
#define CBT_SOURCE_DIRECTORY_BENEATH_H_

#include <string>

namespace cbt {

// Opens `path` (relative) below the directory `root` with open(2)'s `flags`, as openat2(2) with
// RESOLVE_BENEATH does: `..` and symbolic links work as long as they stay below the root and fail
// with EXDEV where they don't. Where the kernel has no openat2, symbolic links fail with ELOOP and
// `..` with EXDEV, wherever they point.
// Returns: a descriptor that the caller owns, or -1 with errno set.
int OpenBeneath(int root, const std::string& path, int flags);

// The second way alone, for its test.
int OpenBeneathStepwise(int root, const std::string& path, int flags);

// True for the errors of both that say: there is nothing of that name below the root. All others
// may pass.
bool IsAbsent(int error) noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_BENEATH_H_
