// Detection of sources by content, and what is refused instead of guessed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/change_map_file.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/source/support/listings.h"
#include "tests/source/support/partclone.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace open_source_test {

using test::ValueOf;

using absl::StatusCode;
using reference::Ranges;
using testing::HasSubstr;
using testing::Not;

std::string Sample(const std::string& name) {
  return test::ReadFile(std::string(CBT_SAMPLES) + "/" + name);
}

// `text` in units of `width` bytes; byte `place` of each is the character.
std::string Wide(const std::string& text, size_t width, size_t place) {
  std::string wide(text.size() * width, '\0');
  for (size_t i = 0; i < text.size(); ++i) wide[i * width + place] = text[i];
  return wide;
}

// `text` in the encodings of other systems' tools, with and without byte order marks.
std::vector<std::string> Encodings(const std::string& text) {
  using namespace std::string_literals;
  return {"\xef\xbb\xbf"s + text,
          " \n\xef\xbb\xbf"s + text,
          "\xff\xfe"s + Wide(text, 2, 0),
          "\xfe\xff"s + Wide(text, 2, 1),
          "\xff\xfe\0\0"s + Wide(text, 4, 0),
          "\0\0\xfe\xff"s + Wide(text, 4, 3),
          Wide(text, 2, 0),
          Wide(text, 2, 1),
          Wide(text, 4, 0),
          Wide(text, 4, 3),
          Wide(" \n" + text, 2, 0)};
}

class SourceTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    // Some file systems wait for the disk when a file is truncated and rewritten.
    std::filesystem::remove(dir_ / name);
    dir_.Write(name, text);
  }
  absl::StatusOr<Ranges> Allocated(const std::string& text, const SourceOptions& options = {}) {
    Write("source", text);
    return Read(OpenSource(dir_ / "source", options));
  }
  absl::StatusOr<Ranges> Delta(const std::string& base, const std::string& target,
                               const SourceOptions& options = {}) {
    Write("base", base);
    Write("target", target);
    return Read(OpenDelta(dir_ / "base", dir_ / "target", options));
  }
  static absl::StatusOr<Ranges> Read(absl::StatusOr<OpenedSource> source) {
    if (!source.ok()) return source.status();
    return test::Drain(*source->cursor);
  }
  static SourceOptions AsImage() {
    SourceOptions options;
    options.spec.format = SourceFormat::kImage;
    return options;
  }

  const test::TempDir dir_;
};

const std::string kTarget =
    R"({"BlockSize":524288,"VolumeSize":1,"Blocks":[{"BlockIndex":1},{"BlockIndex":9}]})";

TEST_F(SourceTest, E14NoBeginningOfAListIsAnImage) {
  const Ranges ranges = {{1, 2}, {5, 1}, {8, 9}};
  // (list, the volume's size if the list does not have it)
  const std::pair<std::string, uint64_t> lists[] = {{kTarget, 0},
                                                    {test::WriteRbdJson(ranges, 20), kMiB},
                                                    {test::WriteQemuMap(ranges, 2048), kMiB},
                                                    {test::WriteVmware(ranges, 20), 20},
                                                    {test::WriteThinDump(ranges, 20), kMiB},
                                                    {test::WriteEraDump(ranges, 20), 0},
                                                    {test::WriteEraInvalidate(ranges, 20), kMiB},
                                                    {Sample("thin_delta.xml"), 64 * kMiB},
                                                    {Sample("thin_delta_verbose.xml"), 64 * kMiB},
                                                    {Sample("thin_dump.xml"), 64 * kMiB},
                                                    {Sample("era_dump.xml"), 0},
                                                    {Sample("era_invalidate.xml"), 64 * kMiB}};
  for (const auto& [list, capacity] : lists) {
    SourceOptions options;
    if (capacity > 0) options.capacity = capacity;
    const std::string whole = list.substr(0, list.find_last_not_of(" \n") + 1);
    for (size_t size = 0; size < whole.size(); size += size < 2000 ? 1 : 13) {
      const std::string cut = whole.substr(0, size);
      ASSERT_FALSE(Allocated(cut, options).ok()) << cut;
      // It would be a pair of images.
      ASSERT_FALSE(OpenDelta(dir_ / "source", dir_ / "source", options).ok()) << cut;
    }
    for (const std::string& encoded : Encodings(whole)) {
      EXPECT_FALSE(Delta(encoded, encoded, options).ok()) << encoded;
      EXPECT_FALSE(Allocated(encoded, options).ok()) << encoded;
    }
  }
}

TEST_F(SourceTest, WhatTellsOnlyWhatIsAllocatedIsNoDelta) {
  Write("volume", std::string(kMiB, 'x'));
  size_t refused = 0;
  for (const SourceFormatInfo& info : SourceFormats()) {
    if (info.delta) continue;
    ++refused;
    SourceOptions options;
    options.spec.format = info.format;
    options.purpose = SourcePurpose::kDelta;
    const absl::Status status = OpenSource(dir_ / "volume", options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << info.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("changed")) << info.name;
  }
  EXPECT_GT(refused, 0u);
}

// Free blocks hold arbitrary bytes. Their differences are in neither allocation, and no rounding
// recovers them.
TEST_F(SourceTest, AttackHTwoAllocationsMakeNoDelta) {
  const std::string image(kMiB, 'i');
  const Ranges ranges = {{1, 2}, {5, 1}};
  ChangeMap map = test::MapOf({1}, {kMiB, 4096});
  map.set_identity({"vol", "", "monday"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "map"));
  Write("image", image);
  Write("ebs", kTarget);
  Write("rbd-diff", Sample("rbd_diff_v1_shrink.bin"));
  Write("rbd-json", test::WriteRbdJson(ranges, 20));
  Write("qemu-map", test::WriteQemuMap(ranges, 2048));
  Write("thin-dump", test::WriteThinDump(ranges, 20));
  const std::vector<std::string> sources = {"image",    "map",      "ebs",      "rbd-diff",
                                            "rbd-json", "qemu-map", "thin-dump"};
  SourceOptions options;
  options.capacity = kMiB;
  for (const std::string& base : sources) {
    for (const std::string& target : sources) {
      const auto found = OpenDelta(dir_ / base, dir_ / target, options);
      if (base == "image" && target == "image") {
        EXPECT_OK(found);
        continue;
      }
      const absl::Status status = found.status();
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << base << target << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("does not show what changed: compare"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("/" + base + " ("));
      EXPECT_THAT(std::string(status.message()), HasSubstr("/" + target + " ("));
    }
  }
  // By format name, with one file: every format but images.
  size_t named = 0;
  for (const SourceFormatInfo& info : SourceFormats()) {
    if (info.format == SourceFormat::kImage || info.format == SourceFormat::kQcow2 ||
        info.format == SourceFormat::kNbd) {
      continue;
    }
    ++named;
    options.spec.format = info.format;
    EXPECT_EQ(OpenDelta(dir_ / "image", dir_ / "image", options).status().code(),
              StatusCode::kFailedPrecondition)
        << info.name;
  }
  EXPECT_GT(named, 0u);
  const std::string address = "nbd+unix:///?socket=/nowhere";
  EXPECT_EQ(OpenDelta(address, address, {}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SourceTest, AttackHABitmapOfPartcloneIsNoDelta) {
  const std::string clone = test::WritePartclone("\x0f");
  SourceOptions options;
  ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec("bitmap:granularity=4096,header=110"));
  options.capacity = 8 * 4096;
  EXPECT_EQ(ValueOf(Allocated(clone, options)), (Ranges{{0, 4 * 4096}}));
  options.purpose = SourcePurpose::kDelta;
  const absl::Status status = Allocated(clone, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("what is allocated, not what changed"));
  // A bitmap of changes with a header stays one, even if it is shorter than partclone's mark.
  EXPECT_EQ(ValueOf(Allocated(std::string(110, 'h') + "\x0f", options)), (Ranges{{0, 4 * 4096}}));
  ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec("bitmap:granularity=4096"));
  EXPECT_EQ(ValueOf(Allocated("\x0f", options)), (Ranges{{0, 4 * 4096}}));
}

TEST_F(SourceTest, AttackGABitmapOfPartcloneIsNoDeltaAsBase64) {
  const std::string clone = test::WritePartclone("\x0f");
  const std::string text = absl::Base64Escape(clone);
  SourceOptions options;
  ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec("bitmap:granularity=4096,header=110,base64"));
  options.capacity = 8 * 4096;
  for (const std::string& encoded :
       {text, "\n " + text, text.substr(0, 7) + "\r\n" + text.substr(7) + "\n"}) {
    options.purpose = SourcePurpose::kAllocated;
    EXPECT_EQ(ValueOf(Allocated(encoded, options)), (Ranges{{0, 4 * 4096}}));
    options.purpose = SourcePurpose::kDelta;
    const absl::Status status = Allocated(encoded, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("what is allocated, not what changed"));
  }
  const absl::Status blank = Allocated(std::string(65536, ' ') + text, options).status();
  EXPECT_EQ(blank.code(), StatusCode::kInvalidArgument) << blank;
  EXPECT_THAT(std::string(blank.message()), HasSubstr("what is allocated, not what changed"));
  // A bitmap of changes stays one, even if it is shorter than the mark.
  EXPECT_EQ(ValueOf(Allocated(absl::Base64Escape(std::string(110, 'h') + "\x0f"), options)),
            (Ranges{{0, 4 * 4096}}));
  ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec("bitmap:granularity=4096,base64"));
  EXPECT_EQ(ValueOf(Allocated(absl::Base64Escape("\x0f"), options)), (Ranges{{0, 4 * 4096}}));
}

// An assumed size would report blocks in part, and where nothing has changed.
TEST_F(SourceTest, BitsNeedTheSizeOfTheirBlocks) {
  constexpr uint64_t kCapacity = 64 * 65536;
  const VolumeGeometry geometry = {.capacity = kCapacity, .granularity = 65536};
  const ChangeMap map = test::MapOf({3}, geometry);
  const std::string roaring(map->portable().begin(), map->portable().end());
  const std::string dense("\x08\0\0\0\0\0\0\0", 8);
  for (const auto& [format, bytes, key] : {std::tuple("roaring64", roaring, "block-size"),
                                           std::tuple("bitmap", dense, "granularity")}) {
    SourceOptions options;
    options.capacity = kCapacity;
    for (const uint64_t rounded_to : {uint64_t{0}, uint64_t{4096}, uint64_t{65536}}) {
      options.block_size = rounded_to;
      for (const std::string& spec : {std::string(format), absl::StrCat(format, ":", key, "=0")}) {
        ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec(spec));
        const absl::Status status = Allocated(bytes, options).status();
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spec;
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(key, "=N")));
      }
      ASSERT_OK_AND_ASSIGN(options.spec, ParseSourceSpec(absl::StrCat(format, ":", key, "=64K")));
      EXPECT_EQ(ValueOf(Allocated(bytes, options)), (Ranges{{3 * 65536, 65536}}));
    }
  }
}

TEST_F(SourceTest, ImagesHaveSizesOfTheirOwn) {
  const std::string image(kMiB, 'i');
  SourceOptions options;
  options.base_capacity = 2 * kMiB;
  EXPECT_EQ(Delta(image, image, options).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(SourceTest, APipeIsWaitedForUntilItsWriterComes) {
  const test::TempDir dir;
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // No writer comes: the time limit ends the wait.
  SourceOptions options;
  options.purpose = SourcePurpose::kDelta;
  options.capacity = kMiB;
  options.time_limit = std::chrono::milliseconds(20);
  EXPECT_EQ(OpenSource(pipe, options).status().code(), StatusCode::kDeadlineExceeded);
  // A pair needs files, so there is no wait.
  options.time_limit.reset();
  EXPECT_EQ(OpenDelta(pipe, pipe, options).status().code(), StatusCode::kInvalidArgument);
  // The writer's open() returns once the reader has opened the pipe, and its data is read.
  std::thread writer([&pipe] {
    const int descriptor = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
    const std::string text = R"([{"offset":4096,"length":4096,"exists":"true"}])";
    EXPECT_EQ(::write(descriptor, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(descriptor);
  });
  const auto source = OpenSource(pipe, options);
  writer.join();
  ASSERT_OK(source);
  EXPECT_EQ(source->format, SourceFormat::kRbdJson);
  EXPECT_EQ(ValueOf(test::Drain(*source->cursor)), (Ranges{{4096, 4096}}));
}

TEST_F(SourceTest, WhatLooksLikeAListIsAnImageForThoseWhoSaySo) {
  for (const std::string& text :
       {std::string(), std::string("["), std::string("{}"), std::string("\xef\xbb\xbf["),
        std::string(" \t\r\n"), std::string(512, ' '), "<" + std::string(511, 'x'),
        "{" + std::string(3 * 65536 - 1, 'y'), Wide("[" + std::string(511, 'x'), 2, 0)}) {
    const absl::Status status = Allocated(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, 10) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("name the format (--from)"));
    const auto found = Allocated(text, AsImage());
    ASSERT_OK(found);
    EXPECT_EQ(*found, text.empty() ? Ranges{} : (Ranges{{0, text.size()}}));
    EXPECT_OK(Delta(text, text, AsImage()));
  }
}

TEST_F(SourceTest, AttackQTakesItsTimeAndNoMore) {
  SourceOptions options;
  options.time_limit = std::chrono::hours(24);
  const std::string image(kMiB, 'i');
  EXPECT_EQ(ValueOf(Allocated(image, options)), (Ranges{{0, kMiB}}));
  EXPECT_EQ(ValueOf(Allocated(kTarget, options)), (Ranges{{524288, 524288}, {9 * 524288, 524288}}));
  EXPECT_EQ(ValueOf(Delta(image, std::string(kMiB, 'j'), options)), (Ranges{{0, kMiB}}));
  // Longer than any clock can represent.
  options.time_limit = std::chrono::milliseconds::max();
  EXPECT_EQ(ValueOf(Allocated(kTarget, options)), (Ranges{{524288, 524288}, {9 * 524288, 524288}}));
  options.time_limit = std::chrono::milliseconds(0);
  for (const absl::Status& status :
       {Allocated(image, options).status(), Allocated(kTarget, options).status(),
        Delta(image, image, options).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("exceeded the time limit of a source"));
  }
  // Seeking does not change that.
  options.spec.format = SourceFormat::kImage;
  Write("source", image);
  auto source = OpenSource(dir_ / "source", options);
  ASSERT_OK(source);
  ExtentBatch batch;
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(source->cursor->Seek(4096));
    EXPECT_EQ(source->cursor->Next(batch).status().code(), StatusCode::kDeadlineExceeded);
  }
}

// The error for the spec `text`; "" if it is valid.
std::string Refusal(const std::string& text) {
  const absl::StatusOr<SourceSpec> spec = ParseSourceSpec(text);
  if (spec.ok()) return "";
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << text;
  return std::string(spec.status().message());
}

TEST(SourceSpecs, AnOptionWithoutItsValueIsRefused) {
  EXPECT_EQ(Refusal("rbd-diff:base=a,target=b"), "");
  EXPECT_EQ(Refusal("rbd-diff:base=,target=b"), "'base=': rbd-diff: base has no value");
  EXPECT_EQ(Refusal("rbd-diff:base=a,target="), "'target=': rbd-diff: target has no value");
  EXPECT_EQ(Refusal("btrfs-send:path="), "'path=': btrfs-send: path has no value");
  // All options that take a value, from the list of formats; the others are bare words.
  size_t with_value = 0;
  size_t alone = 0;
  for (const SourceFormatInfo& info : SourceFormats()) {
    std::istringstream words(info.options);
    for (std::string word; words >> word;) {
      const std::string start = std::string(info.name) + ":";
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      ++(equals == std::string::npos ? alone : with_value);
      if (equals == std::string::npos) {
        EXPECT_EQ(Refusal(start + key), "");
        EXPECT_THAT(Refusal(start + key + "="), HasSubstr(" takes "));
        EXPECT_THAT(Refusal(start + key + "=x"), HasSubstr(" takes "));
        continue;
      }
      EXPECT_EQ(Refusal(start + key + "=x"), "");
      EXPECT_THAT(Refusal(start + key), HasSubstr(" takes "));
      if (key != "export") {
        EXPECT_THAT(Refusal(start + key + "="), HasSubstr(key + " has no value"));
      }
      EXPECT_THAT(Refusal(start + key + "=x," + key + "=x"), HasSubstr("given twice"));
    }
  }
  EXPECT_GT(with_value, 0u);
  EXPECT_GT(alone, 0u);
  // A server's default export.
  EXPECT_EQ(ValueOf(ParseSourceSpec("nbd:export=")).options,
            (std::vector<std::pair<std::string, std::string>>{{"export", ""}}));
  EXPECT_EQ(Refusal("nbd:export=,export="), "'export=': given twice");
  EXPECT_THAT(Refusal("rbd-diff:=a"), HasSubstr("'=a': rbd-diff takes base="));
  EXPECT_THAT(Refusal("rbd-diff:,base=a"), HasSubstr("'': rbd-diff takes base="));
  EXPECT_EQ(Refusal("ebs:x=y"), "'x=y': ebs has no options");
}

// Specs that did not come from ParseSourceSpec().
TEST_F(SourceTest, OptionsThatTheFormatDoesNotTakeAreRefused) {
  using Options = std::vector<std::pair<std::string, std::string>>;
  const auto refusal = [](const absl::StatusOr<Ranges>& result) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument) << result.status();
    return std::string(result.status().message());
  };
  const auto with = [](std::optional<SourceFormat> format, const Options& options) {
    SourceOptions all;
    all.spec = {format, options};
    return all;
  };
  // Detected, and by format name.
  const std::string diff = Sample("rbd_diff_v1_bluestore.bin");
  for (const std::optional<SourceFormat> format :
       {std::optional<SourceFormat>(), std::optional(SourceFormat::kRbdDiff)}) {
    EXPECT_OK(Allocated(diff, with(format, {{"base", "s1"}, {"target", "s2"}})));
    for (const auto& [options, error] :
         {std::pair(Options{{"bse", "s1"}}, "'bse=s1': rbd-diff takes base="),
          {Options{{"bse", ""}}, "'bse': rbd-diff takes base="},
          {Options{{"", ""}}, "'': rbd-diff takes base="},
          {Options{{"base=s1", ""}}, "'base=s1': rbd-diff takes base="},
          {Options{{"base", ""}}, "'base=': rbd-diff: base has no value"},
          {Options{{"base", "s1"}, {"base", "s2"}}, "'base=s2': given twice"},
          {Options{{"base", "s1"}, {"granularity", "4096"}},
           "'granularity=4096': rbd-diff takes"}}) {
      EXPECT_THAT(refusal(Allocated(diff, with(format, options))),
                  HasSubstr("/source: " + std::string(error)));
    }
  }
  // A bare word.
  const auto bitmap = [&](const std::string& value) {
    SourceOptions options =
        with(SourceFormat::kBitmap, {{"granularity", "4096"}, {"base64", value}});
    options.capacity = 8 * 4096;
    return Allocated("/w==", options);
  };
  EXPECT_EQ(ValueOf(bitmap("")), (Ranges{{0, 8 * 4096}}));
  EXPECT_THAT(refusal(bitmap("no")), HasSubstr("'base64=no': bitmap takes granularity="));
  // Detected as an image or as a list without options, also as one of a pair.
  const std::string image(kMiB, 'i');
  const SourceOptions any = with({}, {{"snapshot", "1"}});
  EXPECT_THAT(refusal(Allocated(image, any)), HasSubstr("'snapshot=1': image has no options"));
  EXPECT_THAT(refusal(Allocated(kTarget, any)), HasSubstr("'snapshot=1': ebs has no options"));
  EXPECT_THAT(refusal(Delta(image, image, any)), HasSubstr("/base: 'snapshot=1': image has no"));
  EXPECT_THAT(refusal(Delta(kTarget, kTarget, any)), HasSubstr("/base: 'snapshot=1': ebs has no"));
  // By address alone: no server is contacted.
  for (const std::string address : {"nbd://127.0.0.1:1/x", "nbd+unix:///?socket=/nowhere"}) {
    const SourceOptions wrong = with({}, {{"export", ""}, {"layer", ""}});
    EXPECT_THAT(refusal(Read(OpenSource(address, wrong))), HasSubstr("'layer': nbd takes bitmap="));
  }
}

// A volume of `size` bytes that is also a complete RBD diff, one that reports no change.
std::string VolumeAsDiff(size_t size) {
  std::string volume = "rbd diff v2\n";
  const auto number = [&volume](uint64_t value) { test::PutLe<uint64_t>(volume, value); };
  for (const char tag : {'f', 't'}) {
    volume += tag;
    number(5);
    test::PutLe<uint32_t>(volume, 1);
    volume += tag;
  }
  volume += 's';
  number(8);
  number(size);
  // Unknown records are skipped.
  volume += '?';
  number(size - volume.size() - 9);
  volume.resize(size - 1, 'v');
  return volume + 'e';
}

// Writers of a volume choose its bytes, but neither its name nor its size.
TEST_F(SourceTest, AttackRAVolumeIsNoListWhateverIsWrittenToIt) {
  using namespace std::string_literals;
  const auto padded = [](std::string text) {
    text.resize(kMiB, ' ');
    return text;
  };
  const std::string map = "\x89"s + "CBM\r\n\x1a\n";
  // (volume, what it looks like, names reserved for such files)
  const struct {
    std::string volume;
    SourceFormat format;
    std::vector<std::string> names;
  } volumes[] = {
      {VolumeAsDiff(kMiB), SourceFormat::kRbdDiff, {"a.diff", "a.rbd", "a.DIFF"}},
      {padded(R"({"BlockSize":524288,"VolumeSize":1,"ChangedBlocks":[]})"),
       SourceFormat::kEbs,
       {"a.json", "a.b.json"}},
      {padded(map), SourceFormat::kChangeMap, {"a.cbm"}},
      {padded("QFI\xfb\0\0\0\3"s), SourceFormat::kQcow2, {"a.qcow2", ".a.qcow2"}},
      {padded("btrfs-stream\0\1\0\0\0"s), SourceFormat::kBtrfsSend, {"a.stream", "a.btrfs"}},
      {padded("<superblock current_era=\"1\">"), SourceFormat::kEraDump, {"a.xml"}}};
  for (const auto& [volume, format, names] : volumes) {
    const char* const name = InfoOf(format).name;
    for (const std::string file :
         {"source", "volume.img", "a.raw", "json", "dir.json/a", "a.json.img"}) {
      if (file.find('/') != std::string::npos)
        std::filesystem::create_directories(dir_ / "dir.json");
      Write(file, volume);
      for (const absl::Status& status : {OpenSource(dir_ / file, {}).status(),
                                         OpenDelta(dir_ / file, dir_ / file, {}).status()}) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << file << name << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("could be a raw volume"));
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("--from ", name)));
      }
      EXPECT_EQ(ValueOf(Read(OpenSource(dir_ / file, AsImage()))), (Ranges{{0, kMiB}}))
          << file << name;
    }
    for (const std::string& file : names) {
      Write(file, volume);
      EXPECT_THAT(std::string(OpenSource(dir_ / file, {}).status().message()),
                  Not(HasSubstr("could be a raw volume")))
          << file;
    }
    // A volume has no partial sector.
    Write("source", volume + "x");
    EXPECT_THAT(std::string(OpenSource(dir_ / "source", {}).status().message()),
                Not(HasSubstr("could be a raw volume")))
        << name;
  }
  SourceOptions named;
  named.spec.format = SourceFormat::kRbdDiff;
  Write("source", VolumeAsDiff(kMiB));
  EXPECT_EQ(ValueOf(Read(OpenSource(dir_ / "source", named))), Ranges{});
  Write("tuesday.diff", VolumeAsDiff(kMiB));
  EXPECT_EQ(ValueOf(OpenSource(dir_ / "tuesday.diff", {})).format, SourceFormat::kRbdDiff);
}

// Whole sectors with a single non-text byte, wherever it is, are an image.
TEST_F(SourceTest, VolumesMayBeginAsListsDo) {
  using namespace std::string_literals;
  for (const std::string& begin :
       {"["s, "{"s, "<"s, " \n["s, "\xef\xbb\xbf["s, "\xff\xfe[\0"s, "\xfe\xff\0["s, "[\0"s, "\0["s,
        "\xff\xfe\0\0"s, "\0\0\xfe\xff"s, "["s + std::string(300, ' ')}) {
    for (const size_t size : {size_t{512}, size_t{4096}, size_t{3} * 65536}) {
      for (const size_t at : {size_t{400}, size - 1}) {
        std::string image = begin + std::string(size - begin.size(), 'x');
        image[at] = '\1';
        const auto found = Allocated(image);
        ASSERT_OK(found) << begin << at << found.status();
        EXPECT_EQ(*found, (Ranges{{0, size}}));
      }
    }
    std::string noise = begin + std::string(65536 - begin.size(), '\0');
    test::SeededRandom random(7);
    for (size_t i = begin.size(); i < noise.size(); ++i) noise[i] = static_cast<char>(random());
    EXPECT_OK(Allocated(noise)) << begin;
  }
  // With a partial sector it is not a volume, but noise is not a list either.
  EXPECT_OK(Allocated("[" + std::string(1000, '\1')));
  EXPECT_FALSE(Allocated("[" + std::string(1000, 'x') + '\1').ok());
  // Data that begins like no list may have any size.
  for (const std::string& image : {"x"s, "\0"s, std::string(3, '\0'), std::string(1001, 'x'),
                                   std::string(1001, '\0'), "\xff\xff"s}) {
    EXPECT_OK(Allocated(image)) << image;
  }
}

}  // namespace open_source_test
}  // namespace cbt
