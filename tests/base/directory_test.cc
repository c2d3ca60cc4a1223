// Directories, and claims of those in file systems that can't lock directories, as NFS.
#include "base/directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace directory_test {

// What flock() of a directory fails with; 0: it works.
std::atomic<int> refusal = 0;

}  // namespace directory_test
}  // namespace cbt

// Takes the place of the C library's.
extern "C" int flock(int descriptor, int operation) noexcept {
  struct stat status = {};
  const int error = cbt::directory_test::refusal;
  if (error != 0 && fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace cbt {
namespace directory_test {

using Code = absl::StatusCode;
using Names = std::vector<std::string>;

class Refusal {
 public:
  explicit Refusal(int error) { refusal = error; }
  ~Refusal() { refusal = 0; }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
};

// Files can be opened, made and removed in it, but not listed.
TEST(DirectoryTest, ThatMayNotBeReadCanBeUsed) {
  const test::TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0333), 0);
  // The permissions of the superuser's files hold for others only.
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  absl::StatusOr<Directory> directory = Directory::Open(dir.path());
  if (directory.ok()) {
    EXPECT_EQ(::mknodat(directory->descriptor(), "file", S_IFREG | 0600, 0), 0);
    errno = EIO;
    EXPECT_TRUE(directory->Remove("file"));
    EXPECT_EQ(::faccessat(directory->descriptor(), "file", F_OK, 0), -1);
  }
  if (user == 0) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  EXPECT_OK(directory);
}

TEST(DirectoryTest, RemovesWhatIsThere) {
  const test::TempDir dir;
  const Directory directory = test::ValueOf(Directory::Open(dir.path()));
  ASSERT_EQ(::mkdirat(directory.descriptor(), "folder", 0700), 0);
  EXPECT_TRUE(directory.Remove("nothing"));
  EXPECT_FALSE(directory.Remove("folder"));
  EXPECT_EQ(dir.Names(), Names{"folder"});
}

TEST(DirectoryClaim, IsOnAFileWhereDirectoriesCantBeLocked) {
  for (const int error : {EBADF, EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP}) {
    SCOPED_TRACE(error);
    const Refusal refused(error);
    const test::TempDir dir;
    const Directory directory = test::ValueOf(Directory::Open(dir.path()));
    auto claim = test::ValueOf(DirectoryClaim::Take(directory));
    EXPECT_EQ(dir.Names(), Names{"LOCK"});
    EXPECT_OK(claim->Check());
    EXPECT_EQ(DirectoryClaim::Take(directory).status().code(), Code::kUnavailable);
    EXPECT_OK(claim->Check());
    // Another process could claim the directory by another file.
    std::filesystem::remove(dir / "LOCK");
    EXPECT_EQ(claim->Check().code(), Code::kAborted);
    const auto another = test::ValueOf(DirectoryClaim::Take(directory));
    EXPECT_OK(another->Check());
    EXPECT_EQ(claim->Check().code(), Code::kAborted);
    claim.reset();
    EXPECT_OK(another->Check());
  }
}

TEST(DirectoryClaim, IsOnTheDirectoryItselfWhereItCanBe) {
  const test::TempDir dir;
  const Directory directory = test::ValueOf(Directory::Open(dir.path()));
  auto claim = test::ValueOf(DirectoryClaim::Take(directory));
  EXPECT_EQ(dir.Names(), Names{});
  EXPECT_OK(claim->Check());
  EXPECT_EQ(DirectoryClaim::Take(directory).status().code(), Code::kUnavailable);
  claim.reset();
  EXPECT_OK(DirectoryClaim::Take(directory));
  const Refusal refused(EIO);
  EXPECT_EQ(DirectoryClaim::Take(directory).status(),
            absl::UnavailableError(dir.path() + ": Input/output error"));
  EXPECT_EQ(dir.Names(), Names{});
}

}  // namespace directory_test
}  // namespace cbt
