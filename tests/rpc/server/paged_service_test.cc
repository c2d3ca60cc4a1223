// Single pages of our own server: where one ends and the next begins, and what ends no page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "cbt/units.h"
#include "list_snapshot_deltas.pb.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace paged_service_test {

using grpc::StatusCode;
using reference::Ranges;
using Request = csi::v1::ListSnapshotDeltasRequest;
using Response = csi::v1::ListSnapshotDeltasResponse;

class Paged {
 public:
  explicit Paged(FunctionProvider::Function function, rpc::StreamOptions stream = {})
      : provider_(std::move(function)) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir_ / "s");
    options.service.apis = {rpc::Api::kPaged};
    options.service.stream = stream;
    auto server = rpc::Server::Start(provider_, options);
    EXPECT_OK(server);
    server_ = *std::move(server);
    channel_ = Connect(server_->address());
  }

  struct Answer {
    grpc::Status status;
    bool came = false;
    Response page;
  };
  Answer Ask(const std::string& request) const {
    RawCall call(channel_, "/csi.v1.Controller/ListSnapshotDeltas", request,
                 std::chrono::seconds(60));
    Answer answer;
    if (const auto bytes = call.Read()) {
      answer.came = true;
      EXPECT_TRUE(answer.page.ParseFromString(*bytes));
    }
    answer.status = call.Finish();
    return answer;
  }
  Answer Ask(const Request& request) const { return Ask(request.SerializeAsString()); }

  const FunctionProvider& provider() const { return provider_; }
  std::string address() const { return server_->address(); }
  size_t open() const { return server_->open_streams(); }

 private:
  const TempDir dir_;
  FunctionProvider provider_;
  std::unique_ptr<rpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

Request ForTarget() {
  Request request;
  request.set_to_snapshot_id("s");
  return request;
}

Ranges BlocksOf(const Response& page) {
  Ranges blocks;
  for (const auto& block : page.changed_blocks()) {
    blocks.emplace_back(block.offset(), block.block_size_bytes());
  }
  return blocks;
}

// Extents finer than the granularity to which the cursor rounds offsets down.
absl::StatusOr<MetadataSource> Fine(const FunctionProvider::Call&) {
  return Extents(std::make_unique<ScriptedCursor>(
      1000, 1000, std::make_shared<CursorTrace>(),
      [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
        EXPECT_EQ(position, 0u);
        for (const uint64_t offset : {uint64_t{0}, uint64_t{20}, uint64_t{40}, uint64_t{60}}) {
          batch.push_back({offset, 10});
        }
        return 1000;
      }));
}

TEST(PagedService, PagesOfACursorThatRoundsDownRepeatNothingAndLoseNothing) {
  const Paged server(Fine);
  for (const int most : {1, 2, 3, 4, 5}) {
    Request request = ForTarget();
    request.set_max_entries(most);
    Ranges all;
    int pages = 0;
    do {
      const Paged::Answer answer = server.Ask(request);
      ASSERT_OK(answer.status);
      EXPECT_EQ(answer.page.volume_size_bytes(), 1000u);
      EXPECT_LE(answer.page.changed_blocks_size(), most);
      EXPECT_GT(answer.page.changed_blocks_size(), 0);
      for (const auto& block : BlocksOf(answer.page)) all.push_back(block);
      request.set_starting_token(answer.page.next_token());
      ASSERT_LE(++pages, 4);
    } while (!request.starting_token().empty());
    EXPECT_EQ(all, (Ranges{{0, 10}, {20, 10}, {40, 10}, {60, 10}})) << most;
    EXPECT_EQ(pages, (4 + most - 1) / most);
  }
}

// A page of the tuples before the failure would look complete.
TEST(PagedService, ACursorThatFailsGivesNoPartOfAPage) {
  const Paged server([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          if (position > 0) return absl::UnavailableError("the array is busy");
          batch.push_back({0, 10});
          return 500;
        }));
  });
  const Paged::Answer answer = server.Ask(ForTarget());
  EXPECT_FALSE(answer.came);
  EXPECT_EQ(answer.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(answer.status.error_message(), "the array is busy");
}

// A client may retry after this error, but not after a provider's bug.
TEST(PagedService, MemoryThatRunsOutIsNoMistakeOfTheProvider) {
  const Paged server([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    throw std::bad_alloc();
  });
  EXPECT_EQ(server.Ask(ForTarget()).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST(PagedService, BytesThatAreNoRequestAreInvalidAndNobodyIsAsked) {
  const Paged server(Fine);
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), std::string("\x12\x7f", 2), std::string("\x12\x01\xff")}) {
    const Paged::Answer answer = server.Ask(bytes);
    EXPECT_FALSE(answer.came);
    EXPECT_EQ(answer.status.error_code(), StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(server.provider().calls, 0);
}

// proto3 omits empty strings; a stack that writes them must mean the same.
TEST(PagedService, ABaseThatIsThereAndEmptyIsNone) {
  const Paged server([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver(call.base.has_value() ? Ranges{} : Ranges{{0, 10}}, 1000));
  });
  const Paged::Answer answer = server.Ask(std::string("\x0a\x00\x12\x01s", 5));
  EXPECT_OK(answer.status);
  EXPECT_EQ(BlocksOf(answer.page), (Ranges{{0, 10}}));
}

TEST(PagedService, APageTakesAPlaceAmongTheStreamsAndGivesItBack) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  rpc::StreamOptions stream;
  stream.max_streams = 1;
  const Paged server(
      [released](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        released.wait();
        return Extents(CursorOver({{0, 10}}, 1000));
      },
      stream);
  auto first = std::async(std::launch::async, [&server] { return server.Ask(ForTarget()); });
  EXPECT_TRUE(Eventually([&server] { return server.provider().calls == 1; }));
  const Paged::Answer second = server.Ask(ForTarget());
  EXPECT_FALSE(second.came);
  EXPECT_EQ(second.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  release.set_value();
  EXPECT_OK(first.get().status);
  EXPECT_TRUE(Eventually([&server] { return server.Ask(ForTarget()).status.ok(); }));
}

// A page longer than the transport's window, of which the client reads nothing.
TEST(PagedService, E13APageThatNobodyTakesIsGivenUp) {
  Paged paged(
      [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
        if (call.target != "s") return Extents(CursorOver({{0, 1}}, 10));
        return Extents(AlternatingCursor(kGiB, 512));
      },
      {.max_streams = 1, .stall_timeout = std::chrono::milliseconds(200)});
  RawCall stalled(Connect(paged.address()), "/csi.v1.Controller/ListSnapshotDeltas",
                  ForTarget().SerializeAsString());
  ASSERT_TRUE(Eventually([&] { return paged.open() == 1; }));
  Request small;
  small.set_to_snapshot_id("small");
  EXPECT_EQ(paged.Ask(small).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  // Its slot is released.
  EXPECT_TRUE(Eventually([&] { return paged.open() == 0; }));
  EXPECT_TRUE(Eventually([&] { return paged.Ask(small).status.ok(); }));
  // A client learns how the call ended after the data already sent.
  while (stalled.Read().has_value()) continue;
  EXPECT_EQ(stalled.Finish().error_code(), StatusCode::CANCELLED);
}

// A provider that takes longer than a call may last.
TEST(PagedService, APageThatTakesTooLongIsEnded) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  Paged paged(
      [released](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        released.wait();
        return Extents(CursorOver({{0, 1}}, 10));
      },
      {.total_time = std::chrono::milliseconds(200)});
  EXPECT_EQ(paged.Ask(ForTarget()).status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  release.set_value();
  EXPECT_TRUE(Eventually([&] { return paged.open() == 0; }));
}

}  // namespace paged_service_test
}  // namespace cbt::test
