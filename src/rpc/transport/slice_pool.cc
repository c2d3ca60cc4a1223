#include "rpc/transport/slice_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "absl/strings/string_view.h"
#include "cbt/units.h"

namespace cbt::rpc {
namespace {

// Below this the allocator is as fast, and an unfinished message of few tuples, whose next tuple
// takes long to find, need not hold a large buffer.
constexpr size_t kSmall = 16 * kKiB;

// A message that fills less than half of its buffer is copied out of it, because a slow reader
// holds it for long. Not above this size, where the allocator may map and unmap memory for each
// message, which costs more than building it.
constexpr size_t kMaxCopied = 64 * kKiB;

// Kept while no stream is open, so that clients which come one by one find buffers.
constexpr size_t kKeptForNext = 512 * kKiB;  // bytes, or
constexpr size_t kLeastKept = 2;             // buffers

// Few enough that a Cord keeps them in one piece of its own.
constexpr size_t kMaxInCord = 2 * kKiB;

absl::string_view TextOf(const uint8_t* data, size_t length) {
  return {reinterpret_cast<const char*>(data), length};
}

uint8_t* Allocate(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<uint8_t*>(memory);
}

}  // namespace

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

absl::Cord SlicePool::Buffer::ToCord(size_t length) && {
  if (length < std::min(size_ / 2, kMaxCopied)) {
    const Buffer whole(std::move(*this));
    if (length <= kMaxInCord) return absl::Cord(TextOf(whole.data_, length));
    Buffer copy(nullptr, Allocate(length), length);
    std::copy_n(whole.data_, length, copy.data_);
    return std::move(copy).ToCord(length);
  }
  // The releaser owns the buffer from the start: the allocation of the Cord's node may throw.
  const absl::string_view bytes = TextOf(data_, length);
  return absl::MakeCordFromExternal(bytes, [buffer = std::move(*this)](absl::string_view) {});
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

}  // namespace cbt::rpc
