#include "cbt/source/image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cbt/units.h"
#include "tests/support/memory_image.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace image_test {

using test::ValueOf;

using absl::StatusCode;

TEST(ImageTest, RefusesWhatIsNoImageAndSaysWhy) {
  const test::TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  dir.Write("file", "x");
  const struct {
    std::string path;
    StatusCode code;
    const char* text;
  } cases[] = {
      {dir / "missing", StatusCode::kNotFound, "missing: No such file"},
      {dir / "file/below", StatusCode::kNotFound, "Not a directory"},
      {dir.path(), StatusCode::kInvalidArgument, "is a directory"},
      {dir / "pipe", StatusCode::kInvalidArgument, "neither a regular file"},
      {std::string("/dev/null"), StatusCode::kInvalidArgument, "neither a regular file"},
      {std::string("a\0b", 3), StatusCode::kInvalidArgument, "NUL"},
      {std::string(5000, 'x'), StatusCode::kInvalidArgument, "too long"},
  };
  for (const auto& c : cases) {
    const auto image = Image::Open(c.path);
    ASSERT_EQ(image.status().code(), c.code) << image.status();
    EXPECT_NE(std::string(image.status().message()).find(c.text), std::string::npos)
        << image.status();
  }
  EXPECT_EQ(Image::Open(dir / "missing", "vol/snap").status().message(),
            "open: vol/snap: No such file or directory");
}

TEST(ImageTest, ReadsZerosPastTheEndAndFailsWhereBytesAreMissing) {
  test::MemoryImage file(std::vector<uint8_t>(100, 7));
  const auto image = file.Open();
  EXPECT_EQ(image->size(), 100u);
  uint8_t bytes[8];
  ASSERT_OK(image->Read(96, 8, bytes));
  EXPECT_EQ(bytes[3], 7);
  EXPECT_EQ(bytes[4], 0);
  ASSERT_OK(image->Read(kGiB, 8, bytes));
  EXPECT_EQ(bytes[0], 0);
  file.Resize(98);
  EXPECT_EQ(image->Read(96, 8, bytes).code(), StatusCode::kAborted);
  EXPECT_EQ(image->Read(0, 8, bytes).code(), StatusCode::kOk);
}

TEST(ImageTest, ErrorOfTheDeviceIsAnError) {
  const test::TempDir dir;
  dir.Write("file", "contents");
  const auto image = Image::FromDescriptor(open((dir / "file").c_str(), O_WRONLY), "label");
  ASSERT_OK(image);
  uint8_t bytes[8];
  const absl::Status status = (*image)->Read(0, 8, bytes);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "read: label: 8 bytes at offset 0: Bad file descriptor");
}

TEST(ImageTest, FindsDataBetweenHoles) {
  test::MemoryImage file(10 * test::kHoleBytes + 5);
  file.Write(3 * test::kHoleBytes + 10, "data");
  file.Write(10 * test::kHoleBytes, "tail");
  const auto image = file.Open();
  ASSERT_OK_AND_ASSIGN(auto range, image->FindData(0));
  EXPECT_EQ(range.begin, 3 * test::kHoleBytes);
  EXPECT_EQ(range.end, 4 * test::kHoleBytes);
  ASSERT_OK_AND_ASSIGN(range, image->FindData(3 * test::kHoleBytes + 100));
  EXPECT_EQ(range.begin, 3 * test::kHoleBytes + 100);
  ASSERT_OK_AND_ASSIGN(range, image->FindData(4 * test::kHoleBytes));
  EXPECT_EQ(range.begin, 10 * test::kHoleBytes);
  EXPECT_EQ(range.end, image->size());
  for (const uint64_t offset : {image->size(), image->size() + 1, UINT64_MAX}) {
    ASSERT_OK_AND_ASSIGN(range, image->FindData(offset));
    EXPECT_EQ(range.begin, image->size());
    EXPECT_EQ(range.end, image->size());
  }
}

// Asked again for each part of a file, tmpfs would look at every page up to the hole each time.
TEST(ImageTest, LooksOnceForTheEndOfData) {
  test::MemoryImage file(std::vector<uint8_t>(8 * test::kHoleBytes, 1));
  const auto image = file.Open();
  ASSERT_OK_AND_ASSIGN(auto range, image->FindData(test::kHoleBytes));
  EXPECT_EQ(range.end, image->size());
  // A hole that comes later shows whether the file system is asked: what was data stays data.
  file.Resize(2 * test::kHoleBytes);
  file.Resize(8 * test::kHoleBytes);
  ASSERT_OK_AND_ASSIGN(range, image->FindData(4 * test::kHoleBytes));
  EXPECT_EQ(range.begin, 4 * test::kHoleBytes);
  EXPECT_EQ(range.end, image->size());
  ASSERT_OK_AND_ASSIGN(range, image->FindData(0));
  EXPECT_EQ(range.begin, 0);
  EXPECT_EQ(range.end, 2 * test::kHoleBytes);
}

TEST(ImageTest, NoticesEveryKindOfChange) {
  test::MemoryImage file(1000);
  const auto image = file.Open();
  EXPECT_OK(image->CheckUnchanged());
  file.Resize(1001);
  EXPECT_EQ(image->CheckUnchanged().code(), StatusCode::kAborted);
  file.Resize(999);
  EXPECT_EQ(image->CheckUnchanged().code(), StatusCode::kAborted);
  const auto again = file.Open();
  usleep(20'000);  // file time stamps are coarse
  file.Write(10, "x");
  EXPECT_EQ(again->CheckUnchanged().code(), StatusCode::kAborted);
}

// As restoring and copying programs do it.
TEST(ImageTest, SDAWriteWhoseTimeWasPutBackIsNoticed) {
  const test::TempDir dir;
  for (const std::string& path :
       {dir / "on-disk", std::string("/dev/shm/cbt-image-test-") + std::to_string(getpid())}) {
    SCOPED_TRACE(path);
    std::ofstream(path) << std::string(8192, 'a');
    usleep(20'000);  // file time stamps are coarse
    const auto opened = Image::Open(path);
    if (absl::IsNotFound(opened.status())) continue;  // no /dev/shm
    ASSERT_OK(opened);
    ASSERT_OK((*opened)->CheckUnchanged());
    struct stat before = {};
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    {
      std::fstream file(path, std::ios::in | std::ios::out);
      file << 'b';
    }
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    struct stat after = {};
    ASSERT_EQ(stat(path.c_str(), &after), 0);
    ASSERT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    EXPECT_EQ((*opened)->CheckUnchanged().code(), StatusCode::kAborted);
    // Deleting a snapshot is no write.
    const auto again = Image::Open(path);
    ASSERT_OK(again);
    std::filesystem::remove(path);
    EXPECT_OK((*again)->CheckUnchanged());
  }
}

TEST(ImageTest, IsTheSameFileOnlyUnderTheSamePath) {
  const test::TempDir dir;
  dir.Write("a", "x");
  dir.Write("b", "x");
  std::filesystem::create_hard_link(dir / "a", dir / "c");
  std::filesystem::create_symlink("a", dir / "link");
  ASSERT_OK_AND_ASSIGN(const auto a, Image::Open(dir / "a"));
  ASSERT_OK_AND_ASSIGN(const auto b, Image::Open(dir / "b"));
  ASSERT_OK_AND_ASSIGN(const auto c, Image::Open(dir / "c"));
  EXPECT_TRUE(a->SameFileAs(*a));
  EXPECT_TRUE(a->SameFileAs(*ValueOf(Image::Open(dir / "a"))));
  EXPECT_TRUE(a->SameFileAs(*ValueOf(Image::Open(dir / "link"))));
  EXPECT_FALSE(a->SameFileAs(*b));
  EXPECT_FALSE(a->MayBeSameFileAs(*b));
  // The same inode number: it could be `a` in a snapshot.
  EXPECT_FALSE(a->SameFileAs(*c));
  EXPECT_TRUE(a->MayBeSameFileAs(*c));
}

TEST(ImageTest, AFileWithoutAPathIsTheSameAsItselfOnly) {
  const test::TempDir dir;
  dir.Write("a", "x");
  ASSERT_OK_AND_ASSIGN(const auto a, Image::Open(dir / "a"));
  ASSERT_OK_AND_ASSIGN(const auto again, Image::Open(dir / "a"));
  EXPECT_TRUE(a->SameFileAs(*again));
  std::filesystem::remove(dir / "a");
  EXPECT_TRUE(a->SameFileAs(*a));
  EXPECT_FALSE(a->SameFileAs(*again));
  EXPECT_TRUE(a->MayBeSameFileAs(*again));
}

TEST(ImageTest, AFileIsKnownByTheNameThatItHasNow) {
  const test::TempDir dir;
  std::filesystem::create_directory(dir / "now");
  dir.Write("now/a", "x");
  ASSERT_OK_AND_ASSIGN(const auto a, Image::Open(dir / "now/a"));
  std::filesystem::rename(dir / "now", dir / "then");
  EXPECT_TRUE(a->SameFileAs(*ValueOf(Image::Open(dir / "then/a"))));
}

TEST(ImageTest, AFileThatWasTouchedIsNotTakenForTheSame) {
  const test::TempDir dir;
  dir.Write("a", "x");
  ASSERT_OK_AND_ASSIGN(const auto a, Image::Open(dir / "a"));
  usleep(20'000);  // file time stamps are coarse
  dir.Write("a", "y");
  EXPECT_FALSE(a->SameFileAs(*ValueOf(Image::Open(dir / "a"))));
}

}  // namespace image_test
}  // namespace cbt
