// Small files that are reloaded when they change: when a change is noticed, and the operator's
// error for an unreadable file.
#include "base/watched_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "cbt/units.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace watched_file_test {

using absl::StatusCode;
using testing::HasSubstr;
using testing::StartsWith;

StatusCode CodeOf(const std::string& path) {
  const absl::Status status = ReadSmallFile(path).status();
  if (!status.ok()) {
    EXPECT_THAT(std::string(status.message()), StartsWith(path + ": "));
  }
  return status.code();
}

TEST(SmallFile, SaysWhyItCantBeRead) {
  const TempDir dir;
  dir.Write("file", "text");
  EXPECT_EQ(ValueOf(ReadSmallFile(dir / "file")), "text");
  EXPECT_EQ(CodeOf(dir / "none"), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(dir / "file/below"), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(dir.path()), StatusCode::kInvalidArgument);
  // Can be opened, but not read at its beginning.
  EXPECT_EQ(CodeOf("/proc/self/mem"), StatusCode::kUnavailable);
}

// A pipe without a writer must not hold the program.
TEST(SmallFile, ZAAPipeIsReadAndNotWaitedForWithoutEnd) {
  const TempDir dir;
  const std::string path = dir / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ValueOf(ReadSmallFile(path)), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  // What its writer sends, in pieces, until it closes.
  int writer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  std::thread slow([writer] {
    for (const char c : {'t', 'e', 'x', 't'}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(write(writer, &c, 1), 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    close(writer);
  });
  EXPECT_EQ(ValueOf(ReadSmallFile(path)), "text");
  slow.join();
  // One that sends nothing.
  writer = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  EXPECT_EQ(CodeOf(path), StatusCode::kDeadlineExceeded);
  close(writer);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPipeTime + std::chrono::seconds(10));
}

TEST(SmallFile, ThatMayNotBeReadIsPermissionDenied) {
  const TempDir dir;
  dir.Write("file", "text");
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  ASSERT_EQ(chmod((dir / "file").c_str(), 0), 0);
  // Root may read everything, so this thread reads as another user.
  constexpr int kOtherUser = 65534;
  const int before = setfsuid(kOtherUser);
  // setfsuid() returns the previous user, and changes nothing for an invalid id.
  const bool closed = setfsuid(static_cast<uid_t>(-1)) == kOtherUser || geteuid() != 0;
  const StatusCode code = CodeOf(dir / "file");
  setfsuid(static_cast<uid_t>(before));
  if (!closed) GTEST_SKIP() << "this process may not read as another user";
  EXPECT_EQ(code, StatusCode::kPermissionDenied);
}

TEST(SmallFile, HasFourMebibytesAtMost) {
  const TempDir dir;
  constexpr size_t kMost = 4 * kMiB;
  std::string text(kMost, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  dir.Write("most", text);
  const auto whole = ReadSmallFile(dir / "most");
  ASSERT_OK(whole);
  EXPECT_TRUE(*whole == text);
  dir.Write("more", std::string(kMost + 1, 'x'));
  const absl::Status status = ReadSmallFile(dir / "more").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("longer than 4 MiB"));
  // An endless file must not fill the memory.
  EXPECT_EQ(CodeOf("/dev/zero"), StatusCode::kInvalidArgument);
}

std::atomic<int> signals = 0;

TEST(SmallFile, IsReadToItsEndAlsoWhenSignalsCome) {
  const TempDir dir;
  const std::string path = dir / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  struct sigaction count = {};
  struct sigaction before = {};
  // Without SA_RESTART: reads end early.
  count.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(sigaction(SIGUSR1, &count, &before), 0);
  absl::StatusOr<std::string> text = absl::UnknownError("not read");
  std::atomic<bool> over = false;
  std::thread reader([&] {
    text = ReadSmallFile(path);
    over = true;
  });
  // Returns once the reader has opened it, too.
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  for (const char* part : {"first ", "second ", "third"}) {
    const int sent = signals + 5;
    while (signals < sent && !over) {
      pthread_kill(reader.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // Writing to a pipe without a reader would end the process.
    if (over) break;
    EXPECT_GT(write(fd, part, std::string(part).size()), 0);
  }
  close(fd);
  reader.join();
  sigaction(SIGUSR1, &before, nullptr);
  ASSERT_OK(text);
  EXPECT_EQ(*text, "first second third");
}

class Watched : public testing::Test {
 protected:
  Watched() : file_(path_, [this](const std::string& text) { return Parse(text); }) {}

  absl::StatusOr<std::string> Parse(const std::string& text) {
    ++parsed_;
    if (text.starts_with("bad")) return absl::InvalidArgumentError("line 1: it is bad");
    if (text == "throw") throw std::bad_alloc();
    return text;
  }
  // In place: the inode stays.
  void Write(const std::string& text, timespec modified) {
    std::ofstream(path_, std::ios::trunc) << text;
    const timespec times[] = {modified, modified};
    ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }
  std::string Text() {
    const auto text = file_.Get();
    return text.ok() ? **text : std::string(text.status().message());
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "file";
  int parsed_ = 0;
  WatchedFile<std::string> file_;
};

TEST_F(Watched, IsReadAgainWhateverOfItChanges) {
  Write("one", {1000, 500});
  EXPECT_EQ(Text(), "one");
  EXPECT_EQ(Text(), "one");
  EXPECT_EQ(parsed_, 1);
  Write("longer", {1000, 500});
  EXPECT_EQ(Text(), "longer");
  // The same size: detected by the second, and by its fraction.
  Write("LONGER", {1001, 500});
  EXPECT_EQ(Text(), "LONGER");
  Write("LoNgEr", {1001, 501});
  EXPECT_EQ(Text(), "LoNgEr");
  // The same size and time: another file under the name.
  std::filesystem::rename(path_, path_ + ".old");
  Write("lOnGeR", {1001, 501});
  EXPECT_EQ(Text(), "lOnGeR");
  EXPECT_EQ(parsed_, 5);
  EXPECT_EQ(Text(), "lOnGeR");
  EXPECT_EQ(parsed_, 5);
}

TEST_F(Watched, ThatNeverExistedIsNotFound) {
  EXPECT_EQ(file_.Get().status().code(), StatusCode::kNotFound);
}

TEST(FileState, DiffersInEachPart) {
  const FileState state = {
      .device = 1, .inode = 2, .size = 3, .modified = {4, 5}, .changed = {6, 7}};
  EXPECT_TRUE(state == state);
  std::vector<FileState> others(7, state);
  ++others[0].device;
  ++others[1].inode;
  ++others[2].size;
  ++others[3].modified.tv_sec;
  ++others[4].modified.tv_nsec;
  ++others[5].changed.tv_sec;
  ++others[6].changed.tv_nsec;
  for (const FileState& other : others) EXPECT_FALSE(state == other);
}

// The last good contents are dropped: a user removed from a list must not stay on it.
TEST_F(Watched, ThatCantBeUsedNowHasNoContents) {
  Write("good", {1000, 0});
  EXPECT_EQ(Text(), "good");
  Write("bad", {1000, 0});
  EXPECT_EQ(Text(), path_ + ": line 1: it is bad");
  EXPECT_EQ(file_.Get().status().code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(path_);
  EXPECT_EQ(file_.Get().status().code(), StatusCode::kNotFound);
  Write("good again", {1000, 0});
  EXPECT_EQ(Text(), "good again");
}

// The file itself shows no sign that the failure is over.
TEST_F(Watched, ThatCouldNotBeReadIsTriedAgain) {
  Write("good", {1000, 0});
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
  constexpr int kOtherUser = 65534;
  const int before = setfsuid(kOtherUser);
  const bool closed = setfsuid(static_cast<uid_t>(-1)) == kOtherUser;
  const StatusCode code = file_.Get().status().code();
  setfsuid(static_cast<uid_t>(before));
  if (!closed) GTEST_SKIP() << "this process may not read as another user";
  EXPECT_EQ(code, StatusCode::kPermissionDenied);
  EXPECT_EQ(Text(), "good");
  EXPECT_EQ(Text(), "good");
  EXPECT_EQ(parsed_, 1);
}

// A revoked entry must not stay in force because the new list did not fit into memory.
TEST_F(Watched, ThatThrewIsNotWhatItWasBefore) {
  Write("old", {1000, 0});
  EXPECT_EQ(Text(), "old");
  Write("throw", {1000, 0});
  EXPECT_THROW(file_.Get().IgnoreError(), std::bad_alloc);
  EXPECT_THROW(file_.Get().IgnoreError(), std::bad_alloc);
  Write("new", {1000, 0});
  EXPECT_EQ(Text(), "new");
}

}  // namespace watched_file_test
}  // namespace cbt::test
