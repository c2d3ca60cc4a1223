#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file_io.h"

namespace cbt {
namespace descriptor_test {

TEST(OwnedDescriptor, HoldsAnyNumberFromZeroOn) {
  OwnedDescriptor standard_input(STDIN_FILENO);
  EXPECT_TRUE(standard_input.has_value());
  EXPECT_EQ(standard_input.Release(), STDIN_FILENO);
  EXPECT_FALSE(standard_input.has_value());
  EXPECT_FALSE(OwnedDescriptor(-1).has_value());
}

TEST(OwnedDescriptor, ClosesWhatItHeldAndKeepsErrno) {
  const int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(number, 0);
  OwnedDescriptor held(number);
  errno = ENOENT;
  held = OwnedDescriptor();
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
  // Closing it again fails.
  errno = ENOENT;
  { const OwnedDescriptor closed(number); }
  EXPECT_EQ(errno, ENOENT);
}

// A stale errno must not make a read at the end of a file repeat forever.
TEST(Retry, EndsWithAnyResultButAnInterruption) {
  for (const int result : {0, 5}) {
    int calls = 0;
    errno = EINTR;
    EXPECT_EQ(Retry([&] { return ++calls < 10 ? result : -2; }), result);
    EXPECT_EQ(calls, 1);
  }
  int calls = 0;
  EXPECT_EQ(Retry([&] {
              errno = EINTR;
              return ++calls < 3 ? -1 : 7;
            }),
            7);
  EXPECT_EQ(calls, 3);
  errno = EIO;
  EXPECT_EQ(Retry([] { return -1; }), -1);
}

}  // namespace descriptor_test
}  // namespace cbt
