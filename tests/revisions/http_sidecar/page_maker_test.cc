#include "programs/revisions/http_sidecar/page_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cbt/rpc/server.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/http_sidecar/page_tokens.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test::page_maker_test {

using kube::aggregated::DataToken;
using kube::aggregated::DeltaPageRequest;
using kube::aggregated::PageBlock;
using kube::aggregated::PageEnd;
using kube::aggregated::PageReader;
using kube::http_sidecar::ChangedBlocks;
using kube::http_sidecar::ChangedExtent;
using kube::http_sidecar::PageMaker;
using kube::http_sidecar::PageTokens;
using kube::http_sidecar::WritePage;
using testing::HasSubstr;
using testing::Not;

// The extents from some place on, as a plugin has them.
class Listed final : public ChangedBlocks {
 public:
  Listed(std::optional<uint64_t> capacity, std::vector<ChangedExtent> extents, uint64_t from = 0)
      : extents_(std::move(extents)) {
    capacity_ = capacity;
    std::erase_if(extents_, [&](const ChangedExtent& one) { return one.extent.end() <= from; });
  }
  absl::StatusOr<bool> Next(ChangedExtent& extent) override {
    if (at_ == extents_.size()) {
      if (!end_.ok()) return end_;
      return false;
    }
    extent = extents_[at_++];
    return true;
  }
  absl::StatusOr<bool> MayHaveMore() override {
    if (at_ == extents_.size() && !end_.ok()) return end_;
    return at_ < extents_.size();
  }
  void FailAtTheEnd(absl::Status status) { end_ = std::move(status); }

 private:
  std::vector<ChangedExtent> extents_;
  size_t at_ = 0;
  absl::Status end_;
};

struct Page {
  std::vector<PageBlock> blocks;
  PageEnd end;
};

// As the aggregated API server reads it.
Page ReadBack(const DeltaPageRequest& request, const std::string& text) {
  PageReader reader(request);
  Page page;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const PageBlock* const block = ValueOf(reader.Take(line));
    if (block != nullptr) page.blocks.push_back(*block);
  }
  RequireOk(reader.Finish());
  page.end = reader.end();
  return page;
}

TEST(PageMaker, A14BlocksAreRoundedOutward) {
  const DeltaPageRequest request = {.block_size = 4096, .max_blocks = 10};
  Listed extents(20'000, {{.extent = {1, 1}}, {.extent = {4000, 200}}, {.extent = {19'999, 1}}});
  const Page page = ReadBack(request, ValueOf(WritePage(request, extents)));
  std::vector<uint64_t> indexes;
  for (const PageBlock& block : page.blocks) indexes.push_back(block.index);
  EXPECT_EQ(indexes, (std::vector<uint64_t>{0, 1, 4}));
  EXPECT_FALSE(page.end.more);
  EXPECT_EQ(page.end.next_block, 5U);
}

TEST(PageMaker, A14ATokenIsThatOfExactlyOneBlock) {
  const DeltaPageRequest request = {.block_size = 4096, .max_blocks = 10};
  const DataToken token = {.token = "t"};
  Listed extents(10'000, {{.extent = {0, 4096}, .token = token},
                          {.extent = {4096, 100}, .token = token},
                          {.extent = {8192, 4096}, .token = token}});
  const Page page = ReadBack(request, ValueOf(WritePage(request, extents)));
  ASSERT_EQ(page.blocks.size(), 3U);
  EXPECT_EQ(page.blocks[0].token, token);
  EXPECT_FALSE(page.blocks[1].token.has_value());
  EXPECT_EQ(page.blocks[2].token, token);
}

TEST(PageMaker, APluginThatFailsMakesNoPage) {
  for (const uint64_t most : {uint64_t{1}, uint64_t{5}}) {
    const DeltaPageRequest request = {.block_size = 4096, .max_blocks = most};
    Listed extents(1 << 20, {{.extent = {0, 4096}}});
    extents.FailAtTheEnd(absl::DataLossError("x"));
    EXPECT_EQ(WritePage(request, extents).status().code(), absl::StatusCode::kDataLoss);
  }
}

// A plugin whose stream has no message.
TEST(PageMaker, FAAnEmptyAnswerOfUnknownCapacityIsAnEmptyPage) {
  for (const uint64_t start : {uint64_t{0}, uint64_t{7}}) {
    const DeltaPageRequest request = {.block_size = 4096, .starting_block = start, .max_blocks = 1};
    Listed extents(std::nullopt, {});
    const std::string text = ValueOf(WritePage(request, extents));
    EXPECT_EQ(text.find("volume_size"), std::string::npos);
    const Page page = ReadBack(request, text);
    EXPECT_TRUE(page.blocks.empty());
    EXPECT_FALSE(page.end.more);
    EXPECT_EQ(page.end.next_block, start);
  }
}

TEST(PageMaker, AStartPastTheEndIsOutOfRange) {
  const auto start = [](uint64_t block) {
    const DeltaPageRequest request = {.block_size = 4096, .starting_block = block, .max_blocks = 1};
    Listed extents(10'000, {});
    return WritePage(request, extents).status();
  };
  // 10,000 bytes are two blocks and a part of one.
  EXPECT_TRUE(start(3).ok());
  EXPECT_EQ(start(4).code(), absl::StatusCode::kOutOfRange);
}

// Whatever the limits and the blocks: all pages together are the stream, in its order.
TEST(PageMaker, A14PagesAreTheStream) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint64_t capacity = 1 + random() % 2'000'000;
    std::vector<ChangedExtent> extents;
    std::set<uint64_t> expected;
    for (uint64_t at = random() % 9000; at < capacity; at += 1 + random() % 30'000) {
      const uint64_t length = std::min(1 + random() % 20'000, capacity - at);
      extents.push_back({.extent = {at, length}});
      for (uint64_t block = at / 4096; block <= (at + length - 1) / 4096; ++block) {
        expected.insert(block);
      }
      at += length;
    }
    std::vector<uint64_t> got;
    DeltaPageRequest request = {.block_size = 4096, .max_blocks = 1 + random() % 50};
    for (bool more = true; more;) {
      Listed listed(capacity, extents, request.starting_block * 4096);
      const Page page = ReadBack(request, ValueOf(WritePage(request, listed)));
      for (const PageBlock& block : page.blocks) got.push_back(block.index);
      request.starting_block = page.end.next_block;
      more = page.end.more;
      ASSERT_LE(got.size(), expected.size());
    }
    ASSERT_EQ(got, std::vector<uint64_t>(expected.begin(), expected.end())) << round;
  }
}

TEST(PageTokens, A14TheLastPlaceAtOrBeforeAnOffset) {
  PageTokens tokens;
  tokens.Keep("a", {.position = 100, .token = "a100"});
  tokens.Keep("a", {.position = 200, .token = "a200"});
  tokens.Keep("b", {.position = 150, .token = "b150"});
  EXPECT_EQ(tokens.Find("a", 99).token, "");
  EXPECT_EQ(tokens.Find("a", 100).token, "a100");
  EXPECT_EQ(tokens.Find("a", 199).token, "a100");
  EXPECT_EQ(tokens.Find("a", 5000).token, "a200");
  EXPECT_EQ(tokens.Find("a", 5000).position, 200U);
  EXPECT_EQ(tokens.Find("b", 100).token, "");
  EXPECT_EQ(tokens.Find("c", 5000).token, "");
  tokens.Forget("a");
  EXPECT_EQ(tokens.Find("a", 5000).token, "");
  EXPECT_EQ(tokens.Find("b", 150).token, "b150");
}

TEST(PageTokens, KeepsTheNewest) {
  PageTokens tokens;
  for (uint64_t i = 0; i < PageTokens::kMaxTokens + 10; ++i) {
    tokens.Keep("a", {.position = i * 10, .token = "t" + std::to_string(i)});
  }
  EXPECT_EQ(tokens.Find("a", 99).token, "");
  EXPECT_EQ(tokens.Find("a", 100).token, "t10");
  tokens.Keep("a", {.position = 1, .token = std::string(PageTokens::kMaxTokenBytes + 1, 'x')});
  EXPECT_EQ(tokens.Find("a", 1).token, "");
}

class Texts final : public rpc::LogSink {
 public:
  bool Wants(rpc::LogLevel) const noexcept override { return true; }
  void Write(rpc::LogLevel, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override {
    const std::lock_guard lock(mutex);
    all += event;
    for (const rpc::LogField& field : fields) all.append(" ").append(field.value);
  }
  std::mutex mutex;
  std::string all;
};

// Neither the aggregated server, which shows it to tenants, nor a log.
TEST(PageMaker, FDAPluginThatQuotesItsSecretTellsNoOne) {
  const DeltaPageRequest request = {
      .target_snapshot_id = "s", .block_size = 4096, .max_blocks = 10};
  for (const rpc::Api api : {rpc::Api::kPaged, rpc::Api::kCsi}) {
    for (const bool late : {false, true}) {
      FunctionProvider provider(
          [late](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
            std::string quoted;
            call.context.secrets.ForEach(
                [&quoted](const std::string&, const std::string& value) { quoted = value; });
            const absl::Status refused =
                absl::InvalidArgumentError("login admin:" + quoted + " refused");
            if (!late) return refused;
            return Extents(std::make_unique<ScriptedCursor>(
                1 << 20, 1, std::make_shared<CursorTrace>(),
                [refused](uint64_t, ExtentBatch&) -> absl::StatusOr<uint64_t> { return refused; }));
          });
      const TempDir dir;
      rpc::ServerOptions options;
      options.listen = "unix://" + (dir / "s");
      options.service.apis = {api};
      const auto server = ValueOf(rpc::Server::Start(provider, options));
      for (const char* const secret : {"hunter2", ""}) {
        Texts log;
        const auto maker = ValueOf(PageMaker::Create(server->address(), &log));
        Secrets secrets;
        if (*secret != '\0') secrets.Set("password", secret);
        const absl::Status status =
            maker
                ->Make(request, secrets,
                       std::chrono::system_clock::now() + std::chrono::seconds(20))
                .status();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()), Not(HasSubstr("login"))) << rpc::ApiName(api);
        EXPECT_THAT(std::string(status.message()), HasSubstr("it rejected the request"));
        // Without a secret in it, the log has the text.
        EXPECT_THAT(log.all, HasSubstr(*secret == '\0' ? "login admin: refused" : "withheld"));
        if (*secret != '\0') {
          EXPECT_THAT(log.all, Not(HasSubstr(secret)));
        }
      }
      server->Shutdown(std::chrono::milliseconds(0));
    }
  }
}

}  // namespace cbt::test::page_maker_test
