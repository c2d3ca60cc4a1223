// The list of a volume's marks and their files, without a volume.
#include "programs/volume/volume_marks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/units.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace volume_marks_test {

using test::ValueOf;
using Names = std::vector<std::string>;

constexpr MarkLimits kNoLimit = {.count = 1000, .age = std::chrono::hours(24), .bytes = kGiB};
constexpr int64_t kSecond = 1'000'000'000;

class VolumeMarksTest : public testing::Test {
 protected:
  void SetUp() override {
    chain_ = ValueOf(
        ChangeChain::Create(scratch_ / "chain", "v", 4096, {.id = kOriginName, .capacity = kMiB}));
    ASSERT_OK(marks_.Open(volume_));
  }
  // A moment of the chain, `at` seconds after 1970.
  void Append(const std::string& name, int64_t at) {
    const std::vector<ChainSnapshot> entries = chain_->snapshots();
    auto builder = ValueOf(ChangeMapBuilder::Create({.capacity = kMiB, .granularity = 4096}));
    ASSERT_OK(builder.Add(Extent{0, 4096}));
    ChangeMap map = ValueOf(builder.Build());
    map.set_identity({.volume = "v", .base = entries.back().id, .target = name});
    ASSERT_OK(chain_->Append(map, at * kSecond));
  }
  // As a volume does when it deletes a snapshot.
  void Mark(const std::string& name) {
    ASSERT_OK(marks_.Write(name));
    marks_.Add(*chain_, name);
  }
  Names Listed() const {
    Names ids;
    for (const MarkRecord& record : marks_.list()) ids.push_back(record.mark.id);
    return ids;
  }
  Names Files() const { return scratch_.Names(kMarksName); }

  test::TempDir scratch_;
  const Directory volume_ = ValueOf(Directory::Open(scratch_.path()));
  std::unique_ptr<ChangeChain> chain_;
  std::shared_mutex lock_;
  VolumeMarks marks_{lock_};
};

TEST_F(VolumeMarksTest, StandInTheOrderOfTheChain) {
  for (const char* name : {"a", "b", "c"}) Append(name, 1);
  for (const char* name : {"b", "c", "a"}) Mark(name);
  EXPECT_EQ(Listed(), (Names{"a", "b", "c"}));
  EXPECT_EQ(marks_.list()[1].mark.size, kMiB);
  EXPECT_EQ(marks_.list()[1].mark.created_ns, kSecond);
}

TEST_F(VolumeMarksTest, AMomentThatTheChainDoesNotHaveIsNoMark) {
  Append("a", 1);
  Mark("unknown");
  EXPECT_EQ(Listed(), Names{});
}

TEST_F(VolumeMarksTest, AreFoundAgainAndFilesOfOthersGo) {
  for (const char* name : {"a", "b", "c"}) Append(name, 1);
  for (const char* name : {"a", "b", "gone"}) Mark(name);
  VolumeMarks again(lock_);
  ASSERT_OK(again.Open(volume_));
  // A snapshot of that id has taken its place.
  size_t notes = 0;
  ASSERT_OK(again.Load(*chain_, {{.name = "b", .info = {.id = "b"}}},
                       [&notes](const absl::Status&) { ++notes; }));
  ASSERT_EQ(again.list().size(), 1u);
  EXPECT_EQ(again.list()[0].name, "a");
  EXPECT_EQ(Files(), Names{"a"});
  EXPECT_EQ(notes, 0u);
}

TEST_F(VolumeMarksTest, AFileThatStaysIsReported) {
  Append("a", 1);
  std::filesystem::create_directories(scratch_ / "marks/stuck/inside");
  size_t notes = 0;
  ASSERT_OK(marks_.Load(*chain_, {}, [&notes](const absl::Status&) { ++notes; }));
  EXPECT_EQ(notes, 1u);
}

TEST_F(VolumeMarksTest, AMarkThatCanNotBeRemovedStays) {
  Append("a", 1);
  Append("b", 1);
  Mark("b");
  Mark("a");
  std::filesystem::remove(scratch_ / "marks/a");
  std::filesystem::create_directories(scratch_ / "marks/a/inside");
  EXPECT_FALSE(marks_.Remove("a").ok());
  EXPECT_OK(marks_.Remove("b"));
  EXPECT_EQ(Listed(), Names{"a"});
}

TEST_F(VolumeMarksTest, TheOldestGoFirst) {
  for (const char* name : {"a", "b", "c", "d"}) Append(name, 1);
  for (const char* name : {"a", "b", "c"}) Mark(name);
  MarkLimits limits = kNoLimit;
  ASSERT_OK(marks_.Limit(*chain_, limits, kSecond));
  EXPECT_EQ(Listed().size(), 3u);
  limits.count = 1;
  ASSERT_OK(marks_.Limit(*chain_, limits, kSecond));
  EXPECT_EQ(Listed(), Names{"c"});
  EXPECT_EQ(Files(), Names{"c"});
}

TEST_F(VolumeMarksTest, AreLimitedByAgeAndByTheBytesOfMaps) {
  Append("a", 10);
  Append("b", 30);
  Append("c", 40);
  for (const char* name : {"a", "b"}) Mark(name);
  MarkLimits limits = kNoLimit;
  limits.age = std::chrono::seconds(20);
  ASSERT_OK(marks_.Limit(*chain_, limits, 30 * kSecond));
  EXPECT_EQ(Listed(), (Names{"a", "b"}));
  ASSERT_OK(marks_.Limit(*chain_, limits, 31 * kSecond));
  EXPECT_EQ(Listed(), Names{"b"});
  limits = kNoLimit;
  limits.bytes = chain_->MapBytes()[2];
  ASSERT_OK(marks_.Limit(*chain_, limits, kSecond));
  EXPECT_EQ(Listed().size(), chain_->MapBytes()[3] <= limits.bytes ? 1u : 0u);
  limits.bytes = 0;
  ASSERT_OK(marks_.Limit(*chain_, limits, kSecond));
  EXPECT_EQ(Listed(), Names{});
}

}  // namespace volume_marks_test
}  // namespace cbt::volume
