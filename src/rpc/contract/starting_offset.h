// Where a stream that starts inside a volume begins.
#ifndef CBT_RPC_CONTRACT_STARTING_OFFSET_H_
#define CBT_RPC_CONTRACT_STARTING_OFFSET_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace cbt::rpc {

// The number of leading tuples that end at or before `starting_offset`: the client has them
// already. Stops at the first tuple that reaches past the offset, and at an empty one: malformed
// tuples must reach the checks. Values whose sum wraps count as reaching past the offset.
// Requires: both spans have the same size.
// Cost:     O(result).
inline size_t CountTuplesBefore(std::span<const uint64_t> offsets,
                                std::span<const uint64_t> lengths,
                                uint64_t starting_offset) noexcept {
  size_t count = 0;
  while (count < offsets.size() && lengths[count] != 0 && offsets[count] < starting_offset &&
         lengths[count] <= starting_offset - offsets[count]) {
    ++count;
  }
  return count;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_STARTING_OFFSET_H_
