#include "programs/revisions/aggregated/api/delta_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status.h"

namespace cbt::test::delta_page_test {

using kube::aggregated::DataToken;
using kube::aggregated::DeltaPageRequest;
using kube::aggregated::kMaxPageBlocks;
using kube::aggregated::PageBlock;
using kube::aggregated::PageHead;
using kube::aggregated::PageReader;
using testing::HasSubstr;

DeltaPageRequest Request() {
  return {.target_snapshot_id = "t", .block_size = 4096, .starting_block = 10, .max_blocks = 3};
}

constexpr char kHead[] = R"({"block_size_bytes":4096,"volume_size_bytes":409600})";

// The blocks of a page, or why it is refused.
absl::StatusOr<std::vector<uint64_t>> Read(const std::vector<std::string>& lines) {
  PageReader reader(Request());
  std::vector<uint64_t> blocks;
  for (const std::string& line : lines) {
    const absl::StatusOr<const PageBlock*> block = reader.Take(line);
    if (!block.ok()) return block.status();
    if (*block != nullptr) blocks.push_back((*block)->index);
  }
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return blocks;
}

void ExpectBroken(const std::vector<std::string>& lines, const std::string& why) {
  const absl::Status status = Read(lines).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << why;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST(DeltaPage, A13ARequestIsReadAsItWasWritten) {
  DeltaPageRequest request = {.base_snapshot_id = "b\"\n",
                              .target_snapshot_id = "t",
                              .block_size = 65536,
                              .starting_block = 7,
                              .max_blocks = 256,
                              .secret_namespace = "n",
                              .secret_name = "s"};
  const auto read = DeltaPageRequest::Parse(request.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->base_snapshot_id, request.base_snapshot_id);
  EXPECT_EQ(read->ToJson(), request.ToJson());
}

TEST(DeltaPage, A13RefusesRequestsThatAskForNothing) {
  const std::string rest = R"("block_size_bytes":4096,"max_blocks":1)";
  for (const auto& [json, why] : std::vector<std::pair<std::string, std::string>>{
           {"{" + rest + "}", "target_snapshot_id"},
           {R"({"target_snapshot_id":"",)" + rest + "}", "target_snapshot_id"},
           {R"({"target_snapshot_id":"t","base_snapshot_id":"",)" + rest + "}", "base_snapshot_id"},
           {R"({"target_snapshot_id":"t","bass":"",)" + rest + "}", "unknown field \"bass\""},
           {R"({"target_snapshot_id":"t","starting_block":-1,)" + rest + "}", "starting_block"},
           {R"({"target_snapshot_id":"t","secret":{"name":"s"},)" + rest + "}", "secret"},
           {R"({"target_snapshot_id":"t","secret":{"nam":"s"},)" + rest + "}", "unknown field"},
           {R"({"target_snapshot_id":"t","block_size_bytes":4097,"max_blocks":1})", "block_size"},
           {R"({"target_snapshot_id":"t","block_size_bytes":4096,"max_blocks":0})", "max_blocks"},
           {R"({"target_snapshot_id":"t","block_size_bytes":4096,"max_blocks":16385})",
            "max_blocks"},
           {"[]", "object"}}) {
    const absl::Status status = DeltaPageRequest::Parse(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << json;
  }
}

TEST(DeltaPage, TokensOfDataPass) {
  PageReader reader(Request());
  ASSERT_TRUE(reader.Take(kHead).ok());
  const PageBlock sent = {
      .index = 12,
      .token =
          DataToken{.token = "a\"b", .issuance_time = "2023-11-14T22:13:20Z", .ttl_seconds = 9}};
  const auto block = reader.Take(sent.ToJson());
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ((*block)->token, sent.token);
}

TEST(DeltaPage, A14AWholePageIsTaken) {
  const auto blocks = Read({kHead, R"({"block":10})", R"({"block":12})",
                            R"({"complete":true,"blocks":2,"next_block":13,"more":false})"});
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(*blocks, (std::vector<uint64_t>{10, 12}));
  // Nothing has changed from there on.
  EXPECT_TRUE(Read({kHead, R"({"complete":true,"blocks":0,"next_block":10,"more":false})"}).ok());
}

// First law: whatever is missing or out of place is an error, never a page.
TEST(DeltaPage, A14ABrokenPageIsNoPage) {
  const std::string block = R"({"block":10})";
  ExpectBroken({}, "without its last line");
  ExpectBroken({kHead}, "without its last line");
  ExpectBroken({kHead, block}, "without its last line");
  ExpectBroken({kHead, block, R"({"complete":true,"blocks":2,"next_block":11,"more":false})"},
               "blocks are missing");
  ExpectBroken({kHead, block, R"({"complete":true,"blocks":1,"next_block":12,"more":true})"},
               "starts elsewhere");
  ExpectBroken({kHead, R"({"complete":true,"blocks":0,"next_block":10,"more":true})"}, "empty");
  ExpectBroken({kHead, block, R"({"complete":false,"blocks":1,"next_block":11,"more":false})"},
               "neither a block nor the end");
  ExpectBroken({kHead, block, R"({"complete":true,"blocks":1,"next_block":11})"},
               "neither a block nor the end");
  ExpectBroken({kHead, R"({"block":9})"}, "ascend");
  ExpectBroken({kHead, block, block}, "ascend");
  ExpectBroken({kHead, R"({"block":100})"}, "past the volume's end");
  ExpectBroken({kHead, R"({"block":10})", R"({"block":11})", R"({"block":12})", R"({"block":13})"},
               "more blocks than were asked for");
  ExpectBroken({kHead, R"({"block":"10"})"}, "can't be read");
  ExpectBroken({kHead, "{"}, "not JSON");
  ExpectBroken({block}, "first line");
  ExpectBroken({R"({"block_size_bytes":8192,"volume_size_bytes":409600})"}, "another size");
  ExpectBroken({R"({"block_size_bytes":4096,"volume_size_bytes":4096})"}, "past the volume's end");
  ExpectBroken({kHead, R"({"complete":true,"blocks":0,"next_block":10,"more":false})", block},
               "after its last line");
}

// A driver that has nothing to report may not say how large the volume is.
TEST(DeltaPage, FAWithoutAVolumeSizeThereAreNoBlocks) {
  const std::string head = PageHead{.block_size = 4096}.ToJson();
  EXPECT_EQ(head, R"({"block_size_bytes":4096})");
  const std::string end = R"({"complete":true,"blocks":0,"next_block":10,"more":false})";
  PageReader reader(Request());
  EXPECT_OK(reader.Take(head));
  EXPECT_OK(reader.Take(end));
  EXPECT_OK(reader.Finish());
  EXPECT_FALSE(reader.head().volume_size.has_value());
  ExpectBroken({head, R"({"block":10})"}, "without a size");
  ExpectBroken({head}, "without its last line");
  ExpectBroken({"{}", end}, "lacks the sizes");
}

TEST(DeltaPage, AnErrorStays) {
  PageReader reader(Request());
  EXPECT_FALSE(reader.Take("{").ok());
  EXPECT_FALSE(reader.Take(kHead).ok());
  EXPECT_FALSE(reader.Finish().ok());
}

}  // namespace cbt::test::delta_page_test
