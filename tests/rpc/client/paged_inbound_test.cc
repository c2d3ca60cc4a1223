// Pages of a foreign server as a stream: what is not the end, and what is a lie.
#include "rpc/client/paged_inbound.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "list_snapshot_deltas.pb.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/rpc/support/raw_service.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace paged_inbound_test {

using absl::StatusCode;
using reference::Ranges;
using testing::HasSubstr;

constexpr uint64_t kTooMuch = uint64_t{1} << 63;

std::string Page(uint64_t capacity, const Ranges& blocks, const std::string& next = "") {
  csi::v1::ListSnapshotDeltasResponse page;
  page.set_volume_size_bytes(capacity);
  page.set_next_token(next);
  for (const auto& [offset, length] : blocks) {
    auto* block = page.add_changed_blocks();
    block->set_offset(offset);
    block->set_block_size_bytes(length);
  }
  return page.SerializeAsString();
}

// Returns the page that belongs to a token.
class PageServer {
 public:
  explicit PageServer(std::map<std::string, std::string> pages) : service_(std::move(pages)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir_ / "s"), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~PageServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  rpc::ListRequest Request(uint64_t starting_offset = 0) const {
    rpc::ListRequest request;
    request.address = "unix://" + (dir_ / "s");
    request.api = rpc::Api::kPaged;
    request.snapshot_id = std::string("s");
    request.starting_offset = starting_offset;
    request.timeout = std::chrono::seconds(60);
    return request;
  }
  int calls() const { return service_.calls; }

 private:
  class Service final : public RawService {
   public:
    explicit Service(std::map<std::string, std::string> pages) : pages_(std::move(pages)) {
      AddUnary("/csi.v1.Controller/ListSnapshotDeltas",
               [this](const std::string& bytes, std::string& response) -> grpc::Status {
                 ++calls;
                 csi::v1::ListSnapshotDeltasRequest request;
                 request.ParseFromString(bytes);
                 const auto page = pages_.find(request.starting_token());
                 if (page == pages_.end()) return {grpc::StatusCode::ABORTED, "unknown token"};
                 response = page->second;
                 return grpc::Status::OK;
               });
    }
    std::atomic<int> calls = 0;

   private:
    const std::map<std::string, std::string> pages_;
  };

  const TempDir dir_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(PageStream, PagesWithoutBlocksAreNotTheEnd) {
  const PageServer server({{"", Page(1000, {}, "1")},
                           {"1", Page(1000, {}, "2")},
                           {"2", Page(1000, {{0, 10}, {20, 10}}, "3")},
                           {"3", Page(1000, {}, "4")},
                           {"4", Page(1000, {{30, 10}}, "5")},
                           {"5", Page(1000, {})}});
  EXPECT_EQ(ValueOf(ListAll(server.Request())), (Ranges{{0, 10}, {20, 10}, {30, 10}}));
  EXPECT_EQ(server.calls(), 6);
  // From a later offset, earlier pages are skipped and nothing after it is lost.
  EXPECT_EQ(ValueOf(ListAll(server.Request(10))), (Ranges{{20, 10}, {30, 10}}));
  EXPECT_EQ(ValueOf(ListAll(server.Request(29))), (Ranges{{20, 10}, {30, 10}}));
  EXPECT_EQ(ValueOf(ListAll(server.Request(30))), (Ranges{{30, 10}}));
  EXPECT_EQ(ValueOf(ListAll(server.Request(40))), Ranges());
  EXPECT_EQ(ValueOf(ListAll(server.Request(1000))), Ranges());
}

TEST(PageStream, AStartPastTheVolumeIsOutOfRange) {
  const PageServer server({{"", Page(1000, {{0, 10}})}});
  const absl::Status status = ListAll(server.Request(1001)).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(status.ToString(), HasSubstr("starting_offset 1001"));
  EXPECT_THAT(status.ToString(), HasSubstr("capacity 1000"));
}

TEST(PageStream, AnAnswerThatFailsInTheMiddleIsNoEnd) {
  const PageServer server({{"", Page(1000, {{0, 10}}, "gone")}});
  auto cursor = rpc::RemoteCursor::Open(server.Request());
  ASSERT_OK(cursor);
  EXPECT_EQ(Drain(**cursor).status().code(), StatusCode::kAborted);
  EXPECT_LT((*cursor)->covered(), 1000u);
  EXPECT_EQ((*cursor)->completeness(), rpc::Completeness::kUnderWay);
}

TEST(PageStream, LiesAreDataLoss) {
  const std::string good = Page(1000, {{0, 10}}, "1");
  const std::pair<const char*, std::map<std::string, std::string>> lies[] = {
      {"no message at all", {{"", "\x0a\x7f"}}},
      {"a cut page", {{"", good}, {"1", good.substr(0, good.size() - 1)}}},
      {"an invalid block", {{"", std::string("\x08\x64\x1a\x02\x08\x80", 6)}}},
      {"a volume past 2^63 - 1", {{"", Page(kTooMuch, {})}}},
      {"an offset past 2^63 - 1", {{"", Page(1000, {{kTooMuch, 1}})}}},
      {"a length past 2^63 - 1", {{"", Page(1000, {{1, kTooMuch}})}}},
      {"a block without length", {{"", Page(1000, {{0, 0}})}}},
      {"a block past the volume", {{"", Page(1000, {{1000, 10}})}}},
      {"disorder", {{"", Page(1000, {{50, 10}, {20, 10}})}}},
      {"disorder across pages", {{"", Page(1000, {{50, 10}}, "1")}, {"1", Page(1000, {{20, 10}})}}},
      {"overlap across pages", {{"", good}, {"1", Page(1000, {{9, 10}})}}},
      {"another size", {{"", good}, {"1", Page(1001, {{20, 10}})}}},
      {"another size, and no blocks", {{"", good}, {"1", Page(999, {})}}},
      {"an empty answer", {{"", ""}}},
      {"an empty answer after a good one", {{"", good}, {"1", ""}}},
      {"another size between", {{"", good}, {"1", Page(2000, {}, "2")}, {"2", Page(1000, {})}}},
      {"a block past the end that is not the last",
       {{"", Page(1000, {{990, 20}}, "1")}, {"1", Page(1000, {{995, 5}})}}},
      {"a page that names itself", {{"", good}, {"1", Page(1000, {{20, 10}}, "1")}}},
      {"an empty page that names itself", {{"", good}, {"1", Page(1000, {}, "1")}}},
  };
  for (const auto& [what, pages] : lies) {
    const PageServer server(pages);
    const absl::Status status = ListAll(server.Request()).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << what << ": " << status;
    EXPECT_THAT(status.ToString(), HasSubstr("metadata stream")) << what;
  }
}

// Without blocks, and with blocks before the starting offset or repeated ones.
TEST(PageStream, PagesThatGoOnForEverAreNoStream) {
  const PageServer server({{"", Page(1000, {{0, 10}}, "a")},
                           {"a", Page(1000, {{20, 10}}, "b")},
                           {"b", Page(1000, {}, "c")},
                           {"c", Page(1000, {{0, 10}}, "b")}});
  rpc::ListRequest request = server.Request(500);
  request.timeout = std::chrono::minutes(5);
  const absl::Status status = ListAll(request).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("pages in a row brought nothing new"));
  EXPECT_EQ(server.calls(), static_cast<int>(rpc::kMaxIdlePages) + 3);
}

TEST(PageStream, ManyPagesWithoutBlocksAreStillNotTheEnd) {
  std::map<std::string, std::string> pages;
  for (size_t i = 0; i < 3000; ++i) {
    pages[i == 0 ? "" : std::to_string(i)] = Page(1000, {}, std::to_string(i + 1));
  }
  pages["3000"] = Page(1000, {{30, 10}});
  const PageServer server(pages);
  EXPECT_EQ(ValueOf(ListAll(server.Request())), (Ranges{{30, 10}}));
}

// Blocks that end before the start are skipped, but still checked.
TEST(PageStream, AStartBehindALieDoesNotHideIt) {
  const PageServer empty({{"", Page(1000, {{0, 0}, {500, 10}})}});
  EXPECT_EQ(ListAll(empty.Request(100)).status().code(), StatusCode::kDataLoss);
  const PageServer disordered({{"", Page(1000, {{500, 10}, {0, 10}})}});
  EXPECT_EQ(ListAll(disordered.Request(100)).status().code(), StatusCode::kDataLoss);
}

TEST(PageStream, TheLastBlockIsCutAtTheEndOfTheVolume) {
  const PageServer server({{"", Page(1000, {{0, 300}, {900, 300}})}});
  EXPECT_EQ(ValueOf(ListAll(server.Request())), (Ranges{{0, 300}, {900, 100}}));
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(PageStream, FieldsOfLaterVersionsArePassedOver) {
  std::string bytes = Page(1000, {{20, 10}}, "next");
  // Field 9 as a varint and as text, and field 3 with a wrong type.
  bytes += std::string("\x48\x07\x4a\x01x\x18\x05", 7);
  // A block with an unknown field 9.
  bytes += std::string("\x1a\x06\x08\x32\x48\x07\x10\x05", 8);
  rpc::SnapshotDeltaPage page;
  const absl::Status status = rpc::DecodePage(AsBytes(bytes), page);
  ASSERT_OK(status);
  EXPECT_EQ(page.capacity, 1000u);
  EXPECT_EQ(page.next_token, "next");
  ASSERT_EQ(page.tuples.size(), 2u);
  EXPECT_EQ(page.tuples[0], (Extent{20, 10}));
  EXPECT_EQ(page.tuples[1], (Extent{50, 5}));
}

TEST(PageStream, ErrorsNameTheByte) {
  rpc::SnapshotDeltaPage page;
  const auto text = [&page](const std::string& bytes) {
    const absl::Status status = rpc::DecodePage(AsBytes(bytes), page);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.ToString();
  };
  EXPECT_THAT(text(Page(kTooMuch, {})), HasSubstr("volume_size_bytes at byte 11 is past 2^63 - 1"));
  EXPECT_THAT(text(Page(1000, {{1, 1}, {2, kTooMuch}})),
              HasSubstr("a block at byte 11 is past 2^63 - 1"));
  EXPECT_THAT(text(std::string("\x1a\x02\x08\x80", 4)), HasSubstr("byte 2"));
  // Nothing of the previous page is left after one that could not be decoded.
  ASSERT_OK(rpc::DecodePage(AsBytes(Page(1000, {{1, 1}}, "next")), page));
  text(std::string("\x0a", 1));
  EXPECT_EQ(page.capacity, 0u);
  EXPECT_TRUE(page.next_token.empty());
  EXPECT_TRUE(page.tuples.empty());
}

}  // namespace paged_inbound_test
}  // namespace cbt::test
