// `.cbm` files: exactly what was written is read.
#include "map/map_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_io.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map_file.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace map_file_test {

using test::Blocks;
using test::BlocksOf;
using test::ValueOf;
using testing::HasSubstr;
using testing::Not;

constexpr VolumeGeometry kVolume = {kTiB, 4096};

ChangeMap SmallMap() {
  ChangeMap map = test::MapOf({1, 3, 65536, 65537, 65538, 65539}, {kGiB, 4096});
  map.set_identity({"vol", "monday", "tuesday"});
  return map;
}

// A payload of several pieces, with containers across piece boundaries.
ChangeMap LargeMap() {
  Blocks blocks;
  for (uint64_t key = 0; key < 30; ++key) {
    for (uint64_t i = 0; i < 5000; ++i) blocks.push_back((key << 16) + i * 7 + key);
  }
  ChangeMap map = test::MapOf(blocks, kVolume);
  map.set_identity({"vol", "monday", "tuesday"});
  return map;
}

void Spill(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

// Recomputes the header's checksum after a change.
void Seal(std::vector<uint8_t>& bytes) {
  uint32_t header;
  std::memcpy(&header, bytes.data() + 12, sizeof(header));
  const uint64_t checksum = Checksum({bytes.data(), header - 8});
  std::memcpy(bytes.data() + header - 8, &checksum, sizeof(checksum));
}

absl::Status Read(const std::vector<uint8_t>& bytes) {
  return DecodeChangeMap(bytes, "x.cbm").status();
}

TEST(MapFileTest, ReadsWhatWasWritten) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  for (const ChangeMap& map :
       {SmallMap(), LargeMap(), ValueOf(ChangeMap::Empty(kVolume)), ChangeMap()}) {
    const absl::StatusOr<ChangeMapHeader> written = WriteChangeMap(map, path);
    ASSERT_OK(written);
    const absl::StatusOr<ChangeMap> read = ReadChangeMap(path);
    ASSERT_OK(read);
    EXPECT_TRUE(read->view() == map.view());
    EXPECT_EQ(read->identity(), map.identity());
    ASSERT_OK_AND_ASSIGN(const ChangeMapHeader header, ReadChangeMapHeader(path));
    EXPECT_EQ(header.checksum, written->checksum);
    EXPECT_EQ(header.geometry, map->geometry());
    EXPECT_EQ(header.identity, map.identity());
    EXPECT_EQ(header.cardinality, map->cardinality());
    EXPECT_EQ(header.payload_bytes, map->portable().size());
    EXPECT_EQ(header.file_bytes, test::ReadFile<std::vector<uint8_t>>(path).size());
    EXPECT_EQ(test::ReadFile<std::vector<uint8_t>>(path), ValueOf(EncodeChangeMap(map)));
    EXPECT_TRUE(DecodeChangeMap(test::ReadFile<std::vector<uint8_t>>(path), path)->view() ==
                map.view());
    EXPECT_EQ(ValueOf(test::Drain(*ValueOf(OpenChangeMapCursor(path)), 100)),
              ValueOf(test::Drain(*MakeChangeMapCursor(map), 100)));
    // No temporary file remains.
    EXPECT_EQ(directory.Names(), (std::vector<std::string>{"x.cbm"}));
  }
}

// The worked example of docs/reference/format.md.
TEST(MapFileTest, BytesOfTheExample) {
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  const std::vector<uint8_t> want = {
      0x89, 'C',  'B',  'M',  '\r', '\n', 0x1a, '\n',  // magic
      1,    0,    0,    0,                             // version 1.0
      112,  0,    0,    0,                             // size of the header
      0,    0,    0,    0,    0,    0,    0,    0,     // required features
      0,    0,    0,    0,    0,    0,    0,    0,     // optional features
      0,    0,    0,    0x40, 0,    0,    0,    0,     // capacity 2^30
      0,    0x10, 0,    0,    0,    0,    0,    0,     // granularity 4096
      6,    0,    0,    0,    0,    0,    0,    0,     // blocks
      35,   0,    0,    0,    0,    0,    0,    0,     // size of the payload
      16,   0,    0,    0,                             // pieces of 2^16 bytes
      3,    0,    6,    0,    7,    0,    0,    0,     // sizes of the names
      0,    0,    0,    0,                             // size of the extension
      'v',  'o',  'l',  'm',  'o',  'n',  'd',  'a',  'y',  't',  'u',  'e', 's',
      'd',  'a',  'y',  0xe0, 0x4d, 0x39, 0xac, 0x70, 0x2b, 0x87, 0x17,  // checksum of the payload
      0xff, 0x6a, 0xd1, 0xfc, 0xc8, 0x93, 0x5f, 0x55,                    // of the header
      1,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,   0x3b,
      0x30, 1,    0,    2,    0,    0,    1,    0,    1,    0,    3,    0,   1,
      0,    3,    0,    1,    0,    0,    0,    3,    0,
  };
  EXPECT_EQ(bytes, want);
}

// A whole number of pieces has one checksum for each, and no empty piece after the last.
TEST(MapFileTest, APayloadMayFillItsPieces) {
  constexpr uint32_t kPieceBytes = 65'536;
  Blocks blocks;
  for (uint64_t key = 0; key < 8; ++key) {
    // Seven bitmaps, and an array that fills the rest.
    for (uint64_t i = 0; i < (key < 7 ? 21'000u : 4'054u); ++i)
      blocks.push_back((key << 16) + 3 * i);
  }
  ChangeMap map = test::MapOf(blocks, kVolume);
  map.set_identity(SmallMap().identity());
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> bytes, EncodeChangeMap(map));
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> small, EncodeChangeMap(SmallMap()));
  const auto header_of = [](const std::vector<uint8_t>& file) {
    uint32_t header;
    std::memcpy(&header, file.data() + 12, sizeof(header));
    return header;
  };
  ASSERT_EQ(bytes.size() - header_of(bytes), kPieceBytes);
  EXPECT_EQ(header_of(bytes), header_of(small));
  EXPECT_EQ(BlocksOf(ValueOf(DecodeChangeMap(bytes, "x.cbm"))), blocks);
}

TEST(MapFileTest, EveryFlippedBitIsFound) {
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    EXPECT_FALSE(Read(bytes).ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
  }
  EXPECT_OK(Read(bytes));
}

TEST(MapFileTest, EveryFlippedBitIsFoundInALargeFile) {
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(LargeMap()));
  test::SeededRandom random(1);
  for (int i = 0; i < 300; ++i) {
    const size_t bit = random() % (bytes.size() * 8);
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    const absl::Status status = Read(bytes);
    EXPECT_NE(status.message().find("x.cbm: "), std::string::npos)
        << "bit " << bit << ": " << status;
    EXPECT_FALSE(status.ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
  }
}

TEST(MapFileTest, EveryLengthIsFound) {
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = Read({bytes.begin(), bytes.begin() + static_cast<long>(size)});
    EXPECT_FALSE(status.ok()) << size;
    // The magic is there but the header is not: no field may be parsed.
    if (size >= 8 && size < 64) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ends in its header")) << size;
    }
  }
  bytes.push_back(0);
  EXPECT_EQ(Read(bytes).code(), absl::StatusCode::kDataLoss);
}

TEST(MapFileTest, OtherFilesAreNamedAsWhatTheyAre) {
  const std::string text =
      "not a map, but long enough for a header, which takes 88 bytes or so. "
      "This one has a few more than that.";
  const absl::Status other = Read({text.begin(), text.end()});
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other.message(), "x.cbm: not a change-map file (wrong magic number)");
  EXPECT_EQ(Read({}).code(), absl::StatusCode::kInvalidArgument);
  const test::TempDir directory;
  EXPECT_EQ(ReadChangeMap(directory.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadChangeMap(directory.path() + "/none").status().code(), absl::StatusCode::kNotFound);
}

TEST(MapFileTest, NewerVersionsAndUnknownFeaturesAreRefusedByName) {
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  bytes[8] = 2;
  bytes[10] = 3;
  EXPECT_EQ(Read(bytes).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Read(bytes).message(),
            "x.cbm: has version 2.3 of the change-map format; this program reads version 1");
  // A newer minor version and unknown optional features are accepted.
  ASSERT_OK_AND_ASSIGN(bytes, EncodeChangeMap(SmallMap()));
  bytes[10] = 7;
  bytes[24] = 0xff;
  Seal(bytes);
  EXPECT_OK(Read(bytes));
  bytes[17] = 1;
  Seal(bytes);
  EXPECT_EQ(Read(bytes).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Read(bytes).message(), "x.cbm: uses features (100) that this program does not know");
}

// A later minor version may add extensions.
TEST(MapFileTest, ExtensionsAreSkipped) {
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  const std::vector<uint8_t> extension(16, 0xee);
  bytes.insert(bytes.begin() + 96, extension.begin(), extension.end());
  bytes[12] = static_cast<uint8_t>(bytes[12] + 16);
  bytes[76] = 16;
  Seal(bytes);
  const absl::StatusOr<ChangeMap> map = DecodeChangeMap(bytes, "x.cbm");
  ASSERT_OK(map);
  EXPECT_TRUE(map->view() == SmallMap().view());
}

// Recomputed checksums alone do not make an invalid header valid.
TEST(MapFileTest, HeadersThatContradictTheFileAreRefused) {
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> sound, EncodeChangeMap(SmallMap()));
  for (size_t at = 12; at < 96; ++at) {
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      std::vector<uint8_t> bytes = sound;
      bytes[at] = static_cast<uint8_t>(value);
      uint32_t header;
      std::memcpy(&header, bytes.data() + 12, sizeof(header));
      if (header >= 88 && header <= bytes.size()) Seal(bytes);
      const absl::StatusOr<ChangeMap> map = DecodeChangeMap(bytes, "x.cbm");
      // Changed features, geometries and names are accepted as long as the blocks fit.
      if (map.ok()) {
        EXPECT_TRUE(at >= 24 && at < 48 ? true : at >= 80 || bytes == sound) << at << ' ' << value;
        EXPECT_EQ(map->view().cardinality(), 6u);
      }
    }
  }
}

TEST(MapFileTest, NamesAreTextOfBoundedLength) {
  ChangeMap map = SmallMap();
  const std::string longest(kMaxMapNameBytes, 'x');
  map.set_identity({longest, longest, longest});
  EXPECT_EQ(DecodeChangeMap(ValueOf(EncodeChangeMap(map)), "x")->identity().base, longest);
  map.set_identity({"v", "\xe2\x82\xac", ""});
  EXPECT_EQ(DecodeChangeMap(ValueOf(EncodeChangeMap(map)), "x")->identity().base, "\xe2\x82\xac");
  for (const std::string& wrong : {longest + "x", std::string("\xff"), std::string("\xe2\x82"),
                                   std::string("\xc0\x80"), std::string("a\0b", 3)}) {
    map.set_identity({"v", wrong, "t"});
    EXPECT_EQ(EncodeChangeMap(map).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(MapFileTest, ALazyCursorFindsDamageWhenItGetsThere) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  const ChangeMap map = LargeMap();
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(map));
  ASSERT_OK_AND_ASSIGN(const reference::Ranges full, test::Drain(*MakeChangeMapCursor(map), 1000));
  bytes[bytes.size() - 100] ^= 4;
  Spill(path, bytes);
  EXPECT_EQ(ReadChangeMap(path).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ExtentCursor> cursor, OpenChangeMapCursor(path));
  reference::Ranges reported;
  ExtentBatch batch(1000);
  absl::StatusOr<Step> step = Step::kMore;
  while ((step = cursor->Next(batch)).ok()) {
    ASSERT_EQ(*step, Step::kMore);
    for (size_t i = 0; i < batch.size(); ++i)
      reported.emplace_back(batch[i].offset, batch[i].length);
  }
  EXPECT_EQ(step.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(step.status().message().find("x.cbm: offset "), std::string::npos) << step.status();
  EXPECT_GT(reported.size(), 1000u);
  EXPECT_TRUE(std::equal(reported.begin(), reported.end(), full.begin()));
  EXPECT_LT(cursor->covered(), cursor->capacity());
}

// A container table that crosses into the next checksum's page is verified under both.
TEST(MapFileTest, ALazyCursorFindsDamageInATableAcrossChecksums) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  Blocks blocks;
  for (uint64_t group = 0; group < 4; ++group) {
    const uint64_t first = group << 32;
    for (uint64_t key = 0; key < 2; ++key) {  // bitsets
      for (uint64_t i = 0; i < 5000; ++i) blocks.push_back(first + (key << 16) + i * 13);
    }
    for (uint64_t i = 0; i < 10; ++i) blocks.push_back(first + (2 << 16) + i);  // a run
  }
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes,
                       EncodeChangeMap(test::MapOf(blocks, {kPiB, uint64_t{4096}})));
  // The last group starts under the first checksum. Its last six bytes lie under the second: the
  // number of runs, which is read with the table, and the run.
  constexpr size_t kPage = 64 * kKiB;
  ASSERT_GT(bytes.size(), kPage + 6);
  ASSERT_LT(bytes.size() - 16500, kPage);
  for (const size_t place : {size_t{1}, size_t{6}}) {
    std::vector<uint8_t> damaged = bytes;
    damaged[bytes.size() - place] ^= 1;
    Spill(path, damaged);
    EXPECT_EQ(OpenChangeMapCursor(path).status().code(), absl::StatusCode::kDataLoss) << place;
  }
  Spill(path, bytes);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ExtentCursor> cursor, OpenChangeMapCursor(path));
  EXPECT_EQ(test::BlocksOf(*cursor), blocks);
}

// The structure is validated too, because a checksum does not prove good faith.
TEST(MapFileTest, ALazyCursorFindsNonsenseUnderGoodChecksums) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> bytes, EncodeChangeMap(SmallMap()));
  // The last container is a list of one run, (0, 3): make it (0, 0xffff).
  bytes[bytes.size() - 1] = 0xff;
  bytes[bytes.size() - 2] = 0xff;
  const uint64_t digest = Checksum({bytes.data() + 112, 35});
  std::memcpy(bytes.data() + 96, &digest, sizeof(digest));
  Seal(bytes);
  Spill(path, bytes);
  const absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = OpenChangeMapCursor(path);
  ASSERT_OK(cursor);
  EXPECT_EQ(test::Drain(**cursor).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadChangeMap(path).status().code(), absl::StatusCode::kDataLoss);
}

// A union of a thousand maps keeps a thousand of them loaded.
TEST(MapFileTest, MapsThatWereReadHoldNoDescriptors) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  ASSERT_OK(WriteChangeMap(SmallMap(), path));
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_files();
  const auto map = ReadChangeMap(path);
  ASSERT_OK(map);
  EXPECT_EQ(open_files(), before);
  EXPECT_OK(OpenChangeMapCursor(path));
  EXPECT_EQ(open_files(), before);
}

TEST(MapFileTest, AFileThatIsNotThereIsNamed) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  for (const absl::Status& status :
       {ReadChangeMap(path).status(), ReadChangeMapHeader(path).status(),
        OpenChangeMapCursor(path).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_NE(status.message().find(path), std::string::npos) << status;
  }
  ChangeMap map = SmallMap();
  map.set_identity({std::string(kMaxMapNameBytes + 1, 'x'), "monday", "tuesday"});
  EXPECT_EQ(WriteChangeMap(map, path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(directory.Names().empty());
}

// A server forwards messages to clients, which know names and not paths.
TEST(MapFileTest, ALabelTakesThePathsPlaceInMessages) {
  const test::TempDir dir;
  std::vector<uint8_t> bytes = ValueOf(EncodeChangeMap(SmallMap()));
  Spill(dir / "good", bytes);
  bytes.back() ^= 1;
  Spill(dir / "damaged", bytes);
  bytes[20] ^= 1;
  Spill(dir / "header", bytes);
  const auto whole = [](const std::string& path, std::string_view label) {
    return ReadChangeMap(path, label).status();
  };
  const auto header = [](const std::string& path, std::string_view label) {
    return ReadChangeMapHeader(path, label).status();
  };
  const auto lazy = [](const std::string& path, std::string_view label) {
    const auto cursor = OpenChangeMapCursor(path, label);
    return cursor.ok() ? test::Drain(**cursor).status() : cursor.status();
  };
  const std::vector<std::function<absl::Status(const std::string&, std::string_view)>> readers = {
      whole, header, lazy};
  for (size_t i = 0; i < readers.size(); ++i) {
    EXPECT_OK(readers[i](dir / "good", "vol1/tuesday"));
    for (const char* file : {"missing", "header", "damaged"}) {
      if (i == 1 && file == std::string_view("damaged")) continue;  // reads the header only
      const std::string text = readers[i](dir / file, "vol1/tuesday").ToString();
      EXPECT_THAT(text, HasSubstr("vol1/tuesday")) << i << file;
      EXPECT_THAT(text, Not(HasSubstr(dir / file))) << i << file;
      EXPECT_THAT(readers[i](dir / file, {}).ToString(), HasSubstr(dir / file)) << i << file;
    }
  }
}

// Run as root, a write could replace /dev/full by a file.
TEST(MapFileTest, ADeviceAPipeOrASocketIsNotReplaced) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  ASSERT_EQ(mkfifo(path.c_str(), 0700), 0);
  const absl::Status status = WriteChangeMap(SmallMap(), path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), testing::HasSubstr(path + ": is not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_EQ(directory.Names(), (std::vector<std::string>{"x.cbm"}));
}

TEST(MapFileTest, AFileThatCannotBeReplacedStays) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_FALSE(WriteChangeMap(SmallMap(), path).ok());
  EXPECT_EQ(directory.Names(), (std::vector<std::string>{"x.cbm"}));
  EXPECT_EQ(WriteChangeMap(SmallMap(), directory.path() + "/none/x.cbm").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MapFileTest, OnlyADirectoryIsSyncedAsOne) {
  const test::TempDir directory;
  const std::string path = directory.path() + "/x.cbm";
  ASSERT_OK(WriteChangeMap(SmallMap(), path));
  EXPECT_OK(SyncDirectory(directory.path()));
  EXPECT_EQ(SyncDirectory(path).code(), absl::StatusCode::kNotFound);
}

// A file that large is too slow for a test: the header grows linearly with the payload.
TEST(MapFileTest, TheLargestMapFitsIntoTheLargestFile) {
  constexpr size_t kPiece = 64 * kKiB;
  const auto header_bytes = [](size_t payload) {
    ChangeMapHeader header;
    header.geometry = kVolume;
    header.identity = {std::string(1000, 'v'), std::string(1000, 'b'), std::string(1000, 't')};
    return ValueOf(EncodeMapHeader(header, std::vector<uint8_t>(payload))).size();
  };
  const uint64_t one = header_bytes(kPiece);
  const uint64_t each = header_bytes(2 * kPiece) - one;
  ASSERT_GT(each, 0u);
  const uint64_t largest = kMaxMapBytes + one + (kMaxMapBytes / kPiece - 1) * each;
  EXPECT_GE(kMaxMapFileBytes, largest);
  // And a file that is not a map does not fill the memory.
  EXPECT_LE(kMaxMapFileBytes, largest + kMaxMapBytes / 8);
}

}  // namespace map_file_test
}  // namespace cbt
