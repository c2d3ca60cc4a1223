// A batch of extents: what cursors return.
//
// Structure of arrays, so that kernels read offsets and lengths with full vectors. The default
// capacity keeps both arrays in the first-level cache together with the data they are built from.
#ifndef CBT_BATCH_H_
#define CBT_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cbt/extent.h"
#include "cbt/lifetime.h"

namespace cbt {

// Up to capacity() extents in stream order. Movable, not copyable; belongs to one thread at a time.
class ExtentBatch {
 public:
  static constexpr size_t kDefaultCapacity = 1024;
  // Elements past the capacity, in both arrays, that kernels may overwrite.
  static constexpr size_t kSlack = 64;

  // Allocates room for `capacity` (> 0) extents. The batch never grows.
  explicit ExtentBatch(size_t capacity = kDefaultCapacity);

  size_t size() const noexcept { return size_; }
  size_t capacity() const noexcept { return capacity_; }
  size_t room() const noexcept { return capacity_ - size_; }
  bool empty() const noexcept { return size_ == 0; }
  bool full() const noexcept { return size_ == capacity_; }

  void clear() noexcept { size_ = 0; }

  // Requires: !full().
  void push_back(Extent extent) noexcept {
    offsets_[size_] = extent.offset;
    lengths_[size_] = extent.length;
    ++size_;
  }

  // Requires: index < size().
  Extent operator[](size_t index) const noexcept { return {offsets_[index], lengths_[index]}; }
  // Requires: !empty().
  Extent front() const noexcept { return (*this)[0]; }
  Extent back() const noexcept { return (*this)[size_ - 1]; }

  // Byte offsets and byte lengths of the extents; valid until the batch changes.
  std::span<const uint64_t> offsets() const noexcept CBT_LIFETIME_BOUND {
    return {offsets_, size_};
  }
  std::span<const uint64_t> lengths() const noexcept CBT_LIFETIME_BOUND {
    return {lengths_, size_};
  }

  // For kernels that fill a batch in bulk: write at [size(), capacity() + kSlack) of both arrays,
  // then call set_size() with the number of valid extents, at most capacity(). Both arrays are
  // aligned to 64 bytes.
  uint64_t* mutable_offsets() noexcept { return offsets_; }
  uint64_t* mutable_lengths() noexcept { return lengths_; }
  void set_size(size_t size) noexcept { size_ = size; }

 private:
  struct AlignedDelete {
    void operator()(uint64_t* memory) const noexcept;
  };

  std::unique_ptr<uint64_t[], AlignedDelete> memory_;
  uint64_t* offsets_;
  uint64_t* lengths_;
  size_t capacity_;
  size_t size_ = 0;
};

}  // namespace cbt

#endif  // CBT_BATCH_H_
