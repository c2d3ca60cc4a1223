// An older snapshot of the same id, which could not be removed when it was deleted or given up: the
// newest counts.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/units.h"
#include "programs/volume/snapshot_reader.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace {

using test::ValueOf;
using namespace units;

constexpr uint64_t kCapacity = 1_MiB;
constexpr uint64_t kG = 4096;

using Bytes = std::vector<uint8_t>;

class SupersededTest : public testing::Test {
 protected:
  // Two snapshots "a", the second after the first was deleted, whose file is there again.
  void SetUp() override {
    test::RequireOk(TrackedVolume::Create(volume_, kCapacity));
    const auto volume = ValueOf(TrackedVolume::Open(volume_));
    ASSERT_OK(volume->TakeSnapshot("a"));
    ASSERT_TRUE(volume->WaitForCopies(60));
    std::filesystem::copy_file(older_, directory_ / "kept");
    ASSERT_OK(volume->DeleteSnapshot("a"));
    newest_.assign(kCapacity, 1);
    ASSERT_OK(volume->Write(0, newest_, Durability::kCached));
    ASSERT_OK(volume->TakeSnapshot("a"));
    ASSERT_TRUE(volume->WaitForCopies(60));
    path_ = ValueOf(volume->SnapshotPath("a"));
    ASSERT_OK(volume->Close());
    ASSERT_NE(path_, older_);
    std::filesystem::copy_file(directory_ / "kept", older_);
  }

  void Check() const {
    const auto reader = ValueOf(SnapshotReader::Open(volume_));
    EXPECT_EQ(reader->snapshots().size(), 1u);
    EXPECT_EQ(ValueOf(reader->PathOf("a")), path_);
    const auto volume = ValueOf(TrackedVolume::Open(volume_));
    EXPECT_EQ(volume->snapshots().size(), 1u);
    EXPECT_EQ(test::ReadFile<Bytes>(ValueOf(volume->SnapshotPath("a"))), newest_);
    EXPECT_FALSE(std::filesystem::exists(older_));
    EXPECT_OK(volume->DeleteSnapshot("a"));
    EXPECT_TRUE(volume->snapshots().empty());
  }

  const test::TempDir directory_;
  const std::string volume_ = directory_ / "v";
  const std::string older_ = volume_ + "/snapshots/a";
  std::string path_;
  Bytes newest_;
};

TEST_F(SupersededTest, AFileThatTheChainHasNot) { Check(); }

TEST_F(SupersededTest, ASnapshotOfTheChain) {
  const std::string chain = volume_ + "/chain";
  const auto before = ValueOf(ChangeChain::Open(chain, ChangeChain::Access::kRead));
  auto builder = ValueOf(ChangeMapBuilder::Create({.capacity = kCapacity, .granularity = kG}));
  ASSERT_OK(builder.Add({0, kCapacity}));
  auto map = ValueOf(builder.Build());
  map.set_identity({before->volume(), "a", before->snapshots().back().id});
  std::filesystem::remove_all(chain);
  ASSERT_OK(
      ValueOf(ChangeChain::Create(chain, before->volume(), kG, {"a", kCapacity}))->Append(map));
  Check();
}

}  // namespace
}  // namespace cbt::volume
