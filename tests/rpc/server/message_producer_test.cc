// The messages of a stream, made one by one.
#include "rpc/server/message_producer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/batch.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "rpc/server/packed_extents.h"
#include "rpc/transport/slice_pool.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/status.h"

namespace cbt::rpc {
namespace message_producer_test {

constexpr uint64_t kBlock = 512;

class Sink final : public MessageSink {
 public:
  Want Check() override { return Want::kMore; }
  Want Offer(OutMessage) override { return Want::kMore; }
  void Announce(Metadata) override {}
  void Complete(absl::Status, Metadata, std::optional<OutMessage>) override {}
};

// All messages of a volume in which every second block is allocated. `rest`: the client takes each
// only after a while.
std::vector<std::string> Messages(uint32_t max_results, uint64_t starting_offset, bool rest) {
  test::FunctionProvider provider([](const test::FunctionProvider::Call&) {
    return absl::StatusOr<MetadataSource>(
        MetadataSource{.cursor = test::AlternatingCursor(10'000 * kBlock, kBlock)});
  });
  const StreamOptions options;
  AdmittedRequest request;
  request.target_snapshot_id = "s";
  request.max_results = max_results;
  request.starting_offset = starting_offset;
  MessageProducer producer(kCsiContract, provider, std::move(request), options,
                           SlicePool::Create(options.message_bytes, kMiB), std::nullopt);
  Sink sink;
  std::vector<std::string> messages;
  for (;;) {
    std::optional<OutMessage> message;
    const auto outcome =
        producer.Run({}, MessageProducer::Clock::now() + std::chrono::hours(1), sink, message);
    if (message.has_value()) messages.emplace_back(message->bytes);
    if (test::ValueOf(outcome) == MessageProducer::Outcome::kComplete) return messages;
    if (rest) {
      producer.Compact();
      producer.Compact();
    }
  }
}

// With little, much and nothing of a batch left.
TEST(MessageProducer, ClientsThatWaitGetTheSameMessages) {
  for (const uint32_t max_results : {1u, 3u, 100u, 1000u, 1024u, 1500u, 8192u}) {
    for (const uint64_t offset : {uint64_t{0}, 1234 * kBlock}) {
      const std::vector<std::string> messages = Messages(max_results, offset, false);
      EXPECT_GE(messages.size(), (5'000 - offset / kBlock / 2) / max_results);
      EXPECT_TRUE(Messages(max_results, offset, true) == messages) << max_results << " " << offset;
    }
  }
}

// A cursor of the plugin's own that reads what the provider fetched, also while it is destroyed.
class Borrowing final : public ExtentCursor {
 public:
  explicit Borrowing(const std::vector<Extent>& extents)
      : ExtentCursor({.capacity = kMiB, .granularity = kBlock}), extents_(extents) {}
  ~Borrowing() override { EXPECT_EQ(extents_.size(), 2u); }

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    for (const Extent extent : extents_) batch.push_back(extent);
    return capacity();
  }

  const std::vector<Extent>& extents_;
};

// What is kept is there until the cursor is gone: at the end of a stream, in the middle, and when
// the source is refused. The vector is emptied as it dies, so that a look at it fails without a
// sanitizer too.
TEST(MessageProducer, LAKeepsWhatACursorBorrows) {
  for (const bool refused : {false, true}) {
    for (const bool runs : {true, false}) {
      bool alive = false;
      {
        test::FunctionProvider provider([&](const test::FunctionProvider::Call&) {
          alive = true;
          const std::shared_ptr<std::vector<Extent>> fetched(
              new std::vector<Extent>{{0, kBlock}, {4 * kBlock, kBlock}},
              [&alive](std::vector<Extent>* dying) {
                dying->clear();
                delete dying;
                alive = false;
              });
          MetadataSource source{.keep_alive = fetched,
                                .cursor = std::make_unique<Borrowing>(*fetched)};
          source.summary = [extents = fetched.get()](uint64_t) {
            return StreamSummary{.tuples = extents->size()};
          };
          if (refused) source.type = BlockMetadataType::kUnknown;
          return absl::StatusOr<MetadataSource>(std::move(source));
        });
        const StreamOptions options;
        AdmittedRequest request;
        request.target_snapshot_id = "s";
        request.max_results = 1;
        MessageProducer producer(kCsiContract, provider, std::move(request), options,
                                 SlicePool::Create(options.message_bytes, kMiB), std::nullopt);
        Sink sink;
        std::optional<OutMessage> message;
        const auto run = [&] {
          return producer.Run({}, MessageProducer::Clock::now() + std::chrono::hours(1), sink,
                              message);
        };
        absl::StatusOr<MessageProducer::Outcome> outcome = run();
        EXPECT_EQ(outcome.ok(), !refused) << outcome.status();
        EXPECT_EQ(alive, !refused);
        while (runs && outcome.ok() && *outcome != MessageProducer::Outcome::kComplete) {
          outcome = run();
        }
      }
      EXPECT_FALSE(alive);
    }
  }
}

std::vector<Extent> PackedAndBack(const std::vector<Extent>& extents, size_t from) {
  ExtentBatch batch(std::max<size_t>(extents.size(), 1));
  for (const Extent extent : extents) batch.push_back(extent);
  PackedExtents packed;
  packed.Pack(batch, from);
  EXPECT_EQ(packed.empty(), from == extents.size());
  batch.clear();
  packed.UnpackTo(batch);
  EXPECT_TRUE(packed.empty());
  std::vector<Extent> back;
  for (size_t i = 0; i < batch.size(); ++i) back.push_back(batch[i]);
  return back;
}

TEST(PackedExtents, ComeBackAsTheyWere) {
  constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(PackedAndBack({}, 0), std::vector<Extent>());
  for (const uint64_t a :
       {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, kLast / 2, kLast}) {
    for (const uint64_t b :
         {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, kLast / 2, kLast}) {
      const std::vector<Extent> extents = {{a, b}, {b, a}, {b, 4096}, {a, a}};
      for (size_t from = 0; from <= extents.size(); ++from) {
        EXPECT_EQ(
            PackedAndBack(extents, from),
            std::vector<Extent>(extents.begin() + static_cast<ptrdiff_t>(from), extents.end()));
      }
    }
  }
}

}  // namespace message_producer_test
}  // namespace cbt::rpc
