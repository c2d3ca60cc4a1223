// Folders, and claims of those in file systems that can't lock folders, as NFS.
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
namespace folder_test {

// What flock() of a folder fails with; 0: it works.
std::atomic<int> refusal = 0;

}  // namespace folder_test
}  // namespace cbt

// Takes the place of the C library's.
extern "C" int flock(int descriptor, int operation) noexcept {
  struct stat status = {};
  const int error = cbt::folder_test::refusal;
  if (error != 0 && fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace cbt {
namespace folder_test {

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
TEST(FolderTest, ThatMayNotBeReadCanBeUsed) {
  const test::TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0333), 0);
  // The permissions of the superuser's files hold for others only.
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  absl::StatusOr<Folder> folder = Folder::Open(dir.path());
  if (folder.ok()) {
    EXPECT_EQ(::mknodat(folder->descriptor(), "file", S_IFREG | 0600, 0), 0);
    errno = EIO;
    EXPECT_TRUE(folder->Remove("file"));
    EXPECT_EQ(::faccessat(folder->descriptor(), "file", F_OK, 0), -1);
  }
  if (user == 0) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  EXPECT_OK(folder);
}

TEST(FolderTest, RemovesWhatIsThere) {
  const test::TempDir dir;
  const Folder folder = test::ValueOf(Folder::Open(dir.path()));
  ASSERT_EQ(::mkdirat(folder.descriptor(), "folder", 0700), 0);
  EXPECT_TRUE(folder.Remove("nothing"));
  EXPECT_FALSE(folder.Remove("folder"));
  EXPECT_EQ(dir.Names(), Names{"folder"});
}

TEST(FolderClaim, IsOnAFileWhereFoldersCantBeLocked) {
  for (const int error : {EBADF, EINVAL, ENOLCK, ENOSYS, EOPNOTSUPP}) {
    SCOPED_TRACE(error);
    const Refusal refused(error);
    const test::TempDir dir;
    const Folder folder = test::ValueOf(Folder::Open(dir.path()));
    auto claim = test::ValueOf(FolderClaim::Take(folder));
    EXPECT_EQ(dir.Names(), Names{"LOCK"});
    EXPECT_OK(claim->Check());
    EXPECT_EQ(FolderClaim::Take(folder).status().code(), Code::kUnavailable);
    EXPECT_OK(claim->Check());
    // Another process could claim the folder by another file.
    std::filesystem::remove(dir / "LOCK");
    EXPECT_EQ(claim->Check().code(), Code::kAborted);
    const auto another = test::ValueOf(FolderClaim::Take(folder));
    EXPECT_OK(another->Check());
    EXPECT_EQ(claim->Check().code(), Code::kAborted);
    claim.reset();
    EXPECT_OK(another->Check());
  }
}

TEST(FolderClaim, IsOnTheFolderItselfWhereItCanBe) {
  const test::TempDir dir;
  const Folder folder = test::ValueOf(Folder::Open(dir.path()));
  auto claim = test::ValueOf(FolderClaim::Take(folder));
  EXPECT_EQ(dir.Names(), Names{});
  EXPECT_OK(claim->Check());
  EXPECT_EQ(FolderClaim::Take(folder).status().code(), Code::kUnavailable);
  claim.reset();
  EXPECT_OK(FolderClaim::Take(folder));
  const Refusal refused(EIO);
  EXPECT_EQ(FolderClaim::Take(folder).status(),
            absl::UnavailableError(dir.path() + ": Input/output error"));
  EXPECT_EQ(dir.Names(), Names{});
}

}  // namespace folder_test
}  // namespace cbt
