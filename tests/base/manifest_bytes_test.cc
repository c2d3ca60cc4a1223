#include "base/manifest_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status.h"

namespace cbt {
namespace manifest_bytes_test {

constexpr ManifestKind kKind = {{'c', 'b', 't', 't', 'e', 's', 't', '\n'}, 3, 1, "test"};

std::vector<uint8_t> Example() {
  ManifestWriter writer(kKind);
  writer.Number(uint32_t{7});
  writer.Text("name");
  writer.File({.number = 8, .checksum = 9});
  return std::move(writer).Finish();
}

TEST(ManifestBytesTest, ReadsWhatWasWritten) {
  const std::vector<uint8_t> bytes = Example();
  ASSERT_OK_AND_ASSIGN(ManifestReader reader, ManifestReader::Open(bytes, kKind, "m"));
  EXPECT_EQ(reader.Number<uint32_t>(), 7u);
  EXPECT_EQ(reader.Text(), "name");
  EXPECT_FALSE(reader.ended());
  EXPECT_EQ(reader.File(), (ManifestFile{.number = 8, .checksum = 9}));
  EXPECT_TRUE(reader.ended());
}

TEST(ManifestBytesTest, PastItsEndNumbersAreZeroAndTheReaderIsUnsound) {
  const std::vector<uint8_t> bytes = Example();
  ASSERT_OK_AND_ASSIGN(ManifestReader reader, ManifestReader::Open(bytes, kKind, "m"));
  while (reader.sound()) reader.Number<uint8_t>();
  EXPECT_EQ(reader.Number<uint8_t>(), 0);
  EXPECT_EQ(reader.Number<uint64_t>(), 0u);
  EXPECT_EQ(reader.Text(), "");
  EXPECT_FALSE(reader.ended());
}

TEST(ManifestBytesTest, ATextThatEndsPastTheEndIsNone) {
  ManifestWriter writer(kKind);
  writer.Number(uint16_t{3});
  writer.Number(uint16_t{0x6161});
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  ASSERT_OK_AND_ASSIGN(ManifestReader reader, ManifestReader::Open(bytes, kKind, "m"));
  EXPECT_EQ(reader.Text(), "");
  EXPECT_FALSE(reader.sound());
}

TEST(ManifestBytesTest, EveryByteCounts) {
  const std::vector<uint8_t> bytes = Example();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> damaged = bytes;
    damaged[i] ^= 1;
    EXPECT_FALSE(ManifestReader::Open(damaged, kKind, "m").ok()) << i;
    EXPECT_FALSE(ManifestReader::Open(std::span(bytes).first(i), kKind, "m").ok()) << i;
  }
}

}  // namespace manifest_bytes_test
}  // namespace cbt
