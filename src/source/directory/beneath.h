// Opens files below a directory without ever leaving it.
#ifndef CBT_SOURCE_DIRECTORY_BENEATH_H_
#define CBT_SOURCE_DIRECTORY_BENEATH_H_

#include <string>

namespace cbt {

// Opens `path` (relative) below the directory `root` with open(2)'s `flags`, as openat2(2) does
// with RESOLVE_BENEATH: `..` and symbolic links work as long as they stay below the root and fail
// with EXDEV otherwise. On kernels without openat2, symbolic links always fail with ELOOP and `..`
// with EXDEV.
// Returns: a descriptor owned by the caller, or -1 with errno set.
int OpenBeneath(int root, const std::string& path, int flags);

// The fallback alone, for its test.
int OpenBeneathStepwise(int root, const std::string& path, int flags);

// True for errors of both that mean that there is no such name below the root. All others may be
// transient.
bool IsAbsent(int error) noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_BENEATH_H_
