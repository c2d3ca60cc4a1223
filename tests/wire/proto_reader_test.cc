#include "wire/proto_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "cbt/wire/message.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "wire/proto_writer.h"

namespace cbt::wire {
namespace proto_reader_test {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(ProtoReaderTest, ReadsBackWhatTheWriterWrote) {
  std::string message;
  AppendVarintField(message, 1, 300);
  AppendVarintField(message, 2, 0);  // left out
  AppendBytesField(message, 3, "text");
  AppendBytesField(message, 4, "");  // left out
  AppendBytesFieldAlways(message, 5, "");
  AppendVarintField(message, 536870911, UINT64_MAX);
  ProtoReader reader(Bytes(message), 1000);
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.Is(1, WireType::kVarint));
  EXPECT_EQ(reader.varint(), 300u);
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.Is(3, WireType::kBytes));
  EXPECT_EQ(std::string(reader.bytes().begin(), reader.bytes().end()), "text");
  EXPECT_EQ(reader.content_position(), 1005u);
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.Is(5, WireType::kBytes));
  EXPECT_TRUE(reader.bytes().empty());
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.Is(536870911, WireType::kVarint));
  EXPECT_EQ(reader.varint(), UINT64_MAX);
  EXPECT_FALSE(reader.Next());
  EXPECT_OK(reader.status());
}

TEST(ProtoReaderTest, SkipsGroupsAndReadsFixedFields) {
  // group 7 { fixed32 1; group 2 {} }, then fixed64 field 3.
  const std::string message(
      "\x3b\x0d\x01\x02\x03\x04\x13\x14\x3c\x19\x08\x07\x06\x05\x04\x03\x02\x01", 18);
  ProtoReader reader(Bytes(message));
  ASSERT_TRUE(reader.Next());
  EXPECT_TRUE(reader.Is(3, WireType::kFixed64));
  EXPECT_EQ(reader.varint(), 0x0102030405060708u);
  EXPECT_FALSE(reader.Next());
  EXPECT_OK(reader.status());
}

TEST(ProtoReaderTest, TakesTagsOfFiveBytes) {
  const std::string bytes("\x88\x80\x80\x80\x00\x07", 6);
  ProtoReader reader(Bytes(bytes));
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.field(), 1u);
  EXPECT_EQ(reader.varint(), 7u);
  EXPECT_FALSE(reader.Next());
  EXPECT_OK(reader.status());
}

TEST(ProtoReaderTest, TakesLengthsOfFiveBytes) {
  const std::string bytes("\x0a\x81\x80\x80\x80\x00x", 7);
  ProtoReader reader(Bytes(bytes));
  ASSERT_TRUE(reader.Next());
  ASSERT_EQ(reader.bytes().size(), 1u);
  EXPECT_EQ(reader.bytes()[0], 'x');
  EXPECT_FALSE(reader.Next());
  EXPECT_OK(reader.status());
}

TEST(ProtoReaderTest, RefusesMalformedBytesWithTheirPosition) {
  const struct {
    std::string bytes;
    const char* text;
  } cases[] = {
      {std::string("\x08"), "inside a varint"},
      {std::string("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), "more than ten bytes"},
      {std::string("\x08\x01\x12\x05"
                   "abc"),
       "byte 2: a field is longer"},
      {std::string("\x0d\x01\x02"), "inside a fixed field"},
      {std::string("\x00\x01", 2), "invalid field number"},
      {std::string("\x0e\x01"), "unknown wire type"},
      {std::string("\x0c"), "was not started"},
      {std::string("\x0b\x14"), "was not started"},
      {std::string("\x0b\x08\x01"), "inside a group"},
      {std::string(200, '\x0b'), "nested too deeply"},
      {std::string("\xff\xff\xff\xff\xff\x0f"), "invalid field number"},
      // Field 1, in a tag that libprotobuf considers too long.
      {std::string("\x88\x80\x80\x80\x80\x00\x01", 7), "invalid field number"},
      // A length of zero, likewise; found by a fuzzer.
      {std::string("\x0a\x80\x80\x80\x80\x80\x00", 7), "a length of more than five bytes"},
  };
  for (const auto& c : cases) {
    ProtoReader reader(Bytes(c.bytes));
    while (reader.Next()) {
    }
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(reader.status().message()).find(c.text), std::string::npos)
        << reader.status();
    EXPECT_FALSE(reader.Next());
  }
}

TEST(ProtoReaderTest, NoFieldComesOfATagThatCannotBeRead) {
  for (const std::string& bytes :
       {std::string(10, '\xff') + "\x01", std::string(11, '\xff') + "\x01", std::string("\x80")}) {
    ProtoReader reader(Bytes(bytes));
    EXPECT_FALSE(reader.Next());
    EXPECT_FALSE(reader.status().ok());
  }
}

TEST(ProtoReaderTest, SurvivesRandomBytes) {
  test::SeededRandom random(1);
  for (int round = 0; round < 200'000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 4 == 0 ? random() % 256 : random() % 32);
    // At most one field per two bytes.
    ProtoReader reader(Bytes(bytes));
    size_t fields = 0;
    while (reader.Next()) ++fields;
    ASSERT_LE(fields, bytes.size() / 2)
        << "round " << round << ": " << absl::BytesToHexString(bytes);
    // The decoder of whole messages, too.
    const auto message = DecodeMetadataMessage(Bytes(bytes));
    if (!reader.status().ok()) {
      ASSERT_FALSE(message.ok()) << "round " << round << ": " << absl::BytesToHexString(bytes);
    }
  }
}

}  // namespace proto_reader_test
}  // namespace cbt::wire
