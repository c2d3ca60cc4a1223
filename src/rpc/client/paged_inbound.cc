#include "rpc/client/paged_inbound.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rpc/client/unary_call.h"
#include "rpc/contract/metadata.h"
#include "rpc/contract/resumption.h"
#include "rpc/transport/flat_message.h"
#include "wire/proto_reader.h"

namespace cbt::rpc {
namespace {

using wire::ProtoReader;
using wire::WireType;

MetadataRequest Copy(const MetadataRequest& request) {
  MetadataRequest copy;
  copy.base_snapshot_id = request.base_snapshot_id;
  copy.target_snapshot_id = request.target_snapshot_id;
  copy.max_results = request.max_results;
  copy.secrets = request.secrets.Copy();
  return copy;
}

absl::Status TooLarge(const char* what, size_t position) {
  return absl::InvalidArgumentError(
      absl::StrCat("page: ", what, " at byte ", position, " is past 2^63 - 1"));
}

// Pages do not say whether all blocks have one size; if so, the last may reach past the capacity.
void CutLastBlock(SnapshotDeltaPage& page) {
  if (page.tuples.empty()) return;
  const Extent last = page.tuples.back();
  if (last.offset >= page.capacity || last.length <= page.capacity - last.offset) return;
  page.tuples.set(page.tuples.size() - 1, {last.offset, page.capacity - last.offset});
}

}  // namespace

absl::Status DecodePage(std::span<const uint8_t> bytes, SnapshotDeltaPage& page) {
  page.capacity = 0;
  page.next_token.clear();
  page.tuples.clear();
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) {
      page.capacity = reader.varint();
      if (page.capacity > kMaxCapacity) return TooLarge("volume_size_bytes", reader.position());
    } else if (reader.Is(2, WireType::kBytes)) {
      page.next_token = reader.text();
    } else if (reader.Is(3, WireType::kBytes)) {
      Extent block;
      ProtoReader fields(reader.bytes(), reader.content_position());
      while (fields.Next()) {
        if (fields.Is(1, WireType::kVarint)) block.offset = fields.varint();
        if (fields.Is(2, WireType::kVarint)) block.length = fields.varint();
      }
      if (!fields.status().ok()) return fields.status();
      if (block.offset > kMaxCapacity || block.length > kMaxCapacity) {
        return TooLarge("a block", reader.content_position());
      }
      page.tuples.push_back(block);
    }
  }
  return reader.status();
}

PagedInbound::PagedInbound(std::shared_ptr<Channel> channel, const MethodContract& method,
                           const MetadataRequest& request, Deadline deadline, std::stop_token stop,
                           StallLimit stall)
    : channel_(std::move(channel)),
      method_(method),
      request_(Copy(request)),
      starting_offset_(static_cast<uint64_t>(request.starting_offset)),
      deadline_(deadline),
      stop_(std::move(stop)),
      stall_(stall) {}

absl::Status PagedInbound::FetchPage() {
  Deadline deadline = deadline_;
  if (stall_.has_value()) {
    const auto latest = std::chrono::system_clock::now() + *stall_;
    deadline = std::min(deadline.value_or(latest), latest);
  }
  UnaryCall call(*channel_, deadline);
  const absl::StatusOr<absl::Cord> response =
      call.Run(method_.path, EncodeRequest(method_, request_), stop_);
  if (!response.ok()) return response.status();
  const std::string version(call.Initial(kSourceVersionKey).value_or(""));
  if (version == kGivenTwice) {
    return absl::DataLossError(absl::StrCat("metadata stream: ", AbslView(kTwoVersions)));
  }
  if (!capacity_.has_value()) {
    version_ = version;
  } else if (version != version_) {
    return absl::AbortedError(
        "metadata stream: the server's data changed between pages, because the snapshot was "
        "replaced or changed: discard what was received and start again from 0");
  }
  if (absl::Status decoded = DecodePage(FlatMessage().Of(*response), page_); !decoded.ok()) {
    return absl::DataLossError(absl::StrCat("metadata stream: ", decoded.message()));
  }
  return absl::OkStatus();
}

std::optional<std::string_view> PagedInbound::Initial(std::string_view key) const {
  if (key != kSourceVersionKey || version_.empty()) return std::nullopt;
  return version_;
}

absl::StatusOr<bool> PagedInbound::Next(MetadataMessage& message) {
  for (;;) {
    if (ended_) return false;
    if (absl::Status status = FetchPage(); !status.ok()) return status;
    // Checked even if a page is empty: an empty response has no blocks and no next page, like a
    // last page may.
    if (page_.capacity == 0) {
      return absl::DataLossError("metadata stream: a page has no volume size");
    }
    if (capacity_.value_or(page_.capacity) != page_.capacity) {
      return absl::DataLossError(absl::StrCat("metadata stream: a page has capacity ",
                                              page_.capacity, " after ", *capacity_));
    }
    capacity_ = page_.capacity;
    if (!page_.next_token.empty() && page_.next_token == request_.page_token) {
      return absl::DataLossError("metadata stream: a page names itself as the next one");
    }
    const uint64_t end = page_.tuples.empty() ? 0 : page_.tuples.back().end();
    idle_pages_ = end > furthest_ ? 0 : idle_pages_ + 1;
    furthest_ = std::max(furthest_, end);
    ended_ = page_.next_token.empty();
    if (!ended_ && idle_pages_ > kMaxIdlePages) {
      return absl::DataLossError(
          absl::StrCat("metadata stream: ", idle_pages_,
                       " pages in a row brought nothing new, and more are announced"));
    }
    request_.page_token = page_.next_token;
    if (page_.capacity < starting_offset_) {
      return absl::OutOfRangeError(absl::StrCat("starting_offset ", starting_offset_,
                                                " is greater than the capacity ", page_.capacity));
    }
    CutLastBlock(page_);
    const size_t passed =
        CountTuplesBefore(page_.tuples.offsets(), page_.tuples.lengths(), starting_offset_);
    const bool quiet = passed == page_.tuples.size() && !first_;
    if (quiet && !ended_) continue;
    if (quiet && page_.tuples.empty()) continue;
    first_ = false;
    message.type = BlockMetadataType::kVariableLength;
    message.capacity = page_.capacity;
    message.tuples.resize(page_.tuples.size() - passed);
    for (size_t i = passed; i < page_.tuples.size(); ++i) {
      message.tuples.set(i - passed, page_.tuples[i]);
    }
    return true;
  }
}

}  // namespace cbt::rpc
