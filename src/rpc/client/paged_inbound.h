// The pages of ListSnapshotDeltas as a stream.
#ifndef CBT_RPC_CLIENT_PAGED_INBOUND_H_
#define CBT_RPC_CLIENT_PAGED_INBOUND_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "rpc/client/inbound_stream.h"

namespace cbt::rpc {

// One page.
struct SnapshotDeltaPage {
  uint64_t capacity = 0;  // bytes
  std::string next_token = {};
  TupleList tuples = {};
};

// Decodes a response of ListSnapshotDeltas from anybody.
// Errors: INVALID_ARGUMENT with the byte position for bytes that are no such message, and for
//         values past 2^63 - 1.
absl::Status DecodePage(std::span<const uint8_t> bytes, SnapshotDeltaPage& page);

// Pages in a row that bring nothing new and name a next one: so many are believed to come to
// something. One in each 5 GiB of a volume of 64 TiB is far below it.
inline constexpr size_t kMaxIdlePages = 20'000;

// The contract has no starting offset: a stream that begins further on passes over the pages before
// it. A page without blocks is not the end while it names a next one; who names next ones for ever
// has no end, and that is DATA_LOSS, as is a page that tells no capacity, or another than those
// before; ABORTED is one that is read from other data than those before. So a volume without a
// single byte can't be listed in pages.
class PagedInbound final : public InboundStream {
 public:
  PagedInbound(std::shared_ptr<grpc::Channel> channel, const MethodContract& method,
               const MetadataRequest& request, Deadline deadline, std::stop_token stop,
               StallLimit stall);

  absl::StatusOr<bool> Next(MetadataMessage& message) override;
  std::optional<std::string_view> Initial(std::string_view key) const override;
  std::optional<std::string_view> Trailing(std::string_view) const override { return std::nullopt; }

 private:
  absl::Status FetchPage();

  const std::shared_ptr<grpc::Channel> channel_;
  const MethodContract& method_;
  MetadataRequest request_;
  const uint64_t starting_offset_;
  const Deadline deadline_;
  const std::stop_token stop_;
  const StallLimit stall_;  // of each page
  SnapshotDeltaPage page_;
  std::optional<uint64_t> capacity_;  // that pages tell
  std::string version_;               // of the data that pages are read from, if they say
  uint64_t furthest_ = 0;             // end of a block
  size_t idle_pages_ = 0;             // in a row that had none that ends further on
  bool first_ = true;
  bool ended_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_PAGED_INBOUND_H_
