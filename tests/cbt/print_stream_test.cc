// stdout and the exit status when streams end well, and when they do not.
#include "programs/cbt/commands/print_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "cbt/wire/digest.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/output/volume_picture.h"
#include "programs/cbt/support/status.h"
#include "programs/cbt/support/terminal.h"
#include "tests/support/status.h"

namespace cbt::cli {
namespace print_stream_test {

// Returns one extent per step, then fails if asked to.
class BreakingCursor final : public ExtentCursor {
 public:
  BreakingCursor(uint64_t capacity, std::vector<Extent> extents, absl::Status failure)
      : ExtentCursor({.capacity = capacity, .granularity = 1}),
        extents_(std::move(extents)),
        failure_(std::move(failure)) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (next_ < extents_.size()) {
      batch.push_back(extents_[next_++]);
      return batch.back().end();
    }
    if (!failure_.ok()) return failure_;
    return capacity();
  }

  const std::vector<Extent> extents_;
  const absl::Status failure_;
  size_t next_ = 0;
};

// The output of `use` on stdout.
std::string Captured(const std::function<void()>& use) {
  std::fflush(stdout);
  char name[] = "/tmp/cbt-print-test-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  const int saved = dup(STDOUT_FILENO);
  dup2(file, STDOUT_FILENO);
  use();
  dup2(saved, STDOUT_FILENO);
  close(saved);
  std::string text(size_t{1} << 16, '\0');
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  close(file);
  text.resize(static_cast<size_t>(size));
  return text;
}

struct Printed {
  std::string text;
  absl::Status status;
};

Printed Print(Format format, std::vector<Extent> extents, absl::Status failure,
              int32_t max_results = 0, uint64_t starting_offset = 0) {
  BreakingCursor cursor(kMiB, std::move(extents), std::move(failure));
  Printed printed;
  printed.text = Captured([&] {
    PrintOptions options;
    options.stream.format = format;
    options.stream.max_results = max_results;
    options.stream.starting_offset = starting_offset;
    printed.status = PrintStream(cursor, options);
  });
  return printed;
}

const std::vector<Extent> kTwo = {{0, 4096}, {8192, 8192}};
constexpr char kHeader[] =
    "{\"block_metadata_type\":\"VARIABLE_LENGTH\",\"volume_capacity_bytes\":1048576";
constexpr char kFirst[] = "{\"byte_offset\":0,\"size_bytes\":4096}";
constexpr char kSecond[] = "{\"byte_offset\":8192,\"size_bytes\":8192}";

// The marker that docs/reference/completeness.md defines, for these two extents and for none.
std::string MarkerOfTwo() {
  StreamDigest digest;
  const uint64_t offsets[] = {0, 8192};
  const uint64_t lengths[] = {4096, 8192};
  digest.Add(offsets, lengths);
  return absl::StrCat("\"tuples\":2,\"bytes\":12288,\"digest\":\"xxh3-64:", digest.DigestText(),
                      "\"");
}
constexpr char kMarkerOfNone[] = "\"tuples\":0,\"bytes\":0,\"digest\":\"xxh3-64:2d06800538d394c2\"";

absl::Status Broken() { return absl::DataLossError("vol\"1\": \xff\nlost, really"); }

TEST(PrintStreamTest, PrintsNothingWhenTheFirstStepFails) {
  for (const Format format : {Format::kNdjson, Format::kJson, Format::kCsv, Format::kTable}) {
    const Printed printed = Print(format, {}, Broken());
    EXPECT_EQ(printed.text, "");
    EXPECT_EQ(printed.status, Broken());
  }
}

TEST(PrintStreamTest, LDEveryHeadSaysWhatTheAnswerIsAbout) {
  const auto print = [](Format format, const AnswerSource& source) {
    return Captured([&] {
      BreakingCursor cursor(kMiB, {{0, 4096}, {8192, 8192}}, absl::OkStatus());
      PrintOptions options;
      options.source = source;
      options.stream.format = format;
      options.stream.max_results = 1;
      EXPECT_OK(PrintStream(cursor, options));
    });
  };
  const AnswerSource source = {"v/\"mon\"", "v/tue,2", "af01"};
  const std::string names =
      ",\"base\":\"v/\\\"mon\\\"\",\"snapshot\":\"v/tue,2\",\"source_version\":\"af01\"";
  EXPECT_THAT(print(Format::kNdjson, source),
              testing::StartsWith(kHeader + names + "}\n" + kFirst + "\n"));
  const std::string object = kHeader + names + ",\"block_metadata\":[";
  EXPECT_THAT(print(Format::kJson, source),
              testing::StartsWith(object + kFirst + "]}\n" + object + kSecond + "],"));
  EXPECT_THAT(print(Format::kCsv, source),
              testing::StartsWith("byte_offset,size_bytes\ncapacity,1048576\n"
                                  "base,\"v/\"\"mon\"\"\"\nsnapshot,\"v/tue,2\"\n"
                                  "source_version,af01\n0,4096\n"));
  EXPECT_THAT(print(Format::kNdjson, {"", "s", ""}),
              testing::StartsWith(std::string(kHeader) + ",\"snapshot\":\"s\"}\n"));
}

TEST(PrintStreamTest, Ndjson) {
  const std::string body = std::string(kHeader) + "}\n" + kFirst + "\n" + kSecond + "\n";
  const Printed whole = Print(Format::kNdjson, kTwo, absl::OkStatus());
  EXPECT_OK(whole.status);
  EXPECT_EQ(whole.text, body + "{\"complete\":true," + MarkerOfTwo() + "}\n");
  EXPECT_EQ(Print(Format::kNdjson, {}, absl::OkStatus()).text,
            std::string(kHeader) + "}\n{\"complete\":true," + kMarkerOfNone + "}\n");
  // The extents of the example in docs/reference/completeness.md.
  EXPECT_THAT(Print(Format::kNdjson, {{0, 4096}, {8192, 4096}}, absl::OkStatus()).text,
              testing::EndsWith("{\"complete\":true,\"tuples\":2,\"bytes\":8192,"
                                "\"digest\":\"xxh3-64:4e55d285f0e23415\"}\n"));
  const Printed broken = Print(Format::kNdjson, kTwo, Broken());
  EXPECT_EQ(broken.status, Broken());
  EXPECT_EQ(broken.text, body + "{\"error\":\"vol\\\"1\\\": \\ufffd\\u000alost, really\"}\n");
}

TEST(PrintStreamTest, Csv) {
  const std::string body = "byte_offset,size_bytes\ncapacity,1048576\n0,4096\n8192,8192\n";
  EXPECT_EQ(Print(Format::kCsv, kTwo, absl::OkStatus()).text, body + "complete,2\n");
  EXPECT_EQ(Print(Format::kCsv, kTwo, Broken()).text,
            body + "error,\"vol\"\"1\"\": \xff?lost, really\"\n");
  EXPECT_EQ(Print(Format::kCsv, kTwo, absl::AbortedError("it broke")).text,
            body + "error,it broke\n");
}

TEST(PrintStreamTest, Json) {
  const std::string open = std::string(kHeader) + ",\"block_metadata\":[";
  EXPECT_EQ(Print(Format::kJson, {}, absl::OkStatus()).text,
            open + "]," + kMarkerOfNone + ",\"complete\":true}\n");
  EXPECT_EQ(Print(Format::kJson, kTwo, absl::OkStatus()).text,
            open + kFirst + "," + kSecond + "]," + MarkerOfTwo() + ",\"complete\":true}\n");
  EXPECT_EQ(Print(Format::kJson, kTwo, Broken()).text, open + kFirst + "," + kSecond + "\n");
}

TEST(PrintStreamTest, JsonInGroups) {
  const std::string open = std::string(kHeader) + ",\"block_metadata\":[";
  const std::string end = "]," + MarkerOfTwo() + ",\"complete\":true}\n";
  const std::string first = open + kFirst + "]}\n";
  // Only the last object has the marker, which covers all of them.
  EXPECT_EQ(Print(Format::kJson, kTwo, absl::OkStatus(), 1).text, first + open + kSecond + end);
  EXPECT_EQ(Print(Format::kJson, kTwo, absl::OkStatus(), 2).text,
            open + kFirst + "," + kSecond + end);
  EXPECT_EQ(Print(Format::kJson, {}, absl::OkStatus(), 1).text,
            open + "]," + kMarkerOfNone + ",\"complete\":true}\n");
  // Even if the last group was full, a broken end does not look complete.
  EXPECT_EQ(Print(Format::kJson, kTwo, Broken(), 1).text, first + open + kSecond + "\n");
  EXPECT_EQ(Print(Format::kJson, kTwo, Broken(), 2).text, open + kFirst + "," + kSecond + "\n");
}

TEST(PrintStreamTest, APartOfAnAnswerSaysWhereItBeginsAndEnds) {
  const auto print = [](Format format, uint64_t begin, uint64_t end) {
    BreakingCursor cursor(1 << 20, kTwo, absl::OkStatus());
    PrintOptions options;
    options.stream.format = format;
    options.stream.starting_offset = begin;
    options.ending_offset = end;
    return Captured([&] { EXPECT_OK(PrintStream(cursor, options)); });
  };
  EXPECT_THAT(print(Format::kNdjson, 0, 1 << 20), testing::EndsWith(MarkerOfTwo() + "}\n"));
  EXPECT_THAT(
      print(Format::kNdjson, 100, 20000),
      testing::EndsWith(MarkerOfTwo() + ",\"starting_offset\":100,\"ending_offset\":20000}\n"));
  EXPECT_THAT(print(Format::kJson, 0, 20000),
              testing::EndsWith(MarkerOfTwo() + ",\"ending_offset\":20000,\"complete\":true}\n"));
  EXPECT_THAT(print(Format::kCsv, 100, 20000),
              testing::EndsWith("\nstarting_offset,100\nending_offset,20000\ncomplete,2\n"));
  EXPECT_THAT(print(Format::kCsv, 0, ~uint64_t{0}), testing::EndsWith("\n8192,8192\ncomplete,2\n"));
}

// Sets the locale's variables for a test.
class Locale {
 public:
  explicit Locale(const char* all, const char* ctype = nullptr, const char* lang = nullptr) {
    const std::array<const char*, 3> values = {all, ctype, lang};
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (const char* const old = std::getenv(kNames[i]); old != nullptr) before_[i] = old;
      Set(kNames[i], values[i]);
    }
  }
  ~Locale() {
    for (size_t i = 0; i < kNames.size(); ++i) {
      Set(kNames[i], before_[i].has_value() ? before_[i]->c_str() : nullptr);
    }
  }
  Locale(const Locale&) = delete;
  Locale& operator=(const Locale&) = delete;

 private:
  static constexpr std::array<const char*, 3> kNames = {"LC_ALL", "LC_CTYPE", "LANG"};

  static void Set(const char* name, const char* value) {
    if (value == nullptr) {
      unsetenv(name);
    } else {
      setenv(name, value, 1);
    }
  }

  std::array<std::optional<std::string>, 3> before_;
};

TEST(LocaleGlyphsTest, TheFirstVariableThatIsSetDecides) {
  const auto of = [](const char* all, const char* ctype, const char* lang) {
    const Locale locale(all, ctype, lang);
    return LocaleGlyphs();
  };
  EXPECT_EQ(of(nullptr, nullptr, nullptr), Glyphs::kAscii);
  EXPECT_EQ(of(nullptr, nullptr, "en_US.UTF-8"), Glyphs::kUnicode);
  EXPECT_EQ(of("", "", "C.utf8"), Glyphs::kUnicode);
  EXPECT_EQ(of("C", "C.UTF-8", "C.UTF-8"), Glyphs::kAscii);
  EXPECT_EQ(of(nullptr, "POSIX", "C.UTF-8"), Glyphs::kAscii);
  EXPECT_EQ(of(nullptr, "de_DE.utf-8@euro", "C"), Glyphs::kUnicode);
  EXPECT_EQ(of("de_DE.ISO-8859-15@euro", nullptr, nullptr), Glyphs::kAscii);
  EXPECT_EQ(of("de_DE@UTF-8", nullptr, nullptr), Glyphs::kAscii);
  EXPECT_EQ(of("UTF-8", nullptr, nullptr), Glyphs::kAscii);
}

TEST(PrintStreamTest, Table) {
  const Locale locale("C.UTF-8");
  const std::string rows =
      " OFFSET   LENGTH        SIZE\n"
      "      0     4096     4.0 KiB\n"
      "   8192     8192     8.0 KiB\n";
  std::string dots;
  for (int i = 0; i < 63; ++i) dots += "·";
  EXPECT_EQ(Print(Format::kTable, kTwo, absl::OkStatus()).text,
            rows + "\n2 extents, 12.0 KiB of 1.0 MiB changed (1.17 %)\n[█" + dots + "]\n" +
                ShadesLegend(Glyphs::kUnicode) + "\n");
  EXPECT_EQ(Print(Format::kTable, kTwo, Broken()).text,
            rows + "INCOMPLETE: vol\"1\": \xff?lost, really\n");
  {
    const Locale plain("C");
    EXPECT_THAT(Print(Format::kTable, kTwo, absl::OkStatus()).text,
                testing::EndsWith("\n[#" + std::string(63, '.') + "]\n" +
                                  ShadesLegend(Glyphs::kAscii) + "\n"));
  }
  EXPECT_NE(Print(Format::kTable, {}, absl::OkStatus(), 0, 1 << 19)
                .text.find("0 extents, 0 B of 1.0 MiB changed (0 %), from offset 524288 on"),
            std::string::npos);
}

TEST(PrintStreamTest, FailedOutputIsAnError) {
  absl::Status status;
  Captured([&] {
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    dup2(full, STDOUT_FILENO);
    close(full);
    BreakingCursor cursor(kMiB, kTwo, absl::OkStatus());
    status = PrintStream(cursor, {});
  });
  EXPECT_EQ(ExitStatusFor(status.code()), kExitFailure) << status;
}

TEST(VolumePictureTest, ShowsEveryByteAndOnlyWhatWasAskedFor) {
  VolumePicture picture(6400, 250);
  picture.Add({6399, 1});
  picture.Add({300, 100});    // a whole cell
  picture.Add({410, 50});     // half of one
  picture.Add({6400, 4096});  // past the capacity
  EXPECT_EQ(picture.bytes(), 151u);
  std::string expected = "  ·█▆";
  for (int i = 5; i < 63; ++i) expected += "·";
  EXPECT_EQ(picture.Draw(Glyphs::kUnicode), expected + "▂");
  EXPECT_EQ(picture.Draw(Glyphs::kAscii), "  .#*" + std::string(58, '.') + "-");
  EXPECT_EQ(VolumePicture(0, 0).Draw(Glyphs::kUnicode), "");
  VolumePicture tiny(3, 0);
  tiny.Add({1, 4096});
  EXPECT_EQ(tiny.Draw(Glyphs::kUnicode), "·██");
  VolumePicture huge(kMaxCapacity, 0);
  huge.Add({0, kMaxCapacity});
  std::string full;
  for (int i = 0; i < 64; ++i) full += "█";
  EXPECT_EQ(huge.Draw(Glyphs::kUnicode), full);
}

TEST(JsonStringTest, IsAlwaysJson) {
  EXPECT_EQ(JsonString("plain / \\ \" \t\x7f"), "\"plain / \\\\ \\\" \\u0009\\u007f\"");
  EXPECT_EQ(JsonString("\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xbe"),
            "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xbe\"");
  // Truncated, overlong, a surrogate, past the last code point.
  EXPECT_EQ(JsonString("\xe2\x82"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xc0\xaf"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");
  EXPECT_EQ(JsonString("\xf4\x90\x80\x80"), "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

TEST(StatusTest, EveryCodeHasItsExitStatus) {
  using Code = absl::StatusCode;
  EXPECT_EQ(ExitStatusFor(Code::kOk), 0);
  for (const Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kOutOfRange, Code::kFailedPrecondition,
        Code::kPermissionDenied, Code::kUnauthenticated}) {
    EXPECT_EQ(ExitStatusFor(code), 2) << absl::StatusCodeToString(code);
    EXPECT_EQ(ExitStatusFor(code, Origin::kServer), 2) << absl::StatusCodeToString(code);
  }
  for (const Code code :
       {Code::kUnavailable, Code::kAborted, Code::kDeadlineExceeded, Code::kInternal,
        Code::kUnknown, Code::kCancelled, Code::kResourceExhausted}) {
    EXPECT_EQ(ExitStatusFor(code), 3) << absl::StatusCodeToString(code);
    EXPECT_EQ(ExitStatusFor(code, Origin::kServer), 3) << absl::StatusCodeToString(code);
  }
  // A defect in a file is bad input; a server's mistake is not the user's.
  for (const Code code : {Code::kDataLoss, Code::kUnimplemented}) {
    EXPECT_EQ(ExitStatusFor(code), 2) << absl::StatusCodeToString(code);
    EXPECT_EQ(ExitStatusFor(code, Origin::kServer), 3) << absl::StatusCodeToString(code);
  }
}

TEST(StatusTest, OnlyAClosedPipeIsNoFailure) {
  EXPECT_EQ(Report("test", ReaderGone("stdout")), 0);
  EXPECT_EQ(Report("test", absl::CancelledError("stdout: its reader has gone")), 3);
}

TEST(StatusTest, MessagesStayOneHarmlessLine) {
  EXPECT_EQ(OneLine("a\nb\r\x1b[2Jc\x7f\xc2\x9b"
                    "d\xc3\xa9"),
            "a?b??[2Jc??d\xc3\xa9");
}

}  // namespace print_stream_test
}  // namespace cbt::cli
