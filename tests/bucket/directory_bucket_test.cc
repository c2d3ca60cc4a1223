#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bucket/bucket.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::bucket {
namespace directory_bucket_test {

using test::ValueOf;

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

std::map<std::string, uint64_t> Listed(Bucket& bucket, const std::string& prefix) {
  std::map<std::string, uint64_t> listed;
  test::RequireOk(bucket.List(prefix, [&](const ObjectInfo& object) {
    EXPECT_TRUE(listed.emplace(object.key, object.size).second) << object.key;
    return absl::OkStatus();
  }));
  return listed;
}

TEST(DirectoryBucket, KeepsObjects) {
  const test::TempDir directory;
  const auto bucket = ValueOf(OpenDirectoryBucket(directory.path()));
  ASSERT_OK(bucket->Put("data/ab/one", Bytes("0123456789")));
  ASSERT_OK(bucket->Put("data/ab/empty", {}));
  ASSERT_OK(bucket->Put("data.x", Bytes("x")));
  ASSERT_OK(bucket->Put("data/ab/one", Bytes("abcdefghijk")));
  EXPECT_EQ(ValueOf(bucket->Get("data/ab/one", 11)), Bytes("abcdefghijk"));
  EXPECT_EQ(ValueOf(bucket->Get("data/ab/empty", 0)), Bytes(""));
  EXPECT_EQ(ValueOf(bucket->GetRange("data/ab/one", 2, 9)), Bytes("cdefghijk"));
  EXPECT_EQ(ValueOf(bucket->Size("data/ab/one")), 11u);
  for (const auto& [offset, length] : {std::pair{2u, 10u}, {12u, 1u}, {0u, 0u}}) {
    EXPECT_TRUE(absl::IsOutOfRange(bucket->GetRange("data/ab/one", offset, length).status()));
    std::vector<uint8_t> room(length);
    EXPECT_TRUE(absl::IsOutOfRange(bucket->ReadRange("data/ab/one", offset, room)));
  }
  std::vector<uint8_t> range(9);
  ASSERT_OK(bucket->ReadRange("data/ab/one", 2, range));
  EXPECT_EQ(range, Bytes("cdefghijk"));
  EXPECT_TRUE(absl::IsNotFound(bucket->ReadRange("data/none", 2, range)));
  EXPECT_TRUE(absl::IsResourceExhausted(bucket->Get("data/ab/one", 10).status()));
  EXPECT_TRUE(absl::IsNotFound(bucket->Get("data/ab", 10).status()));
  EXPECT_TRUE(absl::IsNotFound(bucket->Get("data/none", 10).status()));

  using Map = std::map<std::string, uint64_t>;
  EXPECT_EQ(Listed(*bucket, "data/"), (Map{{"data/ab/one", 11}, {"data/ab/empty", 0}}));
  EXPECT_EQ(Listed(*bucket, "data"),
            (Map{{"data/ab/one", 11}, {"data/ab/empty", 0}, {"data.x", 1}}));
  EXPECT_EQ(Listed(*bucket, "data/ab/o"), (Map{{"data/ab/one", 11}}));
  EXPECT_EQ(Listed(*bucket, "none/").size(), 0u);
  ASSERT_OK(bucket->Delete("data/ab/one"));
  ASSERT_OK(bucket->Delete("data/ab/one"));
  EXPECT_EQ(Listed(*bucket, "data/"), (Map{{"data/ab/empty", 0}}));
}

TEST(DirectoryBucket, KeepsObjectsInParts) {
  const test::TempDir directory;
  const auto bucket = ValueOf(OpenDirectoryBucket(directory.path()));
  for (const uint64_t size : {0u, 1u, 1u << 20, 3'000'001u}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i % 251);
    ASSERT_OK(bucket->PutParts("a/b", size, [&](uint64_t offset, std::span<uint8_t> out) {
      std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
      return absl::OkStatus();
    }));
    EXPECT_TRUE(ValueOf(bucket->Get("a/b", size)) == bytes);
  }
  // The old object stays when the new one can't be read, and nothing else does.
  const auto fails = [](uint64_t offset, std::span<uint8_t>) {
    return offset == 0 ? absl::OkStatus() : absl::DataLossError("the data is gone");
  };
  EXPECT_TRUE(absl::IsDataLoss(bucket->PutParts("a/b", 3'000'000, fails)));
  EXPECT_EQ(ValueOf(bucket->Size("a/b")), 3'000'001u);
  EXPECT_EQ(directory.Names("a"), std::vector<std::string>{"b"});
  EXPECT_TRUE(absl::IsInvalidArgument(bucket->PutParts("../b", 1, fails)));
}

// Processes in other containers have the same numbers, and may put into the same directory.
TEST(DirectoryBucket, LeavesTheFilesOfOthersAlone) {
  const test::TempDir directory;
  const auto bucket = ValueOf(OpenDirectoryBucket(directory.path()));
  std::string partial;
  const auto put = [&] {
    return bucket->PutParts("b", 3, [&](uint64_t, std::span<uint8_t> out) {
      for (const std::string& name : directory.Names()) {
        if (name.ends_with(".partial")) partial = name;
      }
      std::fill(out.begin(), out.end(), uint8_t{'x'});
      return absl::OkStatus();
    });
  };
  ASSERT_OK(put());
  const size_t dash = partial.rfind('-');
  ASSERT_NE(dash, std::string::npos) << partial;
  const uint64_t number = std::stoull(partial.substr(dash + 1));
  // The names that come next are taken.
  std::vector<std::string> theirs;
  for (uint64_t i = 1; i <= 3; ++i) {
    theirs.push_back(partial.substr(0, dash + 1) + std::to_string(number + i) + ".partial");
    directory.Write(theirs.back(), "theirs");
  }
  ASSERT_OK(put());
  EXPECT_EQ(ValueOf(bucket->Get("b", 10)), Bytes("xxx"));
  for (const std::string& name : theirs) {
    std::ifstream file(directory / name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "theirs") << name;
  }
}

TEST(DirectoryBucket, PartialFilesAndStrangersAreNoObjects) {
  const test::TempDir directory;
  directory.Write(".one.1-2.partial", "half");
  directory.WriteClosed("socket");
  const auto bucket = ValueOf(OpenDirectoryBucket(directory.path()));
  EXPECT_EQ(Listed(*bucket, "").size(), 0u);
  EXPECT_FALSE(bucket->Get("socket", 10).ok());
}

TEST(DirectoryBucket, NeedsADirectory) {
  const test::TempDir directory;
  directory.Write("file", "x");
  EXPECT_TRUE(absl::IsNotFound(OpenDirectoryBucket(directory / "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(OpenDirectoryBucket(directory / "file").status()));
  const auto bucket = ValueOf(OpenDirectoryBucket(directory.path()));
  std::filesystem::remove_all(directory.path());
  EXPECT_FALSE(bucket->List("", [](const ObjectInfo&) { return absl::OkStatus(); }).ok());
  EXPECT_FALSE(bucket->Put("a", {}).ok());
}

TEST(Key, LeadsNowhereElse) {
  for (const std::string key : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b",
                                "a\nb", "\xff", ".x.partial"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckKey(key))) << key;
  }
  EXPECT_FALSE(CheckKey(std::string(201, 'a')).ok());
  EXPECT_FALSE(CheckKey(std::string_view("a\0b", 3)).ok());
  for (const std::string key :
       {"a", "...", "a.b/..c", "data/0a/0a12", "sp ace+&?", "\xE1\x88\xB4"}) {
    EXPECT_OK(CheckKey(key)) << key;
  }
}

}  // namespace directory_bucket_test
}  // namespace cbt::bucket
