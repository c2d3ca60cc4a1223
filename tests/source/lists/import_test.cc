// Importers on real output of the systems, and on violations of each format's own rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "tests/source/support/imports.h"
#include "tests/source/support/listings.h"
#include "tests/support/status.h"

namespace cbt {
namespace import_test {

using absl::StatusCode;
using reference::Ranges;
using test::From;
using test::RangesOf;
using test::Sample;
using test::SamplePath;
using test::ValueOf;

constexpr auto kDelta = SourcePurpose::kDelta;
constexpr auto kAllocated = SourcePurpose::kAllocated;

// A sample that is stored compressed.
std::string Unpacked(const std::string& name) {
  std::FILE* const pipe = popen(("gzip -dc '" + SamplePath(name) + "'").c_str(), "r");
  std::string text;
  char buffer[65536];
  while (pipe != nullptr) {
    const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe);
    if (count == 0) break;
    text.append(buffer, count);
  }
  if (pipe != nullptr) pclose(pipe);
  return text;
}

// ---- RBD

TEST(Rbd, WhatCephWroteIsReadWithoutItsData) {
  const std::string diff = Sample("rbd_diff_v1_bluestore.bin");
  const ImportOptions bytes{.granularity = 1};
  const auto map = From(ReadRbdDiff, diff, RbdDiffOptions{.import = bytes});
  EXPECT_RANGES(
      map, {{0, 8192}, {4198400, 4096}, {21037056, 4564}, {25165824, 1100}, {33554432, 4194304}});
  EXPECT_EQ((*map)->capacity(), 64 * kMiB);
  EXPECT_EQ(map->identity(), (ChangeMapIdentity{"", "s1", "s2"}));
  EXPECT_RANGES(
      From(ReadRbdDiff, diff, RbdDiffOptions{.import = {.granularity = 4096}}),
      {{0, 8192}, {4198400, 4096}, {21037056, 8192}, {25165824, 4096}, {33554432, 4194304}});
}

TEST(Rbd, E10AShrunkImageTellsItsNewSize) {
  const auto map = From(ReadRbdDiff, Sample("rbd_diff_v1_shrink.bin"), RbdDiffOptions{});
  EXPECT_RANGES(map, {});
  EXPECT_EQ((*map)->capacity(), 12 * kMiB);
}

TEST(Rbd, AnExportTellsBetweenAnyTwoSnapshots) {
  const std::string text = Unpacked("rbd_export_v2_with_snaps.bin.gz");
  const auto read = [&](SourcePurpose purpose, const std::string& base, const std::string& target) {
    return From(
        ReadRbdDiff, text,
        RbdDiffOptions{
            .import = {.purpose = purpose, .granularity = 1}, .base = base, .target = target});
  };
  const Ranges first = {{0, 8192}, {kMiB, 8192}, {2 * kMiB, kMiB + 256}, {5 * kMiB, 65536}};
  EXPECT_RANGES(read(kAllocated, "", "s0"), {});
  EXPECT_EQ(RangesOf(ValueOf(read(kAllocated, "", "s1"))), first);
  EXPECT_EQ(RangesOf(ValueOf(read(kDelta, "s0", "s1"))), first);
  const Ranges second = {{4096, 4096}, {1052672, 4096}, {5 * kMiB, 65536}, {8 * kMiB, 1100}};
  EXPECT_EQ(RangesOf(ValueOf(read(kDelta, "s1", "s2"))), second);
  // Shrunk between s2 and s3 without a record of it.
  EXPECT_EQ(ValueOf(read(kDelta, "s1", "s2"))->capacity(), 16 * kMiB);
  EXPECT_EQ(ValueOf(read(kDelta, "s1", "s3"))->capacity(), 12 * kMiB);
  EXPECT_EQ(RangesOf(ValueOf(read(kDelta, "s1", "s3"))), second);
  EXPECT_EQ(RangesOf(ValueOf(read(kDelta, "s1", ""))), second);
  EXPECT_RANGES(read(kDelta, "s3", ""), {});
  EXPECT_RANGES(read(kDelta, "s2", "s2"), {});
  EXPECT_EQ(ValueOf(read(kDelta, "s1", "")).identity(), (ChangeMapIdentity{"", "s1", ""}));
  EXPECT_REFUSED(read(kDelta, "s2", "s1"), kNotFound, "no diffs from snapshot \"s2\"");
  EXPECT_REFUSED(read(kDelta, "s1", "s9"), kNotFound, "\"s9\"");
  EXPECT_REFUSED(read(kDelta, "", "s1"), kInvalidArgument, "name the base");
  for (size_t size = 0; size < text.size(); size += size < 5000 ? 1 : 5003) {
    ASSERT_FALSE(From(ReadRbdDiff, text.substr(0, size),
                      RbdDiffOptions{.import = {.purpose = kDelta}, .base = "s1"})
                     .ok())
        << size;
  }
}

// A diff of an export to snapshot `to` ("": the image itself), of `size` bytes. `zeroed`: the
// changed range, as one record.
struct ExportedDiff {
  std::string to;
  uint64_t size = 0;
  std::optional<Extent> zeroed = {};
};

std::string Export(const std::vector<ExportedDiff>& diffs) {
  std::string text = "rbd image v2\nErbd image diffs v2\n";
  test::PutLe<uint64_t>(text, diffs.size());
  std::string from;
  for (const ExportedDiff& diff : diffs) {
    text += "rbd diff v2\n";
    for (const auto& [tag, name] : {std::pair('f', from), std::pair('t', diff.to)}) {
      if (name.empty()) continue;
      text.push_back(tag);
      test::PutLe<uint64_t>(text, 4 + name.size());
      test::PutLe<uint32_t>(text, static_cast<uint32_t>(name.size()));
      text += name;
    }
    text.push_back('s');
    test::PutLe<uint64_t>(text, 8);
    test::PutLe<uint64_t>(text, diff.size);
    if (diff.zeroed.has_value()) {
      text.push_back('z');
      test::PutLe<uint64_t>(text, 16);
      test::PutLe<uint64_t>(text, diff.zeroed->offset);
      test::PutLe<uint64_t>(text, diff.zeroed->length);
    }
    text += "e";
    from = diff.to;
  }
  return text;
}

// Cut to 8 KiB and grown back to 16 KiB without a write.
TEST(Rbd, WhatWasCutOffAndCameBackHasChanged) {
  const RbdDiffOptions options{.import = {.purpose = kDelta}, .base = "a"};
  EXPECT_RANGES(From(ReadRbdDiff, Export({{"a", 16384}, {"b", 8192}, {"", 16384}}), options),
                {{8192, 8192}});
}

// It is unknown which of two snapshots of the same name is meant, and a delta from the later one
// lacks earlier changes.
TEST(Rbd, AttackIAnExportInWhichANameComesTwiceIsRefused) {
  const Extent changed{4096, 4096};
  const auto read = [&](const std::vector<std::string>& names, const std::string& base,
                        const std::string& target) {
    std::vector<ExportedDiff> diffs;
    for (const std::string& name : names) diffs.push_back({name, 16384, changed});
    return From(ReadRbdDiff, Export(diffs),
                RbdDiffOptions{.import = {.purpose = base.empty() ? kAllocated : kDelta},
                               .base = base,
                               .target = target});
  };
  EXPECT_RANGES(read({"a", "b", "c", ""}, "a", "b"), {{4096, 4096}});
  for (const auto& [base, target] : {std::pair("a", "b"), std::pair("a", ""), std::pair("a", "a"),
                                     std::pair("c", ""), std::pair("", "a"), std::pair("", "")}) {
    // Adjacent, and with others in between.
    EXPECT_REFUSED(read({"a", "a", "b", "c", ""}, base, target), kDataLoss,
                   "two snapshots are called \"a\"");
    EXPECT_REFUSED(read({"a", "b", "a", "c", ""}, base, target), kDataLoss,
                   "two snapshots are called \"a\"");
    EXPECT_REFUSED(read({"a", "b", "c", "a", ""}, base, target), kDataLoss,
                   "two snapshots are called \"a\"");
  }
}

TEST(Rbd, NamesOfAnExportTakeSoMuchMemoryAndNoMore) {
  std::vector<ExportedDiff> diffs;
  for (int i = 0; i <= 4096; ++i) {
    std::string name = std::to_string(i);
    name.resize(4096, 'x');
    diffs.push_back({name, 16384});
  }
  const std::string last = diffs[4095].to;
  EXPECT_REFUSED(From(ReadRbdDiff, Export(diffs), RbdDiffOptions{.target = last}),
                 kResourceExhausted, "names take more than 16777216 bytes");
  diffs.back() = {"", 16384};
  EXPECT_RANGES(From(ReadRbdDiff, Export(diffs), RbdDiffOptions{.target = last}), {});
}

// Found by a fuzzer: a few bytes claim that a very large image changed everywhere. The map's size
// must be checked before it is allocated.
TEST(Rbd, AMapThatWouldBeTooLargeIsRefusedBeforeItIsMade) {
  constexpr uint64_t kImage = uint64_t{1} << 62;
  std::string diff = "rbd diff v1\ns";
  test::PutLe<uint64_t>(diff, kImage);
  diff += 'z';
  test::PutLe<uint64_t>(diff, 0);
  test::PutLe<uint64_t>(diff, kImage);
  diff += 'e';
  EXPECT_REFUSED(From(ReadRbdDiff, diff, RbdDiffOptions{.import = {.granularity = 512}}),
                 kResourceExhausted, "coarser granularity");
  EXPECT_RANGES(From(ReadRbdDiff, diff, RbdDiffOptions{.import = {.granularity = 64 * kMiB}}),
                {{0, kImage}});
}

TEST(Rbd, ADiffIsTakenForWhatItSaysItIs) {
  const std::string diff = Sample("rbd_diff_v1_bluestore.bin");
  EXPECT_REFUSED(From(ReadRbdDiff, diff, RbdDiffOptions{.import = {.purpose = kAllocated}}),
                 kInvalidArgument, "from snapshot s1 reports what changed");
  EXPECT_REFUSED(From(ReadRbdDiff, diff, RbdDiffOptions{.base = "s0"}), kNotFound, "\"s1\"");
  EXPECT_REFUSED(From(ReadRbdDiff, diff, RbdDiffOptions{.import = {.capacity = kMiB}}),
                 kInvalidArgument, "67108864");
  EXPECT_REFUSED(From(ReadRbdDiff, std::string("rbd diff v3\n"), RbdDiffOptions{}), kDataLoss,
                 "banner");
}

// If both snapshots have the same name, changes between them are unknown.
TEST(Rbd, AttackGADiffFromASnapshotToItselfIsRefused) {
  const auto diff = [](const std::string& from, const std::string& to) {
    std::string text = "rbd diff v1\n";
    for (const auto& [tag, name] : {std::pair('f', from), std::pair('t', to)}) {
      if (name.empty()) continue;
      text.push_back(tag);
      test::PutLe<uint32_t>(text, static_cast<uint32_t>(name.size()));
      text += name;
    }
    text.push_back('s');
    test::PutLe<uint64_t>(text, kMiB);
    return text + "e";
  };
  EXPECT_REFUSED(From(ReadRbdDiff, diff("a", "a"), RbdDiffOptions{}), kDataLoss,
                 "begins and ends with snapshot \"a\"");
  EXPECT_RANGES(From(ReadRbdDiff, diff("a", "b"), RbdDiffOptions{}), {});
  EXPECT_RANGES(From(ReadRbdDiff, diff("a", ""), RbdDiffOptions{}), {});
}

TEST(Rbd, JsonNeedsTheSize) {
  EXPECT_REFUSED(From(ReadRbdDiffJson, "[]", ImportOptions{}), kInvalidArgument, "capacity");
  EXPECT_RANGES(From(ReadRbdDiffJson, "[]", ImportOptions{.capacity = kMiB}), {});
  EXPECT_REFUSED(
      From(ReadRbdDiffJson, "[{\"offset\":-1,\"length\":1}]", ImportOptions{.capacity = kMiB}),
      kDataLoss, "\"offset\" is duplicated or not a number");
  EXPECT_REFUSED(From(ReadRbdDiffJson, "[{\"offset\":1,\"offset\":2,\"length\":1}]",
                      ImportOptions{.capacity = kMiB}),
                 kDataLoss, "duplicated");
}

// ---- Device mapper

TEST(Thin, WhatTheToolsWroteIsRead) {
  const ImportOptions options{.capacity = 64 * kMiB};
  const Ranges expected = {
      {4 * 65536, 2 * 65536}, {20 * 65536, 65536}, {32 * 65536, 65536}, {40 * 65536, 3 * 65536}};
  EXPECT_EQ(RangesOf(ValueOf(From(ReadThinDelta, Sample("thin_delta.xml"), options))), expected);
  EXPECT_EQ(RangesOf(ValueOf(From(ReadThinDelta, Sample("thin_delta_verbose.xml"), options))),
            expected);
  const std::string dump = Sample("thin_dump.xml");
  EXPECT_RANGES(From(ReadThinDump, dump, ThinDumpOptions{.import = options, .device = 1}),
                {{0, 10 * 65536}, {20 * 65536, 65536}, {30 * 65536, 3 * 65536}});
  EXPECT_RANGES(From(ReadThinDump, dump, ThinDumpOptions{.import = options, .device = 2}),
                {{0, 10 * 65536}, {30 * 65536, 2 * 65536}, {40 * 65536, 3 * 65536}});
  EXPECT_REFUSED(From(ReadThinDump, dump, ThinDumpOptions{.import = options}), kInvalidArgument,
                 "several devices");
  EXPECT_REFUSED(From(ReadThinDump, dump, ThinDumpOptions{.import = options, .device = 3}),
                 kNotFound, "no device 3");
}

TEST(Thin, SharedPartsAreFollowed) {
  const std::string dump =
      "<superblock data_block_size=\"8\"><def name=\"a\"><range_mapping origin_begin=\"2\" "
      "data_begin=\"0\" length=\"3\"/></def><def name=\"b\"><ref name=\"a\"/><single_mapping "
      "origin_block=\"9\" data_block=\"1\"/></def><device dev_id=\"1\" mapped_blocks=\"5\"><ref "
      "name=\"b\"/><single_mapping origin_block=\"0\" data_block=\"7\"/></device></superblock>";
  const ThinDumpOptions options{.import = {.capacity = 40960}};
  EXPECT_RANGES(From(ReadThinDump, dump, options), {{0, 4096}, {8192, 12288}, {36864, 4096}});
  EXPECT_REFUSED(
      From(ReadThinDump, std::string(dump).replace(dump.find("ref name=\"b"), 11, "ref name=\"c"),
           options),
      kDataLoss, "<ref>");
  EXPECT_REFUSED(
      From(ReadThinDump,
           std::string(dump).replace(dump.find("mapped_blocks=\"5"), 16, "mapped_blocks=\"6"),
           options),
      kDataLoss, "5 mapped blocks, it should have 6");
}

TEST(Thin, WhatIsNotKnownCouldBeAChange) {
  const std::string delta = Sample("thin_delta.xml");
  const size_t at = delta.find("right_only");
  EXPECT_REFUSED(From(ReadThinDelta, std::string(delta).replace(at, 10, "wrong_only"),
                      ImportOptions{.capacity = 64 * kMiB}),
                 kDataLoss, "line 9: element <wrong_only>");
  EXPECT_REFUSED(From(ReadThinDelta, delta, ImportOptions{}), kInvalidArgument, "capacity");
}

TEST(Thin, WhatIsNoElementCouldBeAChange) {
  const ImportOptions options{.capacity = 64 * kMiB};
  const std::string delta = Sample("thin_delta.xml");
  EXPECT_REFUSED(
      From(ReadThinDelta, std::string(delta).erase(delta.find("<right_only"), 1), options),
      kDataLoss, "in: line 9: text where only elements are allowed");
  // With 2>&1, the tool's messages about what it could not read.
  EXPECT_REFUSED(
      From(ReadThinDelta, std::string(delta).insert(delta.find("<right_only"), "bad checksum\n"),
           options),
      kDataLoss, "in: line 9: text where only elements are allowed");
}

TEST(Thin, AChangeWithoutAPlaceIsRefused) {
  const ImportOptions options{.capacity = 64 * kMiB};
  const auto read = [&](const std::string& elements) {
    return From(ReadThinDelta,
                "<superblock data_block_size=\"128\"><diff left=\"1\" right=\"2\">" + elements +
                    "</diff></superblock>",
                options);
  };
  const std::string other = "<different><range begin=\"4\" length=\"1\"/></different>";
  EXPECT_RANGES(read(other + "<same/><same></same>"), {{4 * 65536, 65536}});
  for (const std::string name : {"different", "left_only", "right_only"}) {
    const std::string error = "in: line 1: <" + name + "> without begin and length";
    for (const std::string& element : {"<" + name + "/>", "<" + name + "></" + name + ">"}) {
      EXPECT_REFUSED(read(element), kDataLoss, error);
      EXPECT_REFUSED(read(other + element + other), kDataLoss, error);
    }
    EXPECT_REFUSED(read("<" + name + " begin=\"4\"/>"), kDataLoss, "attribute length is missing");
  }
}

// ---- JSON lists

TEST(QemuMap, AllocationAndDelta) {
  const std::string map =
      R"([{ "start": 0, "length": 65536, "depth": 1, "present": true, "zero": false, "data": true, "offset": 327680},
{ "start": 65536, "length": 65536, "depth": 0, "present": true, "zero": true, "data": false},
{ "start": 131072, "length": 65536, "depth": 0, "present": true, "zero": false, "data": true, "offset": 393216},
{ "start": 196608, "length": 851968, "depth": 0, "present": false, "zero": true, "data": false}])";
  EXPECT_RANGES(From(ReadQemuMap, map, ImportOptions{.purpose = kDelta}), {{65536, 131072}});
  EXPECT_RANGES(From(ReadQemuMap, map, ImportOptions{.purpose = kAllocated}),
                {{0, 65536}, {131072, 65536}});
  EXPECT_REFUSED(From(ReadQemuMap, map, ImportOptions{}), kInvalidArgument, "say which");
  EXPECT_REFUSED(From(ReadQemuMap, map, ImportOptions{.purpose = kDelta, .capacity = 2 * kMiB}),
                 kDataLoss, "the map ends at 1048576");
}

TEST(QemuMap, AMapOverADirtyBitmapIsNoDelta) {
  // qemu-img 7.2 with x-dirty-bitmap: 64 KiB at offset 64 KiB are dirty.
  const std::string map =
      R"([{"start":0,"length":65536,"depth":0,"present":true,"zero":false,"data":true,"offset":0},
{"start":65536,"length":65536,"depth":0,"present":false,"zero":false,"data":false},
{"start":131072,"length":917504,"depth":0,"present":true,"zero":false,"data":true,"offset":131072}])";
  EXPECT_REFUSED(From(ReadQemuMap, map, ImportOptions{.purpose = kDelta}), kInvalidArgument,
                 "an entry at 65536 is neither data nor zeros: if it is a map over x-dirty-bitmap");
  EXPECT_RANGES(From(ReadQemuMap, map, ImportOptions{.purpose = kAllocated}), {{0, 1048576}});
}

// Holes on NBD or iSCSI do not imply zeros; an overlay above them still has its delta.
TEST(QemuMap, WhatLiesBelowTheTopmostImageMayBeNeitherDataNorZeros) {
  const std::string map =
      R"([{"start":0,"length":65536,"depth":1,"present":true,"zero":false,"data":false},
{"start":65536,"length":65536,"depth":0,"present":true,"zero":false,"data":true,"offset":327680}])";
  EXPECT_RANGES(From(ReadQemuMap, map, ImportOptions{.purpose = kDelta}), {{65536, 65536}});
}

TEST(QemuMap, AnImageWithoutABackingFileHasNoDelta) {
  // qemu-img 7.2. A range that a base had, and that was discarded since, is in no image either.
  const std::string absent =
      R"({"start":65536,"length":196608,"depth":0,"present":false,"zero":true,"data":false})";
  const std::string alone =
      R"([{"start":0,"length":65536,"depth":0,"present":true,"zero":false,"data":true,"offset":7},)" +
      absent;
  EXPECT_REFUSED(From(ReadQemuMap, alone + "]", ImportOptions{.purpose = kDelta}), kInvalidArgument,
                 "nothing comes from a backing file");
  EXPECT_REFUSED(
      From(ReadQemuMap,
           R"([{"start":0,"length":4096,"depth":0,"present":false,"zero":true,"data":false}])",
           ImportOptions{.purpose = kDelta}),
      kInvalidArgument, "nothing comes from a backing file");
  EXPECT_RANGES(From(ReadQemuMap, alone + "]", ImportOptions{.purpose = kAllocated}), {{0, 65536}});
  // With an entry from below it is an overlay, and the range reads as zeros on both sides.
  const std::string below =
      R"(,{"start":262144,"length":4096,"depth":1,"present":false,"zero":true,"data":false}])";
  EXPECT_RANGES(From(ReadQemuMap, alone + below, ImportOptions{.purpose = kDelta}), {{0, 65536}});
  // A raw file holds all of itself; before qemu 6.1 nothing says what is present.
  EXPECT_RANGES(
      From(ReadQemuMap,
           R"([{"start":0,"length":4096,"depth":0,"present":true,"zero":true,"data":false},)"
           R"({"start":4096,"length":4096,"depth":0,"zero":true,"data":false}])",
           ImportOptions{.purpose = kDelta}),
      {{0, 8192}});
}

TEST(QemuMap, TheLastSectorOfAFileIsNotLost) {
  const std::string map =
      R"([{"start":0,"length":1000448,"depth":0,"present":true,"zero":false,"data":true}])";
  EXPECT_RANGES(From(ReadQemuMap, map, ImportOptions{.purpose = kAllocated, .capacity = 1000001}),
                {{0, 1000001}});
  // A tool that omits part of a sector reports nothing about it.
  const std::string cut =
      R"([{"start":0,"length":999936,"depth":0,"present":true,"zero":true,"data":false}])";
  EXPECT_REFUSED(From(ReadQemuMap, cut, ImportOptions{.purpose = kAllocated, .capacity = 1000001}),
                 kDataLoss, "the map ends at 999936");
}

TEST(Ebs, E14PagesThatAreMissingAreNoEnd) {
  const ImportOptions options{.capacity = kGiB};
  const std::string page = R"({"BlockSize":524288,"VolumeSize":1,"ChangedBlocks":[)";
  const std::string first = page + R"({"BlockIndex":3}],"NextToken":"x"})";
  const std::string empty = page + R"(],"NextToken":"y"})";
  const std::string last = page + R"({"BlockIndex":2047,"SecondBlockToken":"t"}]})";
  EXPECT_RANGES(From(ReadEbsPages, first + empty + last, options),
                {{3 * 524288, 524288}, {2047 * 524288ull, 524288}});
  EXPECT_RANGES(From(ReadEbsPages, "[" + first + "," + last + "]", options),
                {{3 * 524288, 524288}, {2047 * 524288ull, 524288}});
  EXPECT_REFUSED(From(ReadEbsPages, first + empty, options), kDataLoss, "pages are missing");
  EXPECT_REFUSED(From(ReadEbsPages, last + first, options), kDataLoss, "after the last one");
  // It is unknown which of the two counts; the second would be the end.
  EXPECT_REFUSED(
      From(ReadEbsPages, page + R"({"BlockIndex":3}],"NextToken":"x","NextToken":""})", options),
      kDataLoss, "NextToken twice");
  EXPECT_REFUSED(
      From(ReadEbsPages, page + R"({"BlockIndex":3}],"NextToken":"x","NextToken":null})", options),
      kDataLoss, "NextToken twice");
  EXPECT_REFUSED(From(ReadEbsPages, last, ImportOptions{.purpose = kAllocated}), kInvalidArgument,
                 "not what is allocated");
  EXPECT_REFUSED(From(ReadEbsPages, last, ImportOptions{.capacity = kMiB}), kInvalidArgument,
                 "1073741824");
  EXPECT_REFUSED(From(ReadEbsPages, R"({"ChangedBlocks":[{"BlockIndex":1}]})", options), kDataLoss,
                 "BlockSize");
  EXPECT_RANGES(From(ReadEbsPages, R"({"Blocks":[{"BlockIndex":1}],"BlockSize":524288})", options),
                {{524288, 524288}});
}

TEST(Ebs, WhatIsNoValueIsNotAbsent) {
  const ImportOptions options{.capacity = kGiB};
  const std::string page = R"({"BlockSize":524288,"VolumeSize":1,"ChangedBlocks":[{"BlockIndex":3)";
  for (const std::string value : {"[]", "[\"x\"]", "{}", "{\"x\":[1]}"}) {
    EXPECT_REFUSED(From(ReadEbsPages, page + "}],\"NextToken\":" + value + "}", options), kDataLoss,
                   "NextToken is not a string");
    EXPECT_REFUSED(From(ReadEbsPages, page + "}],\"BlockSize\":" + value + "}", options), kDataLoss,
                   "BlockSize is not a size");
    EXPECT_REFUSED(From(ReadEbsPages, page + "}],\"VolumeSize\":" + value + "}", options),
                   kDataLoss, "VolumeSize is not a size in GiB");
    EXPECT_REFUSED(From(ReadEbsPages, page + ",\"BlockIndex\":" + value + "}]}", options),
                   kDataLoss, "BlockIndex is missing, duplicated or not a number");
    // Ranges that were not requested may contain anything.
    EXPECT_RANGES(From(ReadEbsPages,
                       page + ",\"x\":" + value + "}],\"ExpiryTime\":" + value +
                           ",\"Tags\":{\"NextToken\":[],\"a\":{\"BlockIndex\":[]}}}",
                       options),
                  {{3 * 524288, 524288}});
  }
}

TEST(Vmware, E14AQueryThatStoppedEarlyIsNoEnd) {
  const ImportOptions options{.capacity = 100000};
  const std::string first =
      R"({"startOffset":0,"length":60000,"changedArea":[{"start":5,"length":1}]})";
  const std::string second = R"({"startOffset":60000,"length":40000,"changedArea":[]})";
  EXPECT_RANGES(From(ReadVmwareAreas, first + "\n" + second, options), {{0, 4096}});
  EXPECT_REFUSED(From(ReadVmwareAreas, first, options), kDataLoss, "end at byte 60000");
  EXPECT_REFUSED(From(ReadVmwareAreas, second, options), kDataLoss, "from byte 60000");
  EXPECT_REFUSED(From(ReadVmwareAreas, first + first, options), kDataLoss, "from byte 0");
  EXPECT_REFUSED(From(ReadVmwareAreas, R"({"startOffset":0,"length":100000})", options), kDataLoss,
                 "without changedArea");
  EXPECT_REFUSED(
      From(ReadVmwareAreas,
           R"({"startOffset":0,"length":100,"changedArea":[{"start":99,"length":2}]})", options),
      kDataLoss, "outside");
}

// ---- Detection

absl::StatusOr<SourceFormat> Detect(const std::string& text) {
  return DetectSourceFormat({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(Detection, ListsAreFound) {
  EXPECT_EQ(ValueOf(Detect(Sample("thin_delta.xml"))), SourceFormat::kThinDelta);
  EXPECT_EQ(ValueOf(Detect(Sample("thin_dump.xml"))), SourceFormat::kThinDump);
  EXPECT_EQ(ValueOf(Detect(Sample("era_dump.xml"))), SourceFormat::kEraDump);
  EXPECT_EQ(ValueOf(Detect(Sample("era_invalidate.xml"))), SourceFormat::kEraInvalidate);
  EXPECT_EQ(ValueOf(Detect(Sample("rbd_diff_v1_shrink.bin"))), SourceFormat::kRbdDiff);
  EXPECT_EQ(ValueOf(Detect("[ {\"offset\":0,\"length\":1,\"exists\":\"true\"}]")),
            SourceFormat::kRbdJson);
  EXPECT_EQ(Detect("[]").status().code(), StatusCode::kInvalidArgument);
}

// By chance, one random volume in 65536 begins like a list or like roaring bytes.
TEST(Detection, VolumesAreNotTakenForListsByChance) {
  std::string noise(4096, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 89 + i / 7);
  for (const std::string& begin :
       {std::string("[{"), std::string("[]"), std::string("{\""), std::string("<blocks"),
        std::string("<?xml"), std::string(";0"), std::string(":0\0\0\1\0\0\0", 8)}) {
    const absl::StatusOr<SourceFormat> format = Detect(begin + noise);
    ASSERT_OK(format) << begin << ": " << format.status();
    EXPECT_EQ(*format, SourceFormat::kImage) << begin;
  }
  EXPECT_EQ(ValueOf(Detect("")), SourceFormat::kImage);
}

// ---- Limits of the parsers

TEST(Json, BoundsHold) {
  const ImportOptions options{.capacity = kMiB};
  EXPECT_REFUSED(From(ReadRbdDiffJson, std::string(10'000'000, '['), options), kDataLoss,
                 "not an object");
  EXPECT_REFUSED(From(ReadVmwareAreas, "{\"x\":" + std::string(100'000, '['), options), kDataLoss,
                 "more than 32 levels");
  EXPECT_REFUSED(From(ReadVmwareAreas, "{\"x\":\"" + std::string(5'000'000, 'y'), options),
                 kDataLoss, "a value of more than 1048576 bytes");
  EXPECT_REFUSED(From(ReadVmwareAreas, std::string("{\"x\":\"\0\"}", 9), options), kDataLoss,
                 "not JSON");
  EXPECT_REFUSED(From(ReadRbdDiffJson, "", options), kDataLoss, "ends early");
}

TEST(Xml, BoundsHold) {
  const ImportOptions options{.capacity = kMiB};
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<superblock data_block_size=\"8\">";
  EXPECT_REFUSED(From(ReadThinDelta, deep, options), kDataLoss, "line 1");
  EXPECT_REFUSED(From(ReadThinDelta, "<a b=\"" + std::string(5'000'000, 'y'), options), kDataLoss,
                 "a tag of more than 1048576 bytes");
  EXPECT_REFUSED(
      From(ReadThinDelta, "<!DOCTYPE x [<!ENTITY a \"b\">]><superblock data_block_size=\"&a;\"/>",
           options),
      kDataLoss, "document type");
  EXPECT_REFUSED(From(ReadThinDelta, "<superblock data_block_size=\"8\"/>", options), kDataLoss,
                 "no <diff>");
  EXPECT_REFUSED(From(ReadThinDelta, "<superblock data_block_size=\"0\"/>", options), kDataLoss,
                 "block size");
}

}  // namespace import_test
}  // namespace cbt
