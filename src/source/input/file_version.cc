#include "source/input/file_version.h"

#include <sys/stat.h>

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace cbt {

DataVersion FileVersion(int descriptor) {
  struct stat stat;
  if (::fstat(descriptor, &stat) != 0) return {.of_place = true};
  if (S_ISBLK(stat.st_mode)) {
    return {.text = absl::StrCat("device:", uint64_t{stat.st_rdev}, ";"), .of_place = true};
  }
  return {.text = absl::StrCat("file:", uint64_t{stat.st_dev}, ":", uint64_t{stat.st_ino}, ":",
                               stat.st_size, ":", stat.st_mtim.tv_sec, ".", stat.st_mtim.tv_nsec,
                               ":", stat.st_ctim.tv_sec, ".", stat.st_ctim.tv_nsec, ";")};
}

}  // namespace cbt
