// Reused memory for messages: the allocator would map and unmap a message of some hundred kilobytes
// each time.
#ifndef CBT_RPC_TRANSPORT_SLICE_POOL_H_
#define CBT_RPC_TRANSPORT_SLICE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/cord.h"

namespace cbt::rpc {

// Buffers of one size. Thread safe. Lives as long as it, or a message in one of its buffers, is
// referenced.
class SlicePool : public std::enable_shared_from_this<SlicePool> {
 public:
  // A buffer that is being written.
  class Buffer {
   public:
    Buffer() = default;
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    uint8_t* data() const noexcept { return data_; }
    size_t size() const noexcept { return size_; }

    // The first `length` bytes as a message in one piece, which owns the buffer, or a copy if they
    // are few. Throws std::bad_alloc.
    absl::Cord ToCord(size_t length) &&;

   private:
    friend class SlicePool;
    Buffer(std::shared_ptr<SlicePool> pool, uint8_t* data, size_t size) noexcept;

    std::shared_ptr<SlicePool> pool_;  // null: not from a pool
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
  };

  // `most_idle`: most bytes kept for reuse while a buffer is in use. When none is in use, only what
  // one stream needs is kept.
  static std::shared_ptr<SlicePool> Create(size_t buffer_bytes, size_t most_idle);
  ~SlicePool();
  SlicePool(const SlicePool&) = delete;
  SlicePool& operator=(const SlicePool&) = delete;

  // Number of buffers kept for reuse.
  size_t idle() const;

  // A buffer of at least `bytes`, from the pool unless `bytes` is small or exceeds the pool's size.
  Buffer Take(size_t bytes);

 private:
  SlicePool(size_t buffer_bytes, size_t most_buffers);
  void Put(uint8_t* data) noexcept;

  const size_t buffer_bytes_;
  const size_t most_buffers_;
  mutable std::mutex mutex_;
  std::vector<uint8_t*> idle_;
  size_t in_use_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_SLICE_POOL_H_
