// Vectors on huge pages: otherwise, the pages that a buffer happens to get would affect the
// measurement.
#ifndef CBT_BENCH_SUPPORT_HUGE_MEMORY_H_
#define CBT_BENCH_SUPPORT_HUGE_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

#include "cbt/units.h"

namespace cbt::bench {

template <typename T>
struct HugeAllocator {
  using value_type = T;
  HugeAllocator() = default;
  template <typename U>
  explicit HugeAllocator(const HugeAllocator<U>&) {}

  T* allocate(size_t count) {
    constexpr size_t kHuge = 2 * kMiB;
    const size_t bytes = (count * sizeof(T) + kHuge - 1) / kHuge * kHuge;
    void* const memory = ::operator new (bytes, std::align_val_t{kHuge});
    madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) noexcept {
    ::operator delete (memory, std::align_val_t{2 * kMiB});
  }
  friend bool operator==(const HugeAllocator&, const HugeAllocator&) { return true; }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_HUGE_MEMORY_H_
