// What the machine can read.
#ifndef CBT_BENCH_SUPPORT_LIMIT_H_
#define CBT_BENCH_SUPPORT_LIMIT_H_

#include <cstddef>
#include <cstdint>

namespace cbt::bench {

// Reads both ranges with the widest vectors there are and nothing else: the OR of what differs.
// Multiples of 256 bytes; the rest is left out.
uint64_t ReadBoth(const void* a, const void* b, size_t bytes);

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_LIMIT_H_
