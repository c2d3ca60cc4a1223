#include "source/directory/open_maps.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cbt/change_map_file.h"
#include "tests/map/maps.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace open_maps_test {

using reference::Ranges;
using test::ValueOf;

constexpr uint64_t kG = 4096;
constexpr VolumeGeometry kVolume = {10 * kG, kG};

class OpenMapsTest : public testing::Test {
 protected:
  std::string Path(const std::string& file) const { return dir_ / file; }

  // Returns the checksum in the file's header.
  uint64_t Write(const std::string& file, const test::Blocks& blocks) {
    return ValueOf(WriteChangeMap(test::MapOf(blocks, kVolume), Path(file))).checksum;
  }

  absl::StatusOr<LazyMap> Open(const std::string& file, uint64_t checksum) {
    return maps_.Open(OwnedDescriptor(::open(Path(file).c_str(), O_RDONLY | O_CLOEXEC)), Path(file),
                      file, checksum);
  }

  static absl::StatusOr<Ranges> Contents(const LazyMap& map) {
    return test::Drain(*MakeLazyMapCursor(map));
  }

  const test::TempDir dir_;
  OpenMaps maps_;
};

TEST_F(OpenMapsTest, RequestsShareAFile) {
  const uint64_t checksum = Write("a.cbm", {1, 2, 5});
  const LazyMap first = ValueOf(Open("a.cbm", checksum));
  const LazyMap second = ValueOf(Open("a.cbm", checksum));
  EXPECT_EQ(first.storage, second.storage);
  EXPECT_EQ(first.index, second.index);
  EXPECT_EQ(maps_.size(), 1U);
  const Ranges expected = {{kG, 2 * kG}, {5 * kG, kG}};
  EXPECT_EQ(ValueOf(Contents(first)), expected);
  EXPECT_EQ(ValueOf(Contents(second)), expected);
}

TEST_F(OpenMapsTest, AFileIsClosedAfterItsLastReader) {
  const uint64_t checksum = Write("a.cbm", {1});
  std::weak_ptr<const MappedFile> file;
  {
    auto map = ValueOf(Open("a.cbm", checksum));
    file = map.storage;
    // The cursor alone keeps it open.
    const auto cursor = MakeLazyMapCursor(map);
    map = {};
    EXPECT_EQ(maps_.size(), 1U);
    EXPECT_EQ(ValueOf(Open("a.cbm", checksum)).storage, file.lock());
  }
  EXPECT_TRUE(file.expired());
  EXPECT_EQ(maps_.size(), 0U);
  EXPECT_EQ(ValueOf(Contents(ValueOf(Open("a.cbm", checksum)))), (Ranges{{kG, kG}}));
}

TEST_F(OpenMapsTest, AMapThatIsAlwaysOpenIsCheckedAgain) {
  const uint64_t checksum = Write("a.cbm", {1});
  OpenMaps maps(std::chrono::milliseconds(20));
  const auto open = [&] {
    return ValueOf(maps.Open(OwnedDescriptor(::open(Path("a.cbm").c_str(), O_RDONLY | O_CLOEXEC)),
                             "a.cbm", "a.cbm", checksum));
  };
  const LazyMap first = open();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const LazyMap second = open();
  EXPECT_NE(second.storage, first.storage);
  EXPECT_EQ(maps.size(), 1U);  // the one that others may share
}

TEST_F(OpenMapsTest, AReplacedFileIsAnotherMap) {
  const uint64_t old_checksum = Write("a.cbm", {1});
  const LazyMap before = ValueOf(Open("a.cbm", old_checksum));
  const uint64_t checksum = Write("a.cbm", {3});
  const LazyMap after = ValueOf(Open("a.cbm", checksum));
  EXPECT_NE(before.storage, after.storage);
  EXPECT_EQ(ValueOf(Contents(before)), (Ranges{{kG, kG}}));
  EXPECT_EQ(ValueOf(Contents(after)), (Ranges{{3 * kG, kG}}));
  EXPECT_EQ(maps_.size(), 2U);
}

TEST_F(OpenMapsTest, AFileOverwrittenInPlaceIsAnotherMap) {
  const uint64_t old_checksum = Write("a.cbm", {1});
  const LazyMap before = ValueOf(Open("a.cbm", old_checksum));
  const uint64_t checksum = Write("b.cbm", {3});
  {
    std::ifstream from(Path("b.cbm"), std::ios::binary);
    std::fstream to(Path("a.cbm"), std::ios::binary | std::ios::in | std::ios::out);
    to << from.rdbuf();
  }
  // The file's clock may not have ticked since.
  std::filesystem::last_write_time(
      Path("a.cbm"), std::filesystem::last_write_time(Path("a.cbm")) + std::chrono::seconds(2));
  const LazyMap after = ValueOf(Open("a.cbm", checksum));
  EXPECT_NE(before.storage, after.storage);
  EXPECT_EQ(ValueOf(Contents(after)), (Ranges{{3 * kG, kG}}));
  EXPECT_EQ(Contents(before).status().code(), absl::StatusCode::kAborted);
}

TEST_F(OpenMapsTest, AnotherHeaderIsAnotherMap) {
  const uint64_t checksum = Write("a.cbm", {1});
  const LazyMap first = ValueOf(Open("a.cbm", checksum));
  EXPECT_NE(ValueOf(Open("a.cbm", checksum + 1)).storage, first.storage);
}

TEST_F(OpenMapsTest, TwoNamesOfAFileAreNamedInItsErrors) {
  const uint64_t checksum = Write("a.cbm", {1});
  std::filesystem::create_hard_link(Path("a.cbm"), Path("b.cbm"));
  const LazyMap first = ValueOf(Open("a.cbm", checksum));
  const LazyMap second = ValueOf(Open("b.cbm", checksum));
  std::filesystem::last_write_time(
      Path("a.cbm"), std::filesystem::last_write_time(Path("a.cbm")) + std::chrono::seconds(2));
  EXPECT_EQ(Contents(first).status().message(), "a.cbm: was modified since it was opened");
  EXPECT_EQ(Contents(second).status().message(), "b.cbm: was modified since it was opened");
}

TEST_F(OpenMapsTest, ADamagedFileIsNotKept) {
  const uint64_t checksum = Write("a.cbm", {1});
  std::filesystem::resize_file(Path("a.cbm"), std::filesystem::file_size(Path("a.cbm")) - 1);
  EXPECT_EQ(Open("a.cbm", checksum).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(maps_.size(), 0U);
}

TEST_F(OpenMapsTest, ThreadsOpenAndCloseAtOnce) {
  const uint64_t checksum = Write("a.cbm", {1, 7});
  const Ranges expected = {{kG, kG}, {7 * kG, kG}};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(ValueOf(Contents(ValueOf(Open("a.cbm", checksum)))), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(maps_.size(), 0U);
}

}  // namespace open_maps_test
}  // namespace cbt
