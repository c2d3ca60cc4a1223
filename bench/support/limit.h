// The read bandwidth of the machine.
#ifndef CBT_BENCH_SUPPORT_LIMIT_H_
#define CBT_BENCH_SUPPORT_LIMIT_H_

#include <cstddef>
#include <cstdint>

namespace cbt::bench {

// Only reads both ranges, with the widest vectors available; returns the OR of their differences.
// Reads multiples of 256 bytes and skips the rest.
uint64_t ReadBoth(const void* a, const void* b, size_t bytes);

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_LIMIT_H_
