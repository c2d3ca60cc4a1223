#include "base/holes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

#include "base/descriptor.h"

namespace cbt {
namespace holes_test {

// What is not on the disk yet would be left out, so that such a file is written there first.
TEST(HolesTest, SHXfsBeforeLinux69SkipsUnwrittenData) {
  constexpr uint64_t kXfs = 0x58465342;
  for (const char* release : {"6.8.0-31-generic", "6.8", "5.14.0-503.el9.x86_64", "4.18.0", "6.1.0",
                              "", "6", "x.y", "6.", "unknown"}) {
    EXPECT_TRUE(SkipsUnwrittenData(kXfs, release)) << release;
    EXPECT_FALSE(SkipsUnwrittenData(0xef53, release)) << "ext4, " << release;
  }
  for (const char* release : {"6.9.0", "6.9-rc1", "6.10.3", "6.18.44-fc", "7.0", "10.1.2"}) {
    EXPECT_FALSE(SkipsUnwrittenData(kXfs, release)) << release;
  }
}

TEST(HolesTest, SHHolesOfAFileSystemThatCantBeAskedAreNotTrusted) {
  EXPECT_TRUE(SkipsUnwrittenData(-1));
}

// Files in memory have no data that waits for a disk.
TEST(HolesTest, FilesInMemoryAreTrusted) {
  const OwnedDescriptor file(memfd_create("holes", MFD_CLOEXEC));
  ASSERT_TRUE(file.has_value());
  EXPECT_FALSE(SkipsUnwrittenData(file.number()));
}

}  // namespace holes_test
}  // namespace cbt
