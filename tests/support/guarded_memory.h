// Memory next to an inaccessible page, so that a kernel that reads or writes one byte too many
// crashes at once, with or without sanitizers.
#ifndef CBT_TESTS_SUPPORT_GUARDED_MEMORY_H_
#define CBT_TESTS_SUPPORT_GUARDED_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace cbt::test {

class GuardedMemory {
 public:
  enum class Guard { kAfter, kBefore };

  // `bytes` of zeroed memory, adjacent to the guard page.
  explicit GuardedMemory(size_t bytes, Guard guard = Guard::kAfter) : size_(bytes) {
    const size_t inside = (bytes + kPage - 1) / kPage * kPage;
    mapped_ = inside + 2 * kPage;
    void* const memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = static_cast<uint8_t*>(memory);
    mprotect(base_, kPage, PROT_NONE);
    mprotect(base_ + kPage + inside, kPage, PROT_NONE);
    data_ = base_ + kPage + (guard == Guard::kAfter ? inside - bytes : 0);
  }
  ~GuardedMemory() { munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kPage = 4096;
  const size_t size_;
  uint8_t* base_;
  uint8_t* data_;
  size_t mapped_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_GUARDED_MEMORY_H_
