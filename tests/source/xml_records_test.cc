// The quick way through XML against expat alone: the same events, the same verdict.
#include "source/xml_records.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "support/dribble.h"
#include "support/generators.h"

namespace cbt {
namespace {

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

struct Said {
  std::string events;
  absl::Status status;
};

Said Read(const std::string& text, bool quick, size_t most) {
  test::Dribble stream(text, most, "in");
  Recorder recorder;
  const absl::Status status = ReadXml(stream, recorder, quick);
  return {recorder.text, status};
}

void ExpectTheSame(const std::string& text, size_t most) {
  const Said slow = Read(text, false, most);
  const Said quick = Read(text, true, most);
  ASSERT_EQ(slow.status.code(), quick.status.code()) << text << "\n"
                                                     << slow.status << "\n"
                                                     << quick.status;
  if (slow.status.ok()) {
    ASSERT_EQ(slow.events, quick.events) << text;
  } else if (absl::IsInvalidArgument(slow.status)) {
    // Refused by the events: at the same place.
    ASSERT_EQ(slow.status, quick.status) << text;
    ASSERT_EQ(slow.events, quick.events) << text;
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

RC_GTEST_PROP(XmlRecords, QuickAndSlowSayTheSame, ()) {
  std::mt19937_64 random = AnyRandom();
  std::string text = random() % 8 == 0 ? "" : "<r>";
  // Mostly what lists consist of.
  const bool wild = random() % 2 == 0;
  for (size_t i = random() % 20; i > 0; --i) {
    const size_t pieces = wild || random() % 20 == 0 ? std::size(kPieces) : 8;
    text += kPieces[random() % pieces];
    if (random() % 3 == 0) text += "\n  ";
  }
  if (random() % 8 != 0) text += "</r>";
  if (random() % 4 == 0 && !text.empty()) text.resize(random() % text.size());
  ExpectTheSame(text, 1 + random() % 64);
  if (testing::Test::HasFatalFailure()) RC_FAIL("they differ");
}

TEST(XmlRecords, TagsAcrossBuffersAndLongOnes) {
  std::string text = "<r>\n";
  for (int i = 0; i < 20000; ++i)
    absl::StrAppend(&text, "  <t a=\"", i, "\" b=\"", i * 7, "\"/>\n");
  text += "</r>\n";
  ExpectTheSame(text, 65536);
  ExpectTheSame(text, 1000);
  for (const size_t size : {65000u, 65530u, 65536u, 70000u, 200000u}) {
    ExpectTheSame(absl::StrCat("<r><t a=\"", std::string(size, 'v'), "\"/><t b=\"1\"/></r>"),
                  65536);
    ExpectTheSame(absl::StrCat("<r>", std::string(size, ' '), "<t b=\"1\"/></r>"), 65536);
  }
}

TEST(XmlRecords, LinesCountEitherWay) {
  for (const bool quick : {false, true}) {
    EXPECT_EQ(Read("<r>\n<t/>\n\n<t\na=\"1\"/>\n<fail/>\n</r>", quick, 100).status.message(),
              "in: line 6: asked to");
    EXPECT_EQ(Read("<r>\n<t/>\n<t/>\n<s>\n</r>", quick, 100).status.message(),
              "in: line 5: no XML: mismatched tag");
  }
}

}  // namespace
}  // namespace cbt
