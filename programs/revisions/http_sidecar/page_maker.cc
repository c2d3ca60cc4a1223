#include "programs/revisions/http_sidecar/page_maker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "net/address.h"
#include "rpc/client/connect.h"

namespace cbt::kube::http_sidecar {
namespace {

using aggregated::DeltaPageRequest;
using aggregated::PageBlock;
using aggregated::PageEnd;
using aggregated::PageHead;

// Whether the plugin's block is the block of this page at `index`.
bool IsWholeBlock(const Extent& extent, uint64_t index, uint64_t block_size, uint64_t capacity) {
  return extent.offset == index * block_size &&
         (extent.length == block_size || (extent.end() == capacity && extent.length < block_size));
}

absl::Status PastTheEnd(const DeltaPageRequest& request) {
  return absl::OutOfRangeError(
      absl::StrCat("block ", request.starting_block, " lies past the volume's end"));
}

}  // namespace

absl::StatusOr<std::string> WritePage(const DeltaPageRequest& request, ChangedBlocks& blocks) {
  const uint64_t block_size = request.block_size;
  // Of an unknown capacity there are no blocks.
  const uint64_t capacity = blocks.capacity().value_or(0);
  const uint64_t count = BlockCount(capacity, block_size);
  if (blocks.capacity().has_value() && request.starting_block > count) return PastTheEnd(request);
  std::string page = PageHead{.block_size = block_size,
                              .volume_size = blocks.capacity(),
                              .source_version = blocks.version()}
                         .ToJson() +
                     "\n";
  PageEnd end = {.next_block = request.starting_block};
  ChangedExtent changed;
  while (end.blocks < request.max_blocks) {
    const absl::StatusOr<bool> found = blocks.Next(changed);
    if (!found.ok()) return found.status();
    if (!*found) {
      page += end.ToJson() + "\n";
      return page;
    }
    // Two extents may share a block.
    uint64_t index = std::max(changed.extent.offset / block_size, end.next_block);
    const uint64_t past = std::min((changed.extent.end() - 1) / block_size + 1, count);
    for (; index < past && end.blocks < request.max_blocks; ++index) {
      PageBlock block = {.index = index};
      if (IsWholeBlock(changed.extent, index, block_size, capacity)) {
        block.token = std::move(changed.token);
      }
      page += block.ToJson() + "\n";
      ++end.blocks;
      end.next_block = index + 1;
    }
    if (index < past) end.more = true;
  }
  if (!end.more) {
    const absl::StatusOr<bool> more = blocks.MayHaveMore();
    if (!more.ok()) return more.status();
    end.more = *more;
  }
  page += end.ToJson() + "\n";
  return page;
}

absl::StatusOr<std::unique_ptr<PageMaker>> PageMaker::Create(const std::string& address,
                                                             rpc::LogSink* log) {
  const absl::StatusOr<net::Address> parsed = net::ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::ConnectForGood(*parsed, {});
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<PageMaker>(new PageMaker(address, *std::move(channel), log));
}

absl::StatusOr<std::unique_ptr<ChangedBlocks>> PageMaker::Stream(ChangedBlocksQuery query,
                                                                 uint64_t block_size) {
  absl::StatusOr<std::unique_ptr<ChangedBlocks>> blocks = StreamChangedBlocks(address_, query);
  if (absl::IsOutOfRange(blocks.status()) && query.from > 0) {
    // The place after a last block that is cut by the volume's end lies past that end, but it is
    // where a client goes on: ask from the block before it. WritePage() has the last word.
    query.from -= block_size;
    blocks = StreamChangedBlocks(address_, query);
  }
  if (!blocks.ok()) return query.for_caller(blocks.status());
  return blocks;
}

absl::StatusOr<std::string> PageMaker::Make(const DeltaPageRequest& request, const Secrets& secrets,
                                            std::chrono::system_clock::time_point deadline) {
  if (request.starting_block > kMaxCapacity / request.block_size) return PastTheEnd(request);
  ChangedBlocksQuery query = {.base = request.base_snapshot_id,
                              .target = request.target_snapshot_id,
                              .from = request.starting_block * request.block_size,
                              .most_extents = request.max_blocks,
                              .secrets = secrets.Copy(),
                              .deadline = deadline,
                              .for_caller = [this, &secrets](const absl::Status& error) {
                                return errors_.ForClient(error, secrets);
                              }};
  absl::StatusOr<std::unique_ptr<ChangedBlocks>> blocks = absl::UnimplementedError("");
  if (has_pages_) blocks = ListChangedBlocks(channel_, query, tokens_);
  if (absl::IsUnimplemented(blocks.status())) {
    has_pages_ = false;
    blocks = Stream(std::move(query), request.block_size);
  }
  if (!blocks.ok()) return blocks.status();
  return WritePage(request, **blocks);
}

}  // namespace cbt::kube::http_sidecar
