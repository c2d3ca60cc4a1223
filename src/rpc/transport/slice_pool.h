// Memory for messages that is used again: a message of some hundred kilobytes would else be mapped
// and unmapped by the allocator each time.
#ifndef CBT_RPC_TRANSPORT_SLICE_POOL_H_
#define CBT_RPC_TRANSPORT_SLICE_POOL_H_

#include <grpc/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace cbt::rpc {

// Buffers of one size. Thread safe. Lives as long as anybody holds it or a slice of its buffers.
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

    // The first `length` bytes as a slice, which owns the buffer, or a copy of them if they are
    // few.
    grpc_slice ToSlice(size_t length) &&;

   private:
    friend class SlicePool;
    Buffer(std::shared_ptr<SlicePool> pool, uint8_t* data, size_t size) noexcept;
    // The same for a buffer that is not a pool's.
    grpc_slice HandOver(size_t length) &&;

    std::shared_ptr<SlicePool> pool_;  // null: the buffer is not a pool's
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
  };

  // `most_idle`: bytes that are kept for later at most, while a buffer is in use. When none is, no
  // more stay than one stream turns over.
  static std::shared_ptr<SlicePool> Create(size_t buffer_bytes, size_t most_idle);
  ~SlicePool();
  SlicePool(const SlicePool&) = delete;
  SlicePool& operator=(const SlicePool&) = delete;

  // How many buffers are kept for later.
  size_t idle() const;

  // A buffer of at least `bytes`, from the pool unless that is little or more than the pool's size.
  Buffer Take(size_t bytes);

 private:
  struct Owner;

  SlicePool(size_t buffer_bytes, size_t most_buffers);
  static void Release(void* owner);
  void Put(uint8_t* data) noexcept;

  const size_t buffer_bytes_;
  const size_t most_buffers_;
  mutable std::mutex mutex_;
  std::vector<uint8_t*> idle_;
  size_t in_use_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_SLICE_POOL_H_
