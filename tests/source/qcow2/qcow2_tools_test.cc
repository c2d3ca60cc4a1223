// qcow2 images written by qemu and judged by qemu: its map has the allocation, the bytes it reads
// show the changes. Skipped without qemu-img and qemu-io.
#include <gtest/gtest.h>

#include "cbt/source/qcow2.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/seeded_random.h"
#include "tests/support/shell.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace qcow2_tools_test {

using absl::StatusCode;
using reference::Ranges;
using test::Drain;
using test::DrainFrom;
using test::Shell;
using test::ShellOutput;
using test::ValueOf;

constexpr uint64_t kSector = 512;

// Appends a range; merges it with the last one if they touch.
void Append(Ranges& ranges, uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  if (!ranges.empty() && ranges.back().first + ranges.back().second == begin) {
    ranges.back().second += end - begin;
  } else {
    ranges.emplace_back(begin, end - begin);
  }
}

// The text after "key": in the object at `at`.
std::string Value(const std::string& text, size_t at, const std::string& key) {
  const size_t begin = text.find("\"" + key + "\": ", at) + key.size() + 4;
  return text.substr(begin, text.find_first_of(",}", begin) - begin);
}

// One shape of image.
struct Shape {
  const char* name;
  uint64_t cluster;
  uint64_t size;
  const char* options;
};

class Qcow2ToolsTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (!Shell("qemu-img --version") || !Shell("qemu-io --version")) {
      GTEST_SKIP() << "qemu-img and qemu-io are not installed";
    }
  }

  std::string Path(const std::string& name) const { return directory_ / name; }

  void Create(const std::string& name, uint64_t size, const std::string& options,
              const std::string& backing = "", const std::string& format = "") {
    std::string command = "qemu-img create -q -f qcow2 -o " + options;
    if (!backing.empty()) command += " -b " + backing + " -F " + format;
    ASSERT_TRUE(Shell("cd " + directory_.path() + " && " + command + " " + name + " " +
                      std::to_string(size)));
  }
  void Create(const std::string& name, const Shape& shape, const std::string& backing = "",
              const std::string& format = "") {
    Create(name, shape.size, shape.options, backing, format);
  }

  // Random writes, zeros and discards; records them in touched_.
  void Change(const std::string& name, uint64_t size, uint64_t cluster, int count) {
    touched_.assign(static_cast<size_t>(size / kSector), false);
    std::string command = "qemu-io -f qcow2 -d unmap " + Path(name);
    for (int i = 0; i < count; ++i) {
      uint64_t offset = random_() % (size / kSector) * kSector;
      uint64_t length = (1 + random_() % 8) * kSector;
      if (random_() % 3 == 0) length = random_() % (4 * cluster) / kSector * kSector + kSector;
      if (random_() % 3 != 0) {
        offset = AlignDown(offset, cluster);
        if (random_() % 2 == 0) length = AlignUp(length, cluster);
      }
      length = std::min(length, size - offset);
      const std::string range = std::to_string(offset) + " " + std::to_string(length) + "'";
      switch (random_() % 6) {
        case 0:
          command += " -c 'write -z " + range;
          break;
        case 1:
          command += " -c 'write -z -u " + range;
          break;
        case 2:
          command += " -c 'discard " + range;
          break;
        default:
          command += " -c 'write -P " + std::to_string(1 + random_() % 255) + " " + range;
      }
      for (uint64_t at = AlignDown(offset, cluster); at < offset + length; at += kSector) {
        touched_[static_cast<size_t>(at / kSector)] = true;
      }
      for (uint64_t at = offset + length; at % cluster != 0 && at < size; at += kSector) {
        touched_[static_cast<size_t>(at / kSector)] = true;
      }
    }
    ASSERT_TRUE(Shell(command)) << command;
  }

  // The bytes that qemu reads.
  std::vector<char> Bytes(const std::string& name, const std::string& snapshot = "") {
    const std::string raw = Path("bytes.raw");
    std::string command = "qemu-img convert -O raw -f qcow2 ";
    if (!snapshot.empty()) command += "-l snapshot.name=" + snapshot + " ";
    EXPECT_TRUE(Shell(command + Path(name) + " " + raw));
    return test::ReadFile<std::vector<char>>(raw);
  }

  // The allocation according to qemu: in the whole chain, or in the image itself.
  struct Map {
    Ranges data;
    Ranges layer;
  };
  Map MapOf(const std::string& name) {
    const std::string text = ShellOutput("qemu-img map --output=json -f qcow2 " + Path(name));
    Map map;
    for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
      const uint64_t begin = std::stoull(Value(text, at, "start"));
      const uint64_t end = begin + std::stoull(Value(text, at, "length"));
      if (Value(text, at, "data") == "true") Append(map.data, begin, end);
      if (Value(text, at, "depth") == "0" && Value(text, at, "present") == "true") {
        Append(map.layer, begin, end);
      }
    }
    return map;
  }

  std::shared_ptr<const Qcow2Image> Open(const std::string& name) {
    return ValueOf(Qcow2Image::Open(Path(name)));
  }

  // The whole answer, which must not depend on the starting offset or the batch size.
  Ranges All(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
    EXPECT_OK(cursor);
    if (!cursor.ok()) return {};
    const auto all = Drain(**cursor);
    EXPECT_OK(all);
    if (!all.ok()) return {};
    for (size_t i = 1; i < all->size(); ++i) {
      EXPECT_GT((*all)[i].first, (*all)[i - 1].first + (*all)[i - 1].second) << "not maximal";
    }
    for (int i = 0; i < 50; ++i) {
      const uint64_t offset = random_() % ((*cursor)->capacity() + 1);
      const auto rest = DrainFrom(**cursor, offset, 1 + random_() % 9);
      EXPECT_OK(rest) << "from " << offset;
      if (!rest.ok()) return {};
      const uint64_t from =
          offset == (*cursor)->capacity() ? offset : AlignDown(offset, (*cursor)->granularity());
      EXPECT_EQ(*rest, reference::CutAt(*all, from)) << "from " << offset;
    }
    return *all;
  }

  static std::vector<bool> Sectors(const Ranges& ranges, uint64_t size) {
    std::vector<bool> sectors(static_cast<size_t>(BlockCount(size, kSector)));
    for (const auto& [offset, length] : ranges) {
      for (uint64_t at = offset; at < offset + length; at += kSector) {
        sectors[static_cast<size_t>(at / kSector)] = true;
      }
    }
    return sectors;
  }

  // The delta of two states must contain every difference. If `bound` is given, it may contain
  // nothing outside it.
  void CheckDelta(const Qcow2State& base, const Qcow2State& target, const std::vector<char>& before,
                  const std::vector<char>& after, const std::vector<bool>* bound) {
    const Ranges delta = All(MakeQcow2DeltaCursor(base, target));
    const std::vector<bool> reported = Sectors(delta, after.size());
    for (size_t i = 0; i < reported.size(); ++i) {
      bool differs = false;
      for (size_t at = i * kSector; at < std::min(after.size(), (i + 1) * kSector); ++at) {
        differs = differs || (at < before.size() ? before[at] : 0) != after[at];
      }
      if (differs) {
        ASSERT_TRUE(reported[i]) << "changed but not reported: sector " << i;
      }
      if (bound != nullptr && reported[i]) {
        ASSERT_TRUE(i < bound->size() && (*bound)[i]) << "reported but not touched: sector " << i;
      }
    }
  }

  const test::TempDir directory_;
  test::SeededRandom random_{20240607};
  std::vector<bool> touched_;
};

TEST_P(Qcow2ToolsTest, AllocationIsWhatQemuMaps) {
  const Shape& shape = GetParam();
  Create("image", shape);
  for (int round = 0; round < 4; ++round) {
    Change("image", shape.size, shape.cluster, 12);
    const Map map = MapOf("image");
    const auto image = Open("image");
    ASSERT_NE(image, nullptr);
    EXPECT_EQ(image->virtual_size(), shape.size);
    EXPECT_EQ(image->cluster_size(), shape.cluster);
    EXPECT_EQ(All(MakeQcow2AllocationCursor({image, {}})), map.data);
    EXPECT_EQ(All(MakeQcow2LayerCursor({image, {}})), map.layer);
  }
}

TEST_P(Qcow2ToolsTest, SnapshotsAreStates) {
  const Shape& shape = GetParam();
  Create("image", shape);
  std::vector<std::string> names;
  std::vector<std::vector<char>> bytes;
  std::vector<Map> maps;
  std::vector<std::vector<bool>> touched;
  for (int round = 0; round < 3; ++round) {
    Change("image", shape.size, shape.cluster, 8);
    touched.push_back(touched_);
    names.push_back("s" + std::to_string(round));
    bytes.push_back(Bytes("image"));
    maps.push_back(MapOf("image"));
    ASSERT_TRUE(Shell("qemu-img snapshot -c " + names.back() + " " + Path("image")));
  }
  Change("image", shape.size, shape.cluster, 8);
  touched.push_back(touched_);
  bytes.push_back(Bytes("image"));
  maps.push_back(MapOf("image"));
  const auto image = Open("image");
  ASSERT_NE(image, nullptr);
  ASSERT_EQ(image->snapshots().size(), 3u);
  std::vector<Qcow2State> states;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(image->snapshots()[i].name, names[i]);
    EXPECT_EQ(image->snapshots()[i].virtual_size, shape.size);
    states.push_back({image, names[i]});
  }
  states.push_back({image, {}});
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(All(MakeQcow2AllocationCursor(states[i])), maps[i].data);
    EXPECT_EQ(All(MakeQcow2LayerCursor(states[i])), maps[i].layer);
    for (size_t k = 0; k < states.size(); ++k) {
      // Between adjacent snapshots, only touched data has moved.
      std::vector<bool> bound(touched[0].size());
      for (size_t step = std::min(i, k) + 1; step <= std::max(i, k); ++step) {
        for (size_t s = 0; s < bound.size(); ++s) bound[s] = bound[s] || touched[step][s];
      }
      CheckDelta(states[i], states[k], bytes[i], bytes[k], &bound);
      // The same from two separately opened images, without the shortcut for states of one file.
      const auto again = Open("image");
      EXPECT_EQ(
          ValueOf(Drain(*ValueOf(MakeQcow2DeltaCursor({again, states[i].snapshot}, states[k])))),
          ValueOf(Drain(*ValueOf(MakeQcow2DeltaCursor(states[i], states[k])))));
    }
  }
  // Reverted to the snapshot: the same locations.
  ASSERT_TRUE(Shell("qemu-img snapshot -a s1 " + Path("image")));
  const auto back = Open("image");
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(All(MakeQcow2DeltaCursor({back, "s1"}, {back, {}})), Ranges());
}

TEST_P(Qcow2ToolsTest, ChainsOfFiles) {
  const Shape& shape = GetParam();
  // A raw file with holes, smaller than the images above it.
  const uint64_t raw_size = AlignDown(shape.size / 3 * 2, 4096) + 512;
  ASSERT_TRUE(Shell("truncate -s " + std::to_string(raw_size) + " " + Path("raw")));
  for (int i = 0; i < 6; ++i) {
    const uint64_t page = random_() % (raw_size / 4096);
    ASSERT_TRUE(Shell("yes | dd conv=notrunc bs=4096 count=3 iflag=fullblock of=" + Path("raw") +
                      " seek=" + std::to_string(page)));
  }
  Create("one", shape, "raw", "raw");
  std::vector<std::string> names = {"one"};
  std::vector<std::vector<char>> bytes;
  std::vector<std::vector<bool>> touched;
  Change("one", shape.size, shape.cluster, 8);
  bytes.push_back(Bytes("one"));
  touched.push_back(touched_);
  // Larger on top, then smaller; one with another cluster size.
  const uint64_t sizes[] = {shape.size + 3 * kSector, shape.size / 2 / kSector * kSector,
                            shape.size};
  const char* const other = "cluster_size=16k";
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "above" + std::to_string(i);
    Create(name, sizes[i], i == 2 ? other : shape.options, names.back(), "qcow2");
    Change(name, sizes[i], i == 2 ? 16384 : shape.cluster, 6);
    names.push_back(name);
    touched.push_back(touched_);
    bytes.push_back(Bytes(name));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const auto image = Open(names[i]);
    ASSERT_NE(image, nullptr);
    EXPECT_EQ(image->depth(), i + 2);
    const Map map = MapOf(names[i]);
    EXPECT_EQ(All(MakeQcow2AllocationCursor({image, {}})), map.data);
    EXPECT_EQ(All(MakeQcow2LayerCursor({image, {}})), map.layer);
    for (size_t k = 0; k < names.size(); ++k) {
      const auto base = Open(names[k]);
      CheckDelta({base, {}}, {image, {}}, bytes[k], bytes[i], k + 1 == i ? &touched[i] : nullptr);
    }
  }
}

TEST_P(Qcow2ToolsTest, OverlayAgainstItsBase) {
  const Shape& shape = GetParam();
  Create("base", shape);
  Change("base", shape.size, shape.cluster, 10);
  Create("left", shape, "base", "qcow2");
  Create("right", shape, "base", "qcow2");
  Change("left", shape.size, shape.cluster, 6);
  const std::vector<bool> left_touched = touched_;
  Change("right", shape.size, shape.cluster, 6);
  std::vector<bool> both = left_touched;
  for (size_t i = 0; i < both.size(); ++i) both[i] = both[i] || touched_[i];
  const auto base = Open("base");
  const auto left = Open("left");
  const auto right = Open("right");
  ASSERT_TRUE(base != nullptr && left != nullptr && right != nullptr);
  const auto base_bytes = Bytes("base");
  const auto left_bytes = Bytes("left");
  CheckDelta({base, {}}, {left, {}}, base_bytes, left_bytes, &left_touched);
  CheckDelta({left, {}}, {base, {}}, left_bytes, base_bytes, &left_touched);
  CheckDelta({left, {}}, {right, {}}, left_bytes, Bytes("right"), &both);
  // The layer reports at least the delta.
  const auto layer = Sectors(All(MakeQcow2LayerCursor({left, {}})), shape.size);
  const auto delta = Sectors(All(MakeQcow2DeltaCursor({base, {}}, {left, {}})), shape.size);
  for (size_t i = 0; i < delta.size(); ++i) ASSERT_TRUE(!delta[i] || layer[i]);
}

TEST_P(Qcow2ToolsTest, CompressedClusters) {
  const Shape& shape = GetParam();
  Create("plain", shape);
  Change("plain", shape.size, shape.cluster, 12);
  ASSERT_TRUE(Shell("qemu-img convert -c -O qcow2 -o " + std::string(shape.options) + " " +
                    Path("plain") + " " + Path("image")));
  const auto before = Bytes("image");
  const auto packed = Open("image");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(All(MakeQcow2AllocationCursor({packed, {}})), MapOf("image").data);
  ASSERT_TRUE(Shell("qemu-img snapshot -c s " + Path("image")));
  Change("image", shape.size, shape.cluster, 8);
  const auto image = Open("image");
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(All(MakeQcow2AllocationCursor({image, {}})), MapOf("image").data);
  CheckDelta({image, "s"}, {image, {}}, before, Bytes("image"), &touched_);
}

TEST_P(Qcow2ToolsTest, Resized) {
  const Shape& shape = GetParam();
  const bool old = std::string(shape.options).find("0.10") != std::string::npos;
  Create("base", shape);
  Change("base", shape.size, shape.cluster, 10);
  Create("image", shape, "base", "qcow2");
  const auto base_bytes = Bytes("base");
  for (const int64_t growth : {+5, -40, +90}) {
    // Backing data from before the shrink must be covered with zeros, which version 2 cannot store.
    if (old && growth == 90) break;
    uint64_t size = Open("image")->virtual_size();
    size = AlignDown(size + static_cast<uint64_t>(growth * static_cast<int64_t>(shape.cluster) / 4),
                     kSector);
    if (!old) {
      ASSERT_TRUE(Shell("qemu-img snapshot -c s" + std::to_string(growth) + " " + Path("image")));
    }
    // An image with snapshots cannot shrink.
    if (!old && growth < 0) {
      ASSERT_TRUE(Shell("qemu-img snapshot -d s5 " + Path("image")));
      ASSERT_TRUE(Shell("qemu-img snapshot -d s-40 " + Path("image")));
    }
    ASSERT_TRUE(
        Shell("qemu-img resize --shrink -f qcow2 " + Path("image") + " " + std::to_string(size)));
    Change("image", size, shape.cluster, 4);
    const auto base = Open("base");
    const auto image = Open("image");
    ASSERT_TRUE(base != nullptr && image != nullptr);
    ASSERT_EQ(image->virtual_size(), size);
    const auto bytes = Bytes("image");
    EXPECT_EQ(All(MakeQcow2AllocationCursor({image, {}})), MapOf("image").data);
    CheckDelta({base, {}}, {image, {}}, base_bytes, bytes, nullptr);
    CheckDelta({image, {}}, {base, {}}, bytes, base_bytes, nullptr);
    for (const Qcow2Snapshot& snapshot : image->snapshots()) {
      // qemu-img reads a snapshot with the image's current size.
      auto then = Bytes("image", snapshot.name);
      then.resize(snapshot.virtual_size);
      CheckDelta({image, snapshot.id}, {image, {}}, then, bytes, nullptr);
      CheckDelta({image, {}}, {image, snapshot.id}, bytes, then, nullptr);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Qcow2ToolsTest,
    testing::Values(Shape{"Smallest", 512, kMiB + 512 * 7, "cluster_size=512"},
                    Shape{"SmallestOld", 512, kMiB + 512, "cluster_size=512,compat=0.10"},
                    Shape{"Small", 4096, 5 * kMiB, "cluster_size=4k"},
                    Shape{"Default", 65536, 6 * kMiB + 512, "compat=1.1"},
                    Shape{"Old", 65536, 6 * kMiB, "compat=0.10"},
                    Shape{"Largest", 2 * kMiB, 24 * kMiB + 1024, "cluster_size=2M"},
                    Shape{"Subclusters", 65536, 6 * kMiB + 512, "extended_l2=on"},
                    Shape{"SmallSubclusters", 16384, 3 * kMiB, "extended_l2=on,cluster_size=16k"},
                    Shape{"Zstd", 65536, 6 * kMiB, "compression_type=zstd"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace qcow2_tools_test
}  // namespace cbt
