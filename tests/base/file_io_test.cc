// Files that are written as a whole, and files that are read through a mapping.
#include "base/file_io.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace file_io_test {

using absl::StatusCode;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::Status WriteFile(const std::string& path, std::string_view text, bool sync = false) {
  const std::vector<std::span<const uint8_t>> parts = {
      Bytes(text.substr(0, text.size() / 2)), {}, Bytes(text.substr(text.size() / 2))};
  return WriteFileAtomically(path, parts, sync);
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(AtomicFile, HoldsAllPartsAndReplacesTheOldOne) {
  const TempDir dir;
  for (const bool sync : {false, true}) {
    for (const std::string text : {"", "a", "some bytes", "fewer"}) {
      ASSERT_OK(WriteFile(dir / "file", text, sync));
      EXPECT_EQ(Contents(dir / "file"), text);
      EXPECT_EQ(dir.Names(), std::vector<std::string>{"file"});
    }
  }
  const std::string longest(255, 'n');
  ASSERT_OK(WriteFile(dir / longest, "text"));
  EXPECT_EQ(Contents(dir / longest), "text");
}

TEST(AtomicFile, ThatCantBeWrittenLeavesNothing) {
  const TempDir dir;
  dir.Write("folder/file", "");
  EXPECT_EQ(WriteFile(dir / "folder", "text").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"folder"});
  EXPECT_EQ(WriteFile(dir / "missing/file", "text").code(), StatusCode::kNotFound);
  dir.WriteClosed("socket");
  EXPECT_EQ(WriteFile(dir / "socket", "text").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(dir.Names(), (std::vector<std::string>{"folder", "socket"}));
}

// Another process may have had the same number.
TEST(AtomicFile, TakesAnotherNameIfAStrangersFileHasIt) {
  const TempDir dir;
  const OwnedDescriptor watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.number(), dir.path().c_str(), IN_CREATE), 0);
  ASSERT_OK(WriteFile(dir / "file", "first"));
  alignas(inotify_event) std::array<char, 4096> events = {};
  ASSERT_GT(read(watch.number(), events.data(), events.size()), 0);
  // .file.PROCESS-NUMBER.partial
  const std::string name = reinterpret_cast<const inotify_event*>(events.data())->name;
  const size_t at = name.rfind('-') + 1;
  const uint64_t number = std::stoull(name.substr(at));
  std::vector<std::string> strangers;
  for (uint64_t next = number + 1; next < number + 4; ++next) {
    strangers.push_back(name.substr(0, at) + std::to_string(next) + std::string(kPartialExtension));
    dir.Write(strangers.back(), "a stranger's");
  }
  ASSERT_OK(WriteFile(dir / "file", "second"));
  EXPECT_EQ(Contents(dir / "file"), "second");
  for (const std::string& stranger : strangers) {
    EXPECT_EQ(Contents(dir / stranger), "a stranger's");
  }
  EXPECT_EQ(dir.Names().size(), strangers.size() + 1);
}

TEST(MappedFile, HasTheBytesOfTheFile) {
  const TempDir dir;
  const std::vector<std::string> texts = {"", "x", std::string(4096, 'y'), std::string(4097, 'z')};
  for (const std::string& text : texts) {
    dir.Write("file", text);
    ASSERT_OK_AND_ASSIGN(const auto file, MappedFile::Open(dir / "file"));
    EXPECT_EQ(std::string(file->bytes().begin(), file->bytes().end()), text);
  }
  EXPECT_EQ(MappedFile::Open(dir / "missing").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(dir.path()).status().code(), StatusCode::kInvalidArgument);
  const absl::Status named = MappedFile::Open(dir.path(), "the map").status();
  EXPECT_EQ(named.message(), "the map: not a regular file");
}

void SetTime(const std::string& path, timespec modified) {
  const std::array<timespec, 2> times = {modified, modified};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
}

TEST(MappedFile, GivesItsMemoryAndItsDescriptorBack) {
  const TempDir dir;
  dir.Write("file", "bytes");
  const auto lines_of = [](const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    size_t lines = 0;
    for (std::string line; std::getline(maps, line);) lines += line.find(path) != line.npos ? 1 : 0;
    return lines;
  };
  const int unused = ::dup(0);
  ASSERT_GE(unused, 0);
  ASSERT_EQ(::close(unused), 0);
  ASSERT_OK_AND_ASSIGN(auto file,
                       MappedFile::Open(dir / "file", "the file", MappedFile::Watched::kYes));
  EXPECT_EQ(lines_of(dir / "file"), 1u);
  EXPECT_NE(::fcntl(unused, F_GETFD), -1);
  file.reset();
  EXPECT_EQ(lines_of(dir / "file"), 0u);
  EXPECT_EQ(::fcntl(unused, F_GETFD), -1);
}

TEST(MappedFile, NoticesThatItWasChanged) {
  const TempDir dir;
  const std::string path = dir / "file";
  const auto changed = absl::AbortedError("the file: was modified since it was opened");
  const auto open = [&] {
    dir.Write("file", "bytes");
    SetTime(path, {1000, 500});
    return test::ValueOf(MappedFile::Open(path, "the file", MappedFile::Watched::kYes));
  };
  for (const timespec other : {timespec{1001, 500}, timespec{1000, 501}}) {
    const auto file = open();
    EXPECT_OK(file->CheckUnchanged());
    SetTime(path, other);
    EXPECT_EQ(file->CheckUnchanged(), changed);
  }
  const auto longer = open();
  dir.Write("file", "longer");
  EXPECT_EQ(longer->CheckUnchanged(), changed);
  // Another file may replace it, or nothing.
  const auto replaced = open();
  dir.Write("other", "another");
  std::filesystem::rename(dir / "other", path);
  EXPECT_OK(replaced->CheckUnchanged());
  const auto removed = open();
  std::filesystem::remove(path);
  EXPECT_OK(removed->CheckUnchanged());
}

TEST(MappedFile, SDNoticesAWriteWhoseTimeWasPutBack) {
  const TempDir dir;
  const std::string path = dir / "file";
  dir.Write("file", "bytes");
  SetTime(path, {1000, 500});
  const auto file = test::ValueOf(MappedFile::Open(path, "the file", MappedFile::Watched::kYes));
  // The kernel's clock for files moves in ticks.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  dir.Write("file", "BYTES");
  SetTime(path, {1000, 500});
  EXPECT_EQ(file->CheckUnchanged().code(), StatusCode::kAborted);
}

TEST(Directory, OfAPath) {
  EXPECT_EQ(DirectoryOf("file"), ".");
  EXPECT_EQ(DirectoryOf("/file"), "/");
  EXPECT_EQ(DirectoryOf("a/b/file"), "a/b");
}

TEST(Directory, IsMadeOnce) {
  const TempDir dir;
  for (const std::string name : {"a", "b/", "c//"}) {
    for (const bool sync : {false, true, true}) {
      ASSERT_OK(MakeDirectory(dir / name, sync));
      EXPECT_TRUE(std::filesystem::is_directory(dir / name));
    }
  }
  EXPECT_EQ(MakeDirectory(dir / "missing/d", true).code(), StatusCode::kNotFound);
  ASSERT_OK(MakeDirectory("/", true));
}

}  // namespace file_io_test
}  // namespace cbt::test
