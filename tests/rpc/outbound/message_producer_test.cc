// The messages of a stream, made one by one.
#include "rpc/outbound/message_producer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "rpc/support/providers.h"
#include "rpc/transport/slice_pool.h"
#include "support/status.h"

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
      producer.Rest();
      producer.Rest();
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

}  // namespace message_producer_test
}  // namespace cbt::rpc
