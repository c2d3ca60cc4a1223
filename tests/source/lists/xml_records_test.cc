// XML events and the verdict on the document, however the stream is cut into pieces.
#include "source/lists/xml_records.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/dribble.h"
#include "tests/support/generators.h"

namespace cbt {
namespace xml_records_test {

using test::AnyRandom;

class Recorder final : public XmlEvents {
 public:
  std::string text;

 private:
  absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) override {
    absl::StrAppend(&text, depth, "<", std::string(name));
    for (const char* attribute : {"a", "b", "cc", "d_1"}) {
      if (const auto value = attributes.Find(attribute); value.has_value()) {
        absl::StrAppend(&text, " ", attribute, "=", std::string(*value));
      }
    }
    text += ";";
    return name == "fail" ? absl::InvalidArgumentError("asked to") : absl::OkStatus();
  }
  absl::Status Close(int depth, std::string_view name) override {
    absl::StrAppend(&text, depth, ">", std::string(name), ";");
    return absl::OkStatus();
  }
};

struct Parsed {
  std::string events;
  absl::Status status;
};

// Reads `text` in pieces of at most `most` bytes.
Parsed Read(const std::string& text, size_t most) {
  test::Dribble stream(text, most, "in");
  Recorder recorder;
  const absl::Status status = ReadXml(stream, recorder);
  return {recorder.text, status};
}

void ExpectTheSame(const std::string& text, size_t most) {
  const Parsed whole = Read(text, text.size() + 1);
  const Parsed pieces = Read(text, most);
  ASSERT_EQ(whole.status.code(), pieces.status.code()) << text << "\n"
                                                       << whole.status << "\n"
                                                       << pieces.status;
  // An error of the event handler is reported from the same place.
  if (absl::IsInvalidArgument(whole.status)) {
    ASSERT_EQ(whole.status, pieces.status) << text;
  }
  if (!absl::IsDataLoss(whole.status)) {
    ASSERT_EQ(whole.events, pieces.events) << text;
  }
}

constexpr const char* kPieces[] = {"<r>",
                                   "</r>",
                                   "<s a=\"1\">",
                                   "</s>",
                                   "<s a=\"1\" b=\"22\"/>",
                                   "<t cc = \"x y\" d_1=\"\"/>",
                                   "<t/>",
                                   "<t />",
                                   "<t a=\"1\" a=\"2\"/>",
                                   "<t a=\"1\"b=\"2\"/>",
                                   "<t a='1'/>",
                                   "<t a=\"&lt;\"/>",
                                   "<t a=\"<\"/>",
                                   "<t a=\">\"/>",
                                   "<t a=\"x\ty\nz\"/>",
                                   "<t a/>",
                                   "<t a=1/>",
                                   "<t a=\"\xc3\xa4\"/>",
                                   "<t a=\"\xc3\"/>",
                                   "<!-- <t a=\"9\"/> -->",
                                   "<![CDATA[<t a=\"8\"/>]]>",
                                   "<?pi <t a=\"7\"/> ?>",
                                   "<?xml version=\"1.0\"?>",
                                   "<!DOCTYPE r>",
                                   "text",
                                   "&amp;",
                                   "]]>",
                                   " ",
                                   "\n",
                                   "\r\n",
                                   "\t\n",
                                   "<",
                                   ">",
                                   "/>",
                                   "<fail/>",
                                   "<\xc3\xa4/>",
                                   "<A/>",
                                   "<_x/>",
                                   "<t a=\"1\"",
                                   "\xef\xbb\xbf"};

// Valid content between tags, around the size of a buffer and above.
std::vector<std::string> LongRuns(size_t size) {
  const std::string blanks(size, ' ');
  return {blanks,
          std::string(size, '\n'),
          absl::StrCat("<!--", blanks, "-->"),
          absl::StrCat("<!-- <t a=\"9\"> ", blanks, " </t> -->"),
          absl::StrCat(blanks, "<!-- -->", blanks),
          absl::StrCat("<?pi ", blanks, "?>"),
          std::string(size, 'x')};
}

std::string AnyLongRun(std::mt19937_64& random) {
  std::vector<std::string> runs =
      LongRuns(65536 - 50 + random() % (random() % 2 == 0 ? 100 : 9999));
  return std::move(runs[random() % runs.size()]);
}

RC_GTEST_PROP(XmlRecords, PiecesOfAnySizeReadTheSame, ()) {
  std::mt19937_64 random = AnyRandom();
  std::string text = random() % 8 == 0 ? "" : "<r>";
  // Mostly elements of real lists.
  const bool wild = random() % 2 == 0;
  for (size_t i = random() % 20; i > 0; --i) {
    const size_t pieces = wild || random() % 20 == 0 ? std::size(kPieces) : 8;
    text += kPieces[random() % pieces];
    if (random() % 3 == 0) text += "\n  ";
  }
  // Sometimes a stretch without tags that fills a buffer, inside open elements.
  const bool run = random() % 4 == 0;
  if (run) text.insert(random() % (text.size() + 1), AnyLongRun(random));
  if (random() % 8 != 0) text += "</r>";
  if (random() % 4 == 0 && !text.empty()) text.resize(random() % text.size());
  ExpectTheSame(text, run ? 5000 + random() % 70000 : 1 + random() % 64);
  if (testing::Test::HasFatalFailure()) RC_FAIL("they differ");
}

TEST(XmlRecords, TagsAcrossBuffersAndLongOnes) {
  std::string text = "<r>\n";
  std::string events = "0<r;";
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&text, "  <t a=\"", i, "\" b=\"", i * 7, "\"/>\n");
    absl::StrAppend(&events, "1<t a=", i, " b=", i * 7, ";1>t;");
  }
  text += "</r>\n";
  events += "0>r;";
  for (const size_t most : {size_t{65536}, size_t{1000}}) {
    const Parsed parsed = Read(text, most);
    ASSERT_EQ(parsed.status, absl::OkStatus());
    ASSERT_EQ(parsed.events, events);
  }
  for (const size_t size : {65000u, 65530u, 65536u, 70000u, 200000u}) {
    const std::string value(size, 'v');
    Parsed parsed = Read(absl::StrCat("<r><t a=\"", value, "\"/><t b=\"1\"/></r>"), 65536);
    ASSERT_EQ(parsed.status, absl::OkStatus());
    ASSERT_EQ(parsed.events, absl::StrCat("0<r;1<t a=", value, ";1>t;1<t b=1;1>t;0>r;"));
    parsed = Read(absl::StrCat("<r>", std::string(size, ' '), "<t b=\"1\"/></r>"), 65536);
    ASSERT_EQ(parsed.status, absl::OkStatus());
    ASSERT_EQ(parsed.events, "0<r;1<t b=1;1>t;0>r;");
  }
}

// Content that fills a buffer must not hide a missing end tag: such a list was truncated.
TEST(XmlRecordsTest, LongWhiteSpaceAndCommentsChangeNothing) {
  const std::vector<std::string> tags = {"<r>",  "<diff>",  "<s>",  "<t a=\"1\"/>",
                                         "</s>", "</diff>", "</r>", ""};
  for (const size_t size : {65000u, 65530u, 65535u, 65536u, 65537u, 70000u, 140000u}) {
    for (const std::string& run : LongRuns(size)) {
      for (size_t place = 0; place + 1 < tags.size(); ++place) {
        // With one tag missing; in the last round, with all of them.
        for (size_t missing = 4; missing < tags.size(); ++missing) {
          std::string text;
          for (size_t i = 0; i < tags.size(); ++i) {
            if (i != missing) text += tags[i];
            if (i == place) text += run;
          }
          const bool whole = missing + 1 == tags.size() && run.front() != 'x';
          const Parsed parsed = Read(text, 65536);
          ASSERT_EQ(parsed.status.code(),
                    whole ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
              << size << " bytes of " << run.substr(0, 5) << " after " << tags[place] << " without "
              << tags[missing] << ": " << parsed.status;
          if (whole) {
            ASSERT_EQ(parsed.events, "0<r;1<diff;2<s;3<t a=1;3>t;2>s;1>diff;0>r;");
          }
        }
      }
    }
  }
}

// An element that lost its < would be skipped, and its blocks with it.
TEST(XmlRecordsTest, TextIsNoElementThatMayBeLeftOut) {
  for (const char* text : {"x", "t a=\"1\"/>", "&amp;", "&#120;", "<![CDATA[<t a=\"8\"/>]]>",
                           "\xc3\xa4", "x<fail/>"}) {
    for (const auto& [before, after] :
         {std::pair("<r>\n\n", "</r>"), std::pair("<r>\n<s>\n  ", "</s></r>"),
          std::pair("<r>\n<t/>\n<!-- --> ", "<t/></r>")}) {
      for (const size_t most : {size_t{1}, size_t{7}, size_t{65536}}) {
        const Parsed parsed = Read(absl::StrCat(before, text, after), most);
        ASSERT_EQ(parsed.status,
                  absl::DataLossError("in: line 3: text where only elements are allowed"))
            << before << text;
      }
    }
  }
  for (const char* blanks : {" \t\r\n", "<!-- x -->", "<?x x?>", "&#32;&#10;", "<![CDATA[ ]]>"}) {
    const Parsed parsed = Read(absl::StrCat("<r>", blanks, "<t/>", blanks, "</r>"), 7);
    ASSERT_EQ(parsed.status, absl::OkStatus()) << blanks;
    ASSERT_EQ(parsed.events, "0<r;1<t;1>t;0>r;");
  }
}

// Counts events and stores nothing.
class Counter final : public XmlEvents {
 public:
  uint64_t opened = 0;

 private:
  absl::Status Open(int, std::string_view, const XmlAttributes&) override {
    ++opened;
    return absl::OkStatus();
  }
  absl::Status Close(int, std::string_view) override { return absl::OkStatus(); }
};

// Expat stores every name it sees. An endless list of new names is refused while it is cheap; a
// list that uses few names is read to its end.
TEST(XmlRecordsTest, ManyAttributeNamesCostNoMemory) {
  constexpr uint64_t kTags = 600'000;
  const auto read = [](bool many, bool attribute, Counter& counter) {
    std::string text = "<r>\n";
    for (uint64_t i = 0; i < kTags; ++i) {
      const std::string name = absl::StrCat(attribute ? "a" : "e", many ? i : i % 100);
      if (attribute) {
        absl::StrAppend(&text, "<t ", name, "=\"1\"/>\n");
      } else {
        absl::StrAppend(&text, "<", name, "/>\n");
      }
    }
    test::Dribble stream(text + "</r>\n", 65536, "in");
    return ReadXml(stream, counter);
  };
  for (const bool attribute : {false, true}) {
    Counter many;
    const absl::Status status = read(true, attribute, many);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(status.message().find(absl::StrCat("in: line ", many.opened + 1, ": ")), 0) << status;
    // Each name takes at least its own bytes and a table entry.
    EXPECT_LT(many.opened * 24, kMaxXmlMemoryBytes);
    Counter few;
    EXPECT_EQ(read(false, attribute, few), absl::OkStatus());
    EXPECT_EQ(few.opened, kTags + 1);
  }
  // The longest allowed tag fits, and so do many of them.
  const std::string longest =
      absl::StrCat("<t a='", std::string(kMaxXmlTagBytes - 100, 'v'), "'/>\n");
  std::string text = "<r>";
  for (int i = 0; i < 20; ++i) text += longest;
  EXPECT_EQ(Read(text + "</r>", 65536).status, absl::OkStatus());
}

TEST(XmlRecords, ErrorsNameTheLine) {
  EXPECT_EQ(Read("<r>\n<t/>\n\n<t\na=\"1\"/>\n<fail/>\n</r>", 100).status.message(),
            "in: line 6: asked to");
  EXPECT_EQ(Read("<r>\n<t/>\n<t/>\n<s>\n</r>", 100).status.message(),
            "in: line 5: not XML: mismatched tag");
}

}  // namespace xml_records_test
}  // namespace cbt
