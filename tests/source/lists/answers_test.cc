// Output of the cbt command is only read back if it is complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cbt/source/lists.h"
#include "cbt/source/open.h"
#include "tests/source/support/imports.h"
#include "tests/source/support/listings.h"

namespace cbt {
namespace answers_test {

using reference::Ranges;
using test::From;

const Ranges kRanges = {{0, 4096}, {8192, 4096}};
constexpr uint64_t kCapacity = 16384;

absl::StatusOr<ChangeMap> Ndjson(const std::string& text, const ImportOptions& options = {}) {
  return From([](ByteStream& stream,
                 const ImportOptions& asked) { return ReadNdjsonAnswer(stream, asked); },
              text, options);
}
absl::StatusOr<ChangeMap> Json(const std::string& text, const ImportOptions& options = {}) {
  return From(
      [](ByteStream& stream, const ImportOptions& asked) { return ReadJsonAnswer(stream, asked); },
      text, options);
}
absl::StatusOr<ChangeMap> Csv(const std::string& text,
                              const ImportOptions& options = {.capacity = kCapacity}) {
  return From(ReadCsvAnswer, text, options);
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return text.replace(at, what.size(), by);
}

TEST(AnswersTest, AreReadWithTheirSize) {
  EXPECT_RANGES(Ndjson(test::WriteNdjson(kRanges, kCapacity)), {{0, 4096}, {8192, 4096}});
  EXPECT_RANGES(Json(test::WriteJson(kRanges, kCapacity)), {{0, 4096}, {8192, 4096}});
  EXPECT_RANGES(Csv(test::WriteCsv(kRanges, kCapacity)), {{0, 4096}, {8192, 4096}});
  EXPECT_EQ((*Ndjson(test::WriteNdjson({}, kCapacity)))->capacity(), kCapacity);
  EXPECT_REFUSED(Csv(test::WriteCsv(kRanges, kCapacity), {}), kInvalidArgument, "volume's size");
  EXPECT_REFUSED(Ndjson(test::WriteNdjson(kRanges, kCapacity), {.capacity = 32768}),
                 kInvalidArgument, "the volume has 16384 bytes, not 32768");
}

// The head says which snapshots and which state of them an answer is about: parts of two are not
// one.
TEST(AnswersTest, LDHeadsAreCompared) {
  const std::string names = ",\"base\":\"v/mon\",\"snapshot\":\"v/tue\",\"source_version\":\"1\"";
  const std::string capacity = "\"volume_capacity_bytes\":16384";
  const std::string lines = test::WriteNdjson(kRanges, kCapacity);
  EXPECT_RANGES(Ndjson(Replaced(lines, capacity, capacity + names)), {{0, 4096}, {8192, 4096}});
  EXPECT_REFUSED(Ndjson(Replaced(lines, capacity, capacity + names + names)), kDataLoss, "twice");
  EXPECT_REFUSED(Ndjson(Replaced(lines, "\"size_bytes\":4096", "\"size_bytes\":4096" + names)),
                 kDataLoss, "outside of the head");
  EXPECT_REFUSED(Ndjson(Replaced(lines, "\"complete\":true", "\"complete\":true" + names)),
                 kDataLoss, "outside of the head");
  // Objects of groups; each repeats the head.
  const std::string objects = test::WriteJson({{0, 4096}, {8192, 4096}, {12288, 1024}}, kCapacity);
  const size_t second = objects.rfind(capacity);
  ASSERT_NE(second, objects.find(capacity));
  const auto with = [&](const std::string& first, const std::string& later) {
    std::string text = objects;
    text.replace(second, capacity.size(), capacity + later);
    return Json(Replaced(text, capacity, capacity + first));
  };
  EXPECT_OK(with(names, names));
  EXPECT_REFUSED(with(names, Replaced(names, "\"1\"", "\"2\"")), kDataLoss, "different answers");
  EXPECT_REFUSED(with(names, Replaced(names, "v/mon", "v/sun")), kDataLoss, "different answers");
  EXPECT_REFUSED(with(names, ""), kDataLoss, "different answers");
  EXPECT_REFUSED(with("", names), kDataLoss, "different answers");
  // csv has rows.
  const std::string rows = test::WriteCsv(kRanges, kCapacity);
  const std::string first = "byte_offset,size_bytes\n";
  const std::string head = "capacity,16384\nbase,v/mon\nsnapshot,\"v,tue\"\nsource_version,1\n";
  EXPECT_RANGES(Csv(Replaced(rows, first, first + head), {}), {{0, 4096}, {8192, 4096}});
  EXPECT_REFUSED(Csv(Replaced(rows, first, first + head), {.capacity = 32768}), kInvalidArgument,
                 "the volume has 16384 bytes, not 32768");
  for (const char* row : {"capacity,16384\n", "base,v/mon\n", "source_version,1\n"}) {
    EXPECT_REFUSED(Csv(Replaced(rows, first, first + head + row)), kDataLoss, "twice");
    EXPECT_REFUSED(Csv(Replaced(rows, "0,4096\n", std::string("0,4096\n") + row)), kDataLoss,
                   "after the tuples");
  }
  EXPECT_REFUSED(Csv(Replaced(rows, first, first + "capacity,large\n")), kDataLoss, "not a number");
}

TEST(AnswersTest, WithoutTheEndMarkerAreRefused) {
  std::string lines = test::WriteNdjson(kRanges, kCapacity);
  lines.erase(lines.find("{\"complete\""));
  EXPECT_REFUSED(Ndjson(lines), kDataLoss, "no end marker");
  std::string objects = test::WriteJson(kRanges, kCapacity);
  objects = objects.substr(0, objects.find("]") + 1) + "}";
  EXPECT_REFUSED(Json(objects), kDataLoss, "no end marker");
  std::string rows = test::WriteCsv(kRanges, kCapacity);
  rows.erase(rows.find("complete"));
  EXPECT_REFUSED(Csv(rows), kDataLoss, "no end marker");
}

TEST(AnswersTest, ThatEndedWithAnErrorAreRefused) {
  std::string lines = test::WriteNdjson(kRanges, kCapacity);
  lines.erase(lines.find("{\"complete\""));
  EXPECT_REFUSED(Ndjson(lines + "{\"error\":\"it broke\"}\n"), kDataLoss,
                 "ended with an error: it broke");
  EXPECT_REFUSED(Csv("byte_offset,size_bytes\n0,4096\nerror,it broke\n"), kDataLoss,
                 "ended with an error: it broke");
}

TEST(AnswersTest, ThatLostOrGainedATupleAreRefused) {
  const std::string lines = test::WriteNdjson(kRanges, kCapacity);
  const std::string objects = test::WriteJson(kRanges, kCapacity);
  const std::string rows = test::WriteCsv(kRanges, kCapacity);
  EXPECT_REFUSED(Ndjson(Replaced(lines, "{\"byte_offset\":0,\"size_bytes\":4096}\n", "")),
                 kDataLoss, "counts 2 tuples, but there are 1");
  EXPECT_REFUSED(Json(Replaced(objects, "{\"byte_offset\":0,\"size_bytes\":4096},", "")), kDataLoss,
                 "counts 2 tuples, but there are 1");
  EXPECT_REFUSED(Csv(Replaced(rows, "0,4096\n", "")), kDataLoss,
                 "counts 2 tuples, but there are 1");
  // The same number of tuples and bytes, with other offsets.
  EXPECT_REFUSED(Ndjson(Replaced(lines, ":8192", ":4096")), kDataLoss, "digest");
  EXPECT_REFUSED(Json(Replaced(objects, ":8192", ":12288")), kDataLoss, "digest");
  EXPECT_REFUSED(Ndjson(Replaced(lines, "\"bytes\":8192", "\"bytes\":8193")), kDataLoss, "bytes");
  EXPECT_REFUSED(Csv(Replaced(rows, "8192,4096", "2048,4096")), kDataLoss, "previous one ended");
  EXPECT_REFUSED(Csv(Replaced(rows, "8192,4096", "8192,0")), kDataLoss, "0 bytes");
  for (const char* member : {"\"tuples\":2,", "\"bytes\":8192,"}) {
    EXPECT_REFUSED(Ndjson(Replaced(lines, member, "")), kDataLoss, "without tuples");
  }
  EXPECT_REFUSED(Ndjson(Replaced(lines, "\"complete\":true,", "")), kDataLoss, "end marker");
  EXPECT_REFUSED(Ndjson(Replaced(lines, "true", "false")), kDataLoss, "not true");
}

TEST(AnswersTest, PartsOfAVolumeAreRefused) {
  const std::string lines = test::WriteNdjson(kRanges, kCapacity);
  const std::string objects = test::WriteJson(kRanges, kCapacity);
  const std::string rows = test::WriteCsv(kRanges, kCapacity);
  for (const char* key : {"starting_offset", "ending_offset"}) {
    const std::string quoted = "\"" + std::string(key) + "\":4096,\"complete\"";
    const std::string row = std::string(key) + ",4096\ncomplete";
    EXPECT_REFUSED(Ndjson(Replaced(lines, "\"complete\"", quoted)), kInvalidArgument,
                   "only a part");
    EXPECT_REFUSED(Json(Replaced(objects, "\"complete\"", quoted)), kInvalidArgument,
                   "only a part");
    EXPECT_REFUSED(Csv(Replaced(rows, "complete", row)), kInvalidArgument, "only a part");
  }
}

TEST(AnswersTest, TheLastBlockIsCutAtTheEndOfTheVolume) {
  const Ranges blocks = {{0, 4096}, {12288, 4096}};
  const std::string lines = test::WriteNdjson(blocks, 13000);
  EXPECT_REFUSED(Ndjson(lines), kOutOfRange, "past the volume's end");
  EXPECT_RANGES(Ndjson(Replaced(lines, "VARIABLE", "FIXED")), {{0, 4096}, {12288, 712}});
  EXPECT_RANGES(Csv(test::WriteCsv(blocks, 0), {.capacity = 13000}), {{0, 4096}, {12288, 712}});
  EXPECT_REFUSED(Csv(test::WriteCsv(blocks, 0), {.capacity = 12288}), kOutOfRange, "past");
  EXPECT_REFUSED(Csv(test::WriteCsv({{0, 4096}, {8192, 8192}}, 0), {.capacity = 13000}),
                 kOutOfRange, "past");
}

TEST(AnswersTest, AreDetectedByTheirContent) {
  const auto detected = [](const std::string& text) {
    return DetectSourceFormat({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(*detected(test::WriteNdjson(kRanges, kCapacity)), SourceFormat::kNdjson);
  EXPECT_EQ(*detected(test::WriteJson(kRanges, kCapacity)), SourceFormat::kJson);
  EXPECT_EQ(*detected(test::WriteCsv(kRanges, kCapacity)), SourceFormat::kCsv);
}

}  // namespace answers_test
}  // namespace cbt
