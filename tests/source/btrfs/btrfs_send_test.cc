#include "cbt/source/btrfs_send.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "source/btrfs/crc32c.h"
#include "tests/support/btrfs_writer.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace btrfs_send_test {

using absl::StatusCode;
using reference::Ranges;
using test::Attribute;
using test::BtrfsWriter;
using test::Little;
using test::ValueOf;

absl::StatusOr<ChangeMap> Read(const std::string& bytes, const BtrfsSendOptions& options = {}) {
  const auto stream = MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "the stream");
  return ReadBtrfsSend(*stream, options);
}

absl::StatusOr<ChangeMap> Read(const BtrfsWriter& writer, const BtrfsSendOptions& options = {}) {
  return Read(writer.bytes(), options);
}

Ranges RangesOf(absl::StatusOr<ChangeMap> map) { return test::RangesOf(ValueOf(std::move(map))); }

// The expected file size in most of these tests.
constexpr uint64_t kSize = 1'000'000;

BtrfsSendOptions For(const std::string& path, std::optional<uint64_t> capacity = kSize) {
  return {.path = path, .capacity = capacity};
}

Ranges Everything(uint64_t size = kSize) { return {{0, size}}; }

// Recorded with btrfs-progs 6.2 on kernel 6.18: in a file of 4 MiB, [40960, 53248) was written,
// then [40960, 49152) was punched out, then the file was extended.
constexpr uint8_t kRecorded[] = {
    0x62, 0x74, 0x72, 0x66, 0x73, 0x2d, 0x73, 0x74, 0x72, 0x65, 0x61, 0x6d, 0x00, 0x01, 0x00, 0x00,
    0x00, 0x45, 0x00, 0x00, 0x00, 0x02, 0x00, 0xa7, 0x32, 0xf8, 0x51, 0x0f, 0x00, 0x01, 0x00, 0x62,
    0x01, 0x00, 0x10, 0x00, 0x8c, 0x8a, 0xa5, 0x9c, 0xc0, 0x1c, 0xf0, 0x45, 0xa6, 0x30, 0xae, 0xc5,
    0x5f, 0x5a, 0xf2, 0x1f, 0x02, 0x00, 0x08, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x14, 0x00, 0x10, 0x00, 0x32, 0x2e, 0x15, 0xcb, 0xe5, 0x2f, 0x43, 0x4e, 0x9d, 0xc6, 0x9f, 0x56,
    0x94, 0x53, 0xed, 0x2a, 0x15, 0x00, 0x08, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x24, 0x00, 0x00, 0x00, 0x16, 0x00, 0xac, 0xc2, 0x42, 0x24, 0x0f, 0x00, 0x08, 0x00, 0x64, 0x69,
    0x73, 0x6b, 0x2e, 0x69, 0x6d, 0x67, 0x12, 0x00, 0x08, 0x00, 0x00, 0xc0, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x04, 0x00, 0x08, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x24, 0x00,
    0x00, 0x00, 0x16, 0x00, 0xde, 0x6e, 0x3e, 0x25, 0x0f, 0x00, 0x08, 0x00, 0x64, 0x69, 0x73, 0x6b,
    0x2e, 0x69, 0x6d, 0x67, 0x12, 0x00, 0x08, 0x00, 0x00, 0xa0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x04, 0x00, 0x08, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x18, 0x00, 0x00, 0x00,
    0x11, 0x00, 0xa3, 0x8d, 0x8e, 0x77, 0x0f, 0x00, 0x08, 0x00, 0x64, 0x69, 0x73, 0x6b, 0x2e, 0x69,
    0x6d, 0x67, 0x04, 0x00, 0x08, 0x00, 0x40, 0x4b, 0x4c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3c, 0x00,
    0x00, 0x00, 0x14, 0x00, 0x0f, 0x4d, 0x32, 0xf6, 0x0f, 0x00, 0x08, 0x00, 0x64, 0x69, 0x73, 0x6b,
    0x2e, 0x69, 0x6d, 0x67, 0x0b, 0x00, 0x0c, 0x00, 0xda, 0x8b, 0x01, 0x6b, 0x00, 0x00, 0x00, 0x00,
    0x2d, 0x85, 0xb9, 0x0b, 0x0a, 0x00, 0x0c, 0x00, 0xda, 0x8b, 0x01, 0x6b, 0x00, 0x00, 0x00, 0x00,
    0xaf, 0xfc, 0x70, 0x13, 0x09, 0x00, 0x0c, 0x00, 0xda, 0x8b, 0x01, 0x6b, 0x00, 0x00, 0x00, 0x00,
    0xaf, 0xfc, 0x70, 0x13, 0x00, 0x00, 0x00, 0x00, 0x15, 0x00, 0x50, 0x6c, 0xc9, 0x9d,
};

TEST(BtrfsSendTest, ReadsARecordedStream) {
  const std::string bytes(reinterpret_cast<const char*>(kRecorded), sizeof(kRecorded));
  ASSERT_OK_AND_ASSIGN(const ChangeMap map, Read(bytes));
  EXPECT_EQ(test::RangesOf(map), (Ranges{{40960, 12288}}));
  EXPECT_EQ(map->capacity(), 5'000'000);
  EXPECT_EQ(map.identity(),
            (ChangeMapIdentity{"disk.img", "322e15cb-e52f-434e-9dc6-9f569453ed2a", "b"}));
  EXPECT_EQ(RangesOf(Read(bytes, {.path = "disk.img", .granularity = 65536})),
            (Ranges{{0, 65536}}));
  EXPECT_EQ(Read(bytes, {.path = "other"}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read(bytes, {.capacity = 4 * kMiB}).status().code(), StatusCode::kInvalidArgument);
  const ChangeMapIdentity given = {"volume", "base", "target"};
  EXPECT_EQ(ValueOf(Read(bytes, {.identity = given})).identity(), given);
}

// Every truncation and every bit flip is found.
TEST(BtrfsSendTest, DamageIsNeverOverlooked) {
  BtrfsWriter second(2);
  second.Snapshot().WriteEncoded("disk.img", 4096, 8192, "abc").Write("disk.img", 0, "data");
  second.Truncate("disk.img", 100'000).End();
  for (const std::string& bytes :
       {std::string(reinterpret_cast<const char*>(kRecorded), sizeof(kRecorded)), second.bytes()}) {
    ASSERT_OK(Read(bytes));
    for (size_t size = 0; size < bytes.size(); ++size) {
      const absl::Status status = Read(bytes.substr(0, size)).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size << status;
      EXPECT_NE(status.message().find("the stream: "), std::string::npos) << status;
    }
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      // No checksum covers the version.
      const bool version = bit / 8 >= 13 && bit / 8 < 17;
      const auto code = Read(flipped).status().code();
      if (!version) {
        EXPECT_EQ(code, StatusCode::kDataLoss) << bit;
      }
    }
    EXPECT_EQ(Read(bytes + '\0').status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(Read(bytes + bytes).status().code(), StatusCode::kDataLoss);
  }
}

TEST(BtrfsSendTest, EveryKindOfChangeCounts) {
  BtrfsWriter writer(3);
  writer.Snapshot();
  writer.Write("f", 0, "x");
  writer.Clone("f", 10'000, 5000);
  writer.Update("f", 40'960, 4096);
  writer.WriteEncoded("f", 81'920, 131'072, "zz");
  writer.Allocate("f", 3, 300'000, 1);     // a hole, keeping the size
  writer.Allocate("f", 0x10, 400'000, 1);  // zeros
  writer.Allocate("f", 0x40, 500'000, 1);
  writer.Update("f", 600'000, 0);  // empty
  writer.Times("f").Times("").End();
  const Ranges want = {{0, 4096},       {8192, 8192},    {40'960, 4096}, {81'920, 131'072},
                       {299'008, 4096}, {397'312, 4096}, {499'712, 4096}};
  EXPECT_EQ(RangesOf(Read(writer, For("f"))), want);
  // Many changes in any order; none may be lost on the way to a map.
  test::SeededRandom random(1);
  BtrfsWriter many;
  many.Snapshot();
  reference::ByteSet set(kSize);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t offset = random() % (kSize - 300);
    many.Update("f", offset, 1 + random() % 300);
    if (i % 2 == 0) many.Update("g", random() % kSize, 5);
  }
  many.End();
  BtrfsSendOptions fine = For("f");
  fine.granularity = 1;
  const std::string& bytes = many.bytes();
  const Ranges got = RangesOf(Read(bytes, fine));
  random.seed(1);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t offset = random() % (kSize - 300);
    const uint64_t length = 1 + random() % 300;
    for (uint64_t k = 0; k < length; ++k) set[offset + k] = true;
    if (i % 2 == 0) random();
  }
  EXPECT_EQ(got, reference::RunsOf(set));
}

// The kernel punches holes into blocks that were allocated past the end of a file, and the stream
// does not say again how large that is.
TEST(BtrfsSendTest, SEWhatKeepsTheSizeIsNoGrowth) {
  const auto changed = [](uint32_t mode, uint64_t offset, uint64_t length) {
    return Read(BtrfsWriter(2).Snapshot().Allocate("f", mode, offset, length).Times("f").End(),
                For("f"));
  };
  const Ranges tail = {{kSize - 8192 - 576, 8192 + 576}};  // rounded down to a block
  for (const uint32_t mode : {3U, 0x11U}) {
    EXPECT_EQ(RangesOf(changed(mode, kSize - 8192, 1 << 30)), tail) << mode;
    EXPECT_EQ(RangesOf(changed(mode, kSize - 8192, UINT64_MAX)), tail) << mode;
    EXPECT_EQ(RangesOf(changed(mode, kSize + 4096, 8192)), Ranges{}) << mode;
    EXPECT_EQ(RangesOf(changed(mode, UINT64_MAX, 1)), Ranges{}) << mode;
  }
  // What may extend the file still contradicts a smaller size.
  EXPECT_EQ(changed(0x10, kSize - 8192, 1 << 30).status().code(), StatusCode::kInvalidArgument);
}

TEST(BtrfsSendTest, DataLongerThanAnyBufferArePassedOver) {
  BtrfsWriter writer(2);
  writer.Snapshot().Write("f", 4096, std::string(3'000'001, 'x')).Truncate("f", 5 * kMiB).End();
  EXPECT_EQ(RangesOf(Read(writer, {.path = "f"})), (Ranges{{4096, 3'002'368}}));
  EXPECT_EQ(Read(writer.bytes().substr(0, 1'000'000)).status().code(), StatusCode::kDataLoss);
}

TEST(BtrfsSendTest, SizeComesFromTheStreamOrTheCaller) {
  const auto changes = [](auto&&... steps) {
    BtrfsWriter writer;
    writer.Snapshot().Update("f", 8192, 4096);
    (steps(writer), ...);
    return writer.End().bytes();
  };
  const auto cut = [](uint64_t size) {
    return [size](BtrfsWriter& writer) { writer.Truncate("f", size); };
  };
  const auto update = [](uint64_t offset) {
    return [offset](BtrfsWriter& writer) { writer.Update("f", offset, 4096); };
  };
  EXPECT_EQ(Read(changes(), For("f", std::nullopt)).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(RangesOf(Read(changes(), For("f"))), (Ranges{{8192, 4096}}));
  EXPECT_EQ(RangesOf(Read(changes(), For("f", 12'288))), (Ranges{{8192, 4096}}));
  EXPECT_EQ(Read(changes(), For("f", 12'287)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(changes(), For("f", 0)).status().code(), StatusCode::kInvalidArgument);
  // A size change alone changes nothing below it.
  EXPECT_EQ(RangesOf(Read(changes(cut(20'000)), For("f", std::nullopt))), (Ranges{{8192, 4096}}));
  EXPECT_EQ(Read(changes(cut(20'000)), For("f", 20'001)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(RangesOf(Read(changes(cut(9000)), For("f", 9000))), (Ranges{{8192, 808}}));
  EXPECT_EQ(RangesOf(Read(changes(cut(0)), For("f", 0))), Ranges{});
  // A range that was cut off and grown again reads as zeros.
  EXPECT_EQ(RangesOf(Read(changes(cut(5000), cut(20'000)), For("f", 20'000))),
            (Ranges{{4096, 20'000 - 4096}}));
  EXPECT_EQ(RangesOf(Read(changes(cut(5000), update(16'384)), For("f", 20'480))),
            (Ranges{{4096, 20'480 - 4096}}));
  // A write past the end extends the file.
  EXPECT_EQ(ValueOf(Read(changes(cut(10'000), update(16'384)), For("f", std::nullopt)))->capacity(),
            20'480);
}

TEST(BtrfsSendTest, FilesAreFollowedThroughRenames) {
  BtrfsWriter writer;
  writer.Snapshot();
  writer.Update("images/a", 0, 1);
  writer.Rename("images", "o258-7-0").MakeDirectory("new").Rename("o258-7-0", "new/images");
  writer.Update("new/images/a", 8192, 1);
  writer.Rename("new/images/a", "b").Update("b", 16'384, 1).Link("c", "b");
  writer.Update("c", 24'576, 1).Unlink("b").Update("c", 32'768, 1).End();
  BtrfsSendOptions options = For("c");
  options.base_path = "images/a";
  const Ranges want = {{0, 4096}, {8192, 4096}, {16'384, 4096}, {24'576, 4096}, {32'768, 4096}};
  EXPECT_EQ(RangesOf(Read(writer, options)), want);
  // In the base this name belonged to no file, or to another.
  EXPECT_EQ(RangesOf(Read(writer, For("c"))), Everything());
  options.base_path = "b";
  EXPECT_EQ(RangesOf(Read(writer, options)), Everything());
  EXPECT_EQ(Read(writer, For("b")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(writer, For("images/a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(writer, For("new/images/a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(writer, For("new")).status().code(), StatusCode::kInvalidArgument);
}

// Editors save this way: the old file may have had data where the new one has none.
TEST(BtrfsSendTest, ReplacedFileHasChangedEverywhere) {
  BtrfsWriter made;
  made.Snapshot().MakeFile("o300-8-0").Update("o300-8-0", 0, 4096).Truncate("o300-8-0", kSize);
  made.Unlink("f").Rename("o300-8-0", "f").End();
  EXPECT_EQ(RangesOf(Read(made, For("f"))), Everything());
  EXPECT_EQ(RangesOf(Read(made)), Everything());

  BtrfsWriter swapped;
  swapped.Snapshot().Rename("f", "o256-7-0").Rename("g", "f").Rename("o256-7-0", "g").End();
  EXPECT_EQ(RangesOf(Read(swapped, For("f"))), Everything());
  EXPECT_EQ(RangesOf(Read(swapped, For("g"))), Everything());
  BtrfsSendOptions known = For("g");
  known.base_path = "f";
  EXPECT_EQ(RangesOf(Read(swapped, known)), Ranges{});

  BtrfsWriter directory;
  directory.Snapshot().Rename("d", "e").Rename("x", "d").Update("d/f", 0, 1).End();
  EXPECT_EQ(RangesOf(Read(directory, For("d/f"))), Everything());
  EXPECT_EQ(RangesOf(Read(directory, For("e/f"))), Everything());

  // Removed and created again: nothing of the base remains.
  BtrfsWriter again;
  again.Snapshot().Unlink("f").MakeFile("f").End();
  EXPECT_EQ(RangesOf(Read(again, For("f", 0))), Ranges{});
  EXPECT_EQ(Read(again, For("f")).status().code(), StatusCode::kInvalidArgument);
  BtrfsWriter gone;
  gone.Snapshot().Unlink("f").End();
  EXPECT_EQ(Read(gone, For("f")).status().code(), StatusCode::kNotFound);
}

// A stream uses one of an inode's names; the caller may have asked for another.
TEST(BtrfsSendTest, OtherNamesOfTheFileAreNotOverlooked) {
  BtrfsWriter writer;
  writer.Snapshot().Update("other", 0, 4096).Times("other").End();
  EXPECT_EQ(Read(writer, For("f")).status().code(), StatusCode::kFailedPrecondition);
  BtrfsSendOptions there = For("f");
  there.path_exists = true;
  const absl::Status status = Read(writer, there).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("among other: say single-name"), std::string::npos) << status;
  EXPECT_EQ(status.message().find("path-exists"), std::string::npos) << status;
  BtrfsSendOptions single = there;
  single.single_name = true;
  EXPECT_EQ(RangesOf(Read(writer, single)), Ranges{});
  // The stream uses the caller's name, so all changes are under it.
  BtrfsWriter named;
  named.Snapshot().Update("other", 0, 4096).Times("f").End();
  EXPECT_EQ(RangesOf(Read(named, For("f"))), Ranges{});
  // A file that the stream created cannot be the caller's; and if nothing changes, nothing is
  // hidden.
  BtrfsWriter fresh;
  fresh.Snapshot().MakeFile("other").Update("other", 0, 4096).Times("other").End();
  EXPECT_EQ(RangesOf(Read(fresh, there)), Ranges{});
  BtrfsWriter quiet;
  quiet.Snapshot().Times("other").End();
  EXPECT_EQ(RangesOf(Read(quiet, there)), Ranges{});
}

// A file that a stream never names may be unchanged, misspelt, or in a nested subvolume where
// anything may have changed.
TEST(BtrfsSendTest, AFileThatNobodyNamedIsNotCalledUnchanged) {
  BtrfsWriter busy;
  busy.Snapshot().Update("images/vm.raw", 0, 4096).Times("images/vm.raw").End();
  BtrfsWriter empty;
  empty.Snapshot().End();
  BtrfsWriter moved;
  moved.Snapshot().Rename("old", "images").Times("images").End();
  for (const BtrfsWriter* writer : {&busy, &empty, &moved}) {
    for (const std::string path : {"images/vm.rwa", "images/nested/vm.raw", "vm.raw"}) {
      for (const bool single : {false, true}) {
        for (const std::optional<uint64_t> capacity : {std::optional<uint64_t>(), {kSize}}) {
          BtrfsSendOptions options = For(path, capacity);
          options.single_name = single;
          if (writer == &moved && path.starts_with("images/")) {
            options.base_path = absl::StrCat("old", path.substr(6));
          }
          const absl::Status status = Read(*writer, options).status();
          EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << path;
          EXPECT_EQ(status.message().find(
                        absl::StrCat("the stream: the stream does not name ", path, "; ")),
                    0)
              << status;
          EXPECT_NE(status.message().find("say path-exists"), std::string::npos) << status;
          EXPECT_EQ(status.message().find("say single-name") != std::string::npos,
                    writer == &busy && !single)
              << status;
          if (!capacity.has_value()) continue;
          // The caller guarantees it.
          options.single_name = true;
          options.path_exists = true;
          EXPECT_EQ(RangesOf(Read(*writer, options)), Ranges{});
        }
      }
    }
  }
  // The guarantee does not override the stream.
  BtrfsSendOptions there = For("images/vm.raw");
  there.path_exists = true;
  EXPECT_EQ(RangesOf(Read(busy, there)), (Ranges{{0, 4096}}));
  there.path = "images";
  EXPECT_EQ(Read(busy, there).status().code(), StatusCode::kInvalidArgument);
  BtrfsWriter full;
  full.Full().MakeFile("f").End();
  there.path = "g";
  EXPECT_EQ(Read(full, there).status().code(), StatusCode::kNotFound);
  // Renaming or linking a file names it, and so does a command that changes nothing in it.
  BtrfsWriter named;
  named.Snapshot().Rename("f", "o256-7-0").Rename("o256-7-0", "f").Link("h", "g").Times("k").End();
  for (const char* path : {"f", "g", "k"}) {
    EXPECT_EQ(RangesOf(Read(named, For(path))), Ranges{}) << path;
  }
}

TEST(BtrfsSendTest, WithoutAPathThereMustBeOneFile) {
  BtrfsWriter none;
  none.Snapshot().Times("f").End();
  EXPECT_EQ(Read(none).status().code(), StatusCode::kFailedPrecondition);
  BtrfsWriter several;
  several.Snapshot();
  for (int i = 0; i < 12; ++i) several.Update(absl::StrCat("d/f", i), 0, 1);
  several.End();
  const absl::Status status = Read(several).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("d/f1, "), std::string::npos) << status;
  EXPECT_NE(status.message().find("..."), std::string::npos) << status;
  // A file that is removed again does not count.
  BtrfsWriter one;
  one.Snapshot().Update("f", 0, 1).Update("g", 0, 1).Unlink("g").End();
  EXPECT_EQ(RangesOf(Read(one, For(""))), (Ranges{{0, 4096}}));
}

// Without a base: the allocated ranges.
TEST(BtrfsSendTest, FullStreamTellsWhatIsWritten) {
  BtrfsWriter writer;
  writer.Full().MakeFile("o257-7-0").Rename("o257-7-0", "f").Write("f", 8192, "data");
  writer.MakeFile("g").Write("g", 0, std::string(10'000, 'x')).Truncate("f", 100'000).End();
  ASSERT_OK_AND_ASSIGN(const ChangeMap map, Read(writer, {.path = "f"}));
  EXPECT_EQ(test::RangesOf(map), (Ranges{{8192, 4096}}));
  EXPECT_EQ(map->capacity(), 100'000);
  EXPECT_EQ(map.identity(), (ChangeMapIdentity{"f", "", "target"}));
  EXPECT_EQ(ValueOf(Read(writer, {.path = "g"}))->capacity(), 10'000);
  EXPECT_EQ(Read(writer, {.path = "h"}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Read(writer).status().code(), StatusCode::kFailedPrecondition);
  BtrfsWriter unmade;
  unmade.Full().Update("f", 0, 1).End();
  EXPECT_EQ(Read(unmade).status().code(), StatusCode::kDataLoss);
}

TEST(BtrfsSendTest, WhatIsNotKnownCouldBeAWrite) {
  const std::string path = Attribute(15, "f");
  const auto code = [](const BtrfsWriter& writer) {
    return Read(writer, For("f")).status().code();
  };
  for (const uint16_t type : {uint16_t{0}, uint16_t{27}, uint16_t{255}, uint16_t{65535}}) {
    EXPECT_EQ(code(BtrfsWriter().Snapshot().Command(type, path).End()), StatusCode::kUnimplemented);
  }
  for (const uint16_t type : {uint16_t{0}, uint16_t{36}, uint16_t{65535}}) {
    EXPECT_EQ(code(BtrfsWriter().Snapshot().Command(20, path + Attribute(type, "x")).End()),
              StatusCode::kUnimplemented);
  }
  for (const uint32_t version : {0U, 4U, 0xffffffffU}) {
    EXPECT_EQ(code(BtrfsWriter(version).Snapshot().End()), StatusCode::kUnimplemented);
  }
  // Collapse and insert move the data that follows.
  for (const uint32_t mode : {0x08U, 0x20U, 0x04U, 0x80000000U}) {
    EXPECT_EQ(code(BtrfsWriter(2).Snapshot().Allocate("f", mode, 0, 4096).End()),
              StatusCode::kUnimplemented);
  }
}

TEST(BtrfsSendTest, CommandsThatCanNotBeAreRefused) {
  const std::string path = Attribute(15, "f");
  const std::string offset = Attribute(18, Little(0, 8));
  std::vector<std::string> wrong = {
      BtrfsWriter().End().bytes(),
      BtrfsWriter().Update("f", 0, 1).Snapshot().End().bytes(),
      BtrfsWriter().Snapshot().Snapshot().End().bytes(),
      BtrfsWriter().Snapshot().bytes(),
      BtrfsWriter().Snapshot().Unlink("f").Update("f", 0, 1).End().bytes(),
      BtrfsWriter().Snapshot().Rename("d", "d/e").End().bytes(),
      BtrfsWriter().Snapshot().Unlink("f").Rename("f", "g").End().bytes(),
      BtrfsWriter().Snapshot().Unlink("f").Link("g", "f").End().bytes(),
      BtrfsWriter().Snapshot().MakeDirectory("d").Update("d/f", 0, 1).End().bytes(),
      BtrfsWriter().Snapshot().MakeDirectory("d").Truncate("d", 0).End().bytes(),
  };
  // Attributes that are missing, repeated, of the wrong length, or reach past the command's end.
  const std::vector<std::pair<uint16_t, std::string>> bodies = {
      {22, ""},
      {22, path},
      {22, path + offset},
      {22, path + Attribute(4, Little(1, 8))},
      {22, offset + Attribute(4, Little(1, 8))},
      {22, path + path + offset + Attribute(4, Little(1, 8))},
      {22, path + offset + Attribute(4, Little(1, 4))},
      {22, path + offset + Attribute(4, Little(1, 9))},
      {22, path + offset + Little(4, 2) + Little(9, 2) + Little(1, 8)},
      {22, path + offset + Attribute(4, Little(1, 8)) + "x"},
      {22, path + offset + Attribute(4, Little(1, 8)) + "xyz"},
      {15, path + offset},
      {16, path + offset},
      {17, path},
      {9, path},
      {10, path},
      {3, ""},
      {3, Attribute(15, "")},
      {20, ""},
      {25, path + offset},
      {23, path + offset + Attribute(4, Little(1, 8))},
      {23, path + Attribute(25, Little(3, 4))},
      {23, path + offset + Attribute(25, Little(3, 4))},
      {2, path},
      {2, path + Attribute(1, "short")},
  };
  for (const auto& [type, body] : bodies) {
    wrong.push_back(BtrfsWriter().Snapshot().Command(type, body).End().bytes());
  }
  wrong.push_back(
      BtrfsWriter().Command(2, path + Attribute(1, std::string(16, 'x'))).End().bytes());
  for (const std::string& bad :
       {std::string("/f"), std::string("f/"), std::string("a//b"), std::string("."),
        std::string("a/../b"), std::string("a\0b", 3), std::string(4097, 'x')}) {
    wrong.push_back(BtrfsWriter().Snapshot().Update(bad, 0, 1).End().bytes());
    EXPECT_EQ(Read(BtrfsWriter().Snapshot().End(), For(bad)).status().code(),
              StatusCode::kInvalidArgument);
  }
  // A version 1 command has at most 64 KiB.
  wrong.push_back(BtrfsWriter()
                      .Snapshot()
                      .Command(20, path + Attribute(14, std::string(40'000, 'x')) +
                                       Attribute(13, std::string(40'000, 'x')))
                      .End()
                      .bytes());
  for (size_t i = 0; i < wrong.size(); ++i) {
    const absl::Status status = Read(wrong[i], For("f")).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << i << ": " << status;
    EXPECT_NE(status.message().find("byte "), std::string::npos) << i << ": " << status;
    EXPECT_EQ(status.message().find("the stream: "), 0) << i << ": " << status;
  }
  // The target of a symbolic link is not a path of the stream.
  EXPECT_OK(Read(BtrfsWriter().Snapshot().Command(8, path + Attribute(17, "../x")).Times("g").End(),
                 For("g")));
}

// Changes at huge offsets, up to the largest number: an error, without memory in proportion.
TEST(BtrfsSendTest, ChangesFarOutCostNothing) {
  const auto code = [](uint64_t offset, uint64_t length, std::optional<uint64_t> capacity) {
    return Read(BtrfsWriter().Snapshot().Update("f", offset, length).End(), For("f", capacity))
        .status()
        .code();
  };
  EXPECT_EQ(code(UINT64_MAX, 1, kSize), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(1, UINT64_MAX, kSize), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(0, kEiB, std::nullopt), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(kEiB, 4096, kEiB + 4096), StatusCode::kOk);
  EXPECT_EQ(
      Read(BtrfsWriter().Snapshot().Truncate("f", UINT64_MAX).End(), {.path = "f"}).status().code(),
      StatusCode::kInvalidArgument);
  for (const uint64_t granularity : {uint64_t{0}, kMaxGranularity + 1}) {
    EXPECT_EQ(Read(BtrfsWriter().Snapshot().End(), {.path = "f", .granularity = granularity})
                  .status()
                  .code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(RangesOf(Read(BtrfsWriter().Snapshot().Update("f", 5, 1).End(),
                          {.path = "f", .granularity = kMaxGranularity, .capacity = kMaxCapacity})),
            (Ranges{{0, kMaxGranularity}}));
}

// Directories moved into directories, deeper than any path: nothing may recurse.
TEST(BtrfsSendTest, DirectoriesNestedWithoutEndAreTakenDownAgain) {
  std::string deep = "d";
  for (int i = 0; i < 1000; ++i) deep += "/d";
  BtrfsWriter writer;
  writer.Snapshot();
  for (int i = 0; i < 100; ++i) {
    const std::string top = absl::StrCat("t", i);
    writer.Update(absl::StrCat(top, "/", deep), 0, 1);
    if (i > 0) writer.Rename(absl::StrCat("t", i - 1), absl::StrCat(top, "/", deep, "/x"));
  }
  writer.End();
  EXPECT_EQ(Read(writer).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Crc32cTest, MatchesBitByBit) {
  // RFC 3720, B.4: inverted before and after.
  const std::vector<uint8_t> zeros(32, 0);
  EXPECT_EQ(~ExtendCrc32c(~uint32_t{0}, zeros), 0x8a9136aaU);
  test::SeededRandom random(1);
  for (size_t size = 0; size < 100; ++size) {
    std::string bytes;
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(random());
    const auto seed = static_cast<uint32_t>(random());
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    const uint32_t want = test::Crc32c(bytes, seed);
    EXPECT_EQ(ExtendCrc32c(seed, {data, size}), want) << size;
    EXPECT_EQ(ExtendCrc32cPortable(seed, {data, size}), want) << size;
    const size_t cut = size == 0 ? 0 : random() % size;
    EXPECT_EQ(ExtendCrc32c(ExtendCrc32c(seed, {data, cut}), {data + cut, size - cut}), want)
        << size << " cut at " << cut;
  }
}

}  // namespace btrfs_send_test
}  // namespace cbt
