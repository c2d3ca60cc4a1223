// Files on real file systems, and what users do to them.
#ifndef CBT_TESTS_SUPPORT_REAL_FILE_H_
#define CBT_TESTS_SUPPORT_REAL_FILE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cbt/source/image.h"
#include "cbt/units.h"
#include "tests/reference/volume.h"
#include "tests/support/status.h"

namespace cbt::test {

inline constexpr size_t kScribbledSize = 6 * kMiB + 5000;

// A descriptor open for writing, closed on destruction.
class RealFile {
 public:
  explicit RealFile(const std::string& path) : path_(path) {
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) std::abort();
  }
  ~RealFile() { close(descriptor_); }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  int descriptor() const { return descriptor_; }
  void Write(size_t offset, const std::vector<uint8_t>& data) const {
    EXPECT_EQ(pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(data.size()));
  }
  void Resize(size_t size) const { EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(size)), 0); }
  bool Allocate(int mode, size_t offset, size_t length) const {
    return fallocate(descriptor_, mode, static_cast<off_t>(offset), static_cast<off_t>(length)) ==
           0;
  }
  std::vector<uint8_t> Bytes() const {
    struct stat stat;
    EXPECT_EQ(fstat(descriptor_, &stat), 0);
    std::vector<uint8_t> bytes(static_cast<size_t>(stat.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count =
          pread(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (count <= 0) std::abort();
      done += static_cast<size_t>(count);
    }
    return bytes;
  }
  std::shared_ptr<const Image> Open() const { return ValueOf(Image::Open(path_)); }

 private:
  const std::string path_;
  int descriptor_;
};

inline std::vector<uint8_t> RandomData(size_t size, bool compressible, std::mt19937_64& random) {
  std::vector<uint8_t> data(size);
  const auto fill = static_cast<uint8_t>(random());
  for (uint8_t& byte : data) byte = compressible ? fill : static_cast<uint8_t>(random());
  return data;
}

// Any operation that users perform; ranges are cloned from `other`.
inline void Scribble(const RealFile& file, const RealFile& other, size_t operations,
                     std::mt19937_64& random) {
  for (size_t i = 0; i < operations; ++i) {
    const size_t offset = random() % (kScribbledSize - (1 << 17));
    const size_t length = 1 + random() % (random() % 3 == 0 ? 90'000 : 9000);
    const size_t block = offset / 4096 * 4096;
    const size_t blocks = (length + 4095) / 4096 * 4096;
    switch (random() % 7) {
      case 0:
        file.Allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, length);
        break;
      case 1:
        file.Allocate(FALLOC_FL_ZERO_RANGE, offset, length);  // preallocated without data
        break;
      case 2:
        file.Allocate(0, offset, length);
        break;
      case 3: {
        file_clone_range range = {};
        range.src_fd = other.descriptor();
        range.src_offset = block;
        range.src_length = blocks;
        range.dest_offset = random() % (kScribbledSize - (1 << 17)) / 4096 * 4096;
        ioctl(file.descriptor(), FICLONERANGE, &range);
        break;
      }
      default:
        file.Write(offset, RandomData(length, random() % 2 == 0, random));
    }
  }
}

inline uint64_t BytesIn(const reference::ByteSet& set) {
  return static_cast<uint64_t>(std::count(set.begin(), set.end(), true));
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_REAL_FILE_H_
