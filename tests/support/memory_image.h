// Image files in memory: real descriptors, real holes (4096 bytes each), no clean-up.
#ifndef CBT_TESTS_SUPPORT_MEMORY_IMAGE_H_
#define CBT_TESTS_SUPPORT_MEMORY_IMAGE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cbt/source/image.h"
#include "tests/support/status.h"

namespace cbt::test {

inline constexpr size_t kHoleBytes = 4096;

class MemoryImage {
 public:
  explicit MemoryImage(uint64_t size) : descriptor_(memfd_create("image", MFD_CLOEXEC)) {
    if (descriptor_ < 0) std::abort();
    Resize(size);
  }
  // The contents, with holes for the pages for which `hole` returns true (they must be zero).
  template <typename IsHole>
  MemoryImage(const std::vector<uint8_t>& contents, IsHole hole) : MemoryImage(contents.size()) {
    for (size_t page = 0; page * kHoleBytes < contents.size(); ++page) {
      if (hole(page)) continue;
      const size_t begin = page * kHoleBytes;
      Write(begin, contents.data() + begin, std::min(kHoleBytes, contents.size() - begin));
    }
  }
  explicit MemoryImage(const std::vector<uint8_t>& contents)
      : MemoryImage(contents, [](size_t) { return false; }) {}
  ~MemoryImage() { close(descriptor_); }
  MemoryImage(const MemoryImage&) = delete;
  MemoryImage& operator=(const MemoryImage&) = delete;

  void Resize(uint64_t size) {
    if (ftruncate(descriptor_, static_cast<off_t>(size)) != 0) std::abort();
  }
  void Write(uint64_t offset, const uint8_t* data, size_t length) {
    if (pwrite(descriptor_, data, length, static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(length)) {
      std::abort();
    }
  }
  void Write(uint64_t offset, const std::string& data) {
    Write(offset, reinterpret_cast<const uint8_t*>(data.data()), data.size());
  }

  std::shared_ptr<const Image> Open() const {
    return ValueOf(Image::Open("/proc/self/fd/" + std::to_string(descriptor_), "image"));
  }

 private:
  const int descriptor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_MEMORY_IMAGE_H_
