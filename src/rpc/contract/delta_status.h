// The status of a VolumeSnapshotDelta, as `cbtctl list` and the aggregated API server write it.
#ifndef CBT_RPC_CONTRACT_DELTA_STATUS_H_
#define CBT_RPC_CONTRACT_DELTA_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/json_builder.h"

namespace cbt::rpc {

// What the numbers of `state` mean.
enum class DeltaState : int {
  kCompleted = 0,  // no more blocks
  kContinue = 1,   // more blocks; `continue` is the block index at which the next page starts
  kFailed = 2,     // `error` holds the reason
};

// One page, block by block: nothing is held but its text.
class DeltaStatus {
 public:
  // A driver's token for the data of a block.
  struct Token {
    std::string_view token = {};
    std::string_view issuance_time = {};  // RFC 3339; may be empty
    int64_t ttl_seconds = 0;
  };

  // `offset`: index of the first block that was asked for.
  DeltaStatus(uint64_t limit, uint64_t offset, uint64_t block_size)
      : limit_(limit), offset_(offset), block_size_(block_size) {}

  void Add(uint64_t index, const std::optional<Token>& token = {});
  // Forgets all blocks.
  void Clear() { blocks_.clear(); }

  // Writes the status: Completed, or Continue if there is more from block `next` on.
  void Finish(bool more, uint64_t next, JsonBuilder& json) const;
  // Failed, with no blocks: the same page is asked for again.
  void Fail(const absl::Status& error, JsonBuilder& json) const;

 private:
  const uint64_t limit_;
  const uint64_t offset_;
  const uint64_t block_size_;
  std::string blocks_;  // JSON, with commas between them
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_DELTA_STATUS_H_
