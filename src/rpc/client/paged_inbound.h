// The pages of ListSnapshotDeltas as a stream.
#ifndef CBT_RPC_CLIENT_PAGED_INBOUND_H_
#define CBT_RPC_CLIENT_PAGED_INBOUND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "rpc/client/inbound_stream.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// One page.
struct SnapshotDeltaPage {
  uint64_t capacity = 0;  // bytes
  std::string next_token = {};
  TupleList tuples = {};
};

// Decodes an untrusted response of ListSnapshotDeltas.
// Errors: INVALID_ARGUMENT with the byte position for a malformed message, and for values past 2^63
//         - 1.
absl::Status DecodePage(std::span<const uint8_t> bytes, SnapshotDeltaPage& page);

// Give up after this many pages in a row without progress. One page for each 5 GiB of a 64 TiB
// volume is far fewer.
inline constexpr size_t kMaxIdlePages = 20'000;

// The contract has no starting offset: a stream that begins further on skips the pages before it. A
// page without blocks is not the end if it has a next token. DATA_LOSS: a server that always
// returns a next token, and a page without a capacity or with a different one. ABORTED: a page read
// from other data than those before. As a page needs a capacity above 0, an empty volume can't be
// listed in pages.
class PagedInbound final : public InboundStream {
 public:
  PagedInbound(std::shared_ptr<Channel> channel, const MethodContract& method,
               const MetadataRequest& request, Deadline deadline, std::stop_token stop,
               StallLimit stall);

  absl::StatusOr<bool> Next(MetadataMessage& message) override;
  std::optional<std::string_view> Initial(std::string_view key) const override;
  std::optional<std::string_view> Trailing(std::string_view) const override { return std::nullopt; }

 private:
  absl::Status FetchPage();

  const std::shared_ptr<Channel> channel_;
  const MethodContract& method_;
  MetadataRequest request_;
  const uint64_t starting_offset_;
  const Deadline deadline_;
  const std::stop_token stop_;
  const StallLimit stall_;  // of each page
  SnapshotDeltaPage page_;
  std::optional<uint64_t> capacity_;  // reported by the pages
  std::string version_;               // source version of the pages; empty if not reported
  uint64_t furthest_ = 0;             // largest end of a block
  size_t idle_pages_ = 0;             // in a row without a block that ends after furthest_
  bool first_ = true;
  bool ended_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_PAGED_INBOUND_H_
