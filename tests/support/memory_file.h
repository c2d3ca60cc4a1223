// A file with a path but without a file system: nothing reaches a disk, so it can be written a
// million times.
#ifndef CBT_TESTS_SUPPORT_MEMORY_FILE_H_
#define CBT_TESTS_SUPPORT_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"

namespace cbt::test {

class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("file", MFD_CLOEXEC)) {
    if (descriptor_ < 0) std::abort();
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // A path that is valid in this process.
  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

  // Replaces the contents.
  void Write(std::span<const uint8_t> bytes) const {
    if (pwrite(descriptor_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
        ftruncate(descriptor_, static_cast<off_t>(bytes.size())) != 0) {
      std::abort();
    }
  }

 private:
  const int descriptor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_MEMORY_FILE_H_
