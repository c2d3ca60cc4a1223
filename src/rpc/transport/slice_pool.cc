#include "rpc/transport/slice_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace cbt::rpc {
namespace {

// Below this the allocator is as fast, and an unfinished message of few tuples, whose next tuple
// takes long to find, need not hold a large buffer.
constexpr size_t kSmall = size_t{16} << 10;

// A message that fills less than half of its buffer is copied out of it, because a slow reader
// holds it for long. Not above this size, where the allocator may map and unmap memory for each
// message, which costs more than building it.
constexpr size_t kMostCopied = size_t{64} << 10;

// Kept while no stream is open, so that clients which come one by one find buffers.
constexpr size_t kKeptForNext = size_t{512} << 10;  // bytes, or
constexpr size_t kLeastKept = 2;                    // buffers

uint8_t* Allocate(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<uint8_t*>(memory);
}

}  // namespace

// Returns the buffer of a slice to the pool.
struct SlicePool::Owner {
  Buffer buffer;
};

SlicePool::Buffer::Buffer(std::shared_ptr<SlicePool> pool, uint8_t* data, size_t size) noexcept
    : pool_(std::move(pool)), data_(data), size_(size) {}

SlicePool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::move(other.pool_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SlicePool::Buffer& SlicePool::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SlicePool::Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (pool_ != nullptr) {
    pool_->Put(data_);
  } else {
    std::free(data_);
  }
}

// gRPC allocates the slice's reference count with new, which may throw: until it has taken the
// buffer, this function must own it.
grpc_slice SlicePool::Buffer::ToSlice(size_t length) && {
  if (length < std::min(size_ / 2, kMostCopied)) {
    const size_t bytes = std::max<size_t>(length, 1);
    Buffer copy(nullptr, Allocate(bytes), bytes);
    std::copy_n(data_, length, copy.data_);
    const Buffer whole(std::move(*this));
    return std::move(copy).HandOver(length);
  }
  if (pool_ == nullptr) return std::move(*this).HandOver(length);
  auto owner = std::make_unique<Owner>();
  owner->buffer = std::move(*this);
  const grpc_slice slice =
      grpc_slice_new_with_user_data(owner->buffer.data_, length, &SlicePool::Release, owner.get());
  static_cast<void>(owner.release());
  return slice;
}

grpc_slice SlicePool::Buffer::HandOver(size_t length) && {
  const grpc_slice slice = grpc_slice_new(data_, length, std::free);
  data_ = nullptr;
  return slice;
}

std::shared_ptr<SlicePool> SlicePool::Create(size_t buffer_bytes, size_t most_idle) {
  return std::shared_ptr<SlicePool>(
      new SlicePool(buffer_bytes, most_idle / (buffer_bytes == 0 ? 1 : buffer_bytes)));
}

SlicePool::SlicePool(size_t buffer_bytes, size_t most_buffers)
    : buffer_bytes_(buffer_bytes), most_buffers_(most_buffers) {
  // Returning a buffer must never allocate.
  idle_.reserve(most_buffers_);
}

SlicePool::~SlicePool() {
  for (uint8_t* const data : idle_) std::free(data);
}

SlicePool::Buffer SlicePool::Take(size_t bytes) {
  if (bytes <= kSmall || bytes > buffer_bytes_) return {nullptr, Allocate(bytes), bytes};
  uint8_t* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      data = idle_.back();
      idle_.pop_back();
      ++in_use_;
    }
  }
  if (data == nullptr) {
    data = Allocate(buffer_bytes_);
    const std::lock_guard lock(mutex_);
    ++in_use_;
  }
  return {shared_from_this(), data, buffer_bytes_};
}

size_t SlicePool::idle() const {
  const std::lock_guard lock(mutex_);
  return idle_.size();
}

void SlicePool::Put(uint8_t* data) noexcept {
  const std::lock_guard lock(mutex_);
  --in_use_;
  if (idle_.size() < most_buffers_) {
    idle_.push_back(data);
  } else {
    std::free(data);
  }
  if (in_use_ != 0) return;
  while (idle_.size() > kLeastKept && idle_.size() * buffer_bytes_ > kKeptForNext) {
    std::free(idle_.back());
    idle_.pop_back();
  }
}

void SlicePool::Release(void* owner) { delete static_cast<Owner*>(owner); }

}  // namespace cbt::rpc
