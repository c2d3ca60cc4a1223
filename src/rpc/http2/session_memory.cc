#include "rpc/http2/session_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "cbt/units.h"

namespace cbt::rpc::http2 {

// Precedes each of nghttp2's allocations, and preserves their alignment.
struct alignas(std::max_align_t) SessionMemory::Header {
  size_t bytes;  // including the header
  Header* next;
  Header* previous;
};

namespace {

// From this size on, pages come from the system and count as one page: nghttp2 only uses such a
// buffer for the header of a frame whose payload we send ourselves.
constexpr size_t kMappedBytes = 16 * kKiB;
constexpr size_t kPageBytes = 4 * kKiB;

size_t CountOf(size_t bytes) noexcept {
  return bytes < kMappedBytes ? bytes + net::kHeapOverhead : kPageBytes;
}

// Mapped buffers that ended connections leave to the next ones: to map and unmap them costs a short
// connection more than its frames. nghttp2 has one such buffer for each connection, all of one
// size. Thread safe.
class SparePages {
 public:
  // Null without one of this size.
  void* Take(size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    return count_ != 0 && bytes == bytes_ ? pages_[--count_] : nullptr;
  }
  // False if it is not kept.
  bool Keep(void* pages, size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (count_ == pages_.size() || (count_ != 0 && bytes != bytes_)) return false;
    bytes_ = bytes;
    pages_[count_++] = pages;
    return true;
  }

 private:
  std::mutex mutex_;
  std::array<void*, 32> pages_ = {};
  size_t count_ = 0;
  size_t bytes_ = 0;  // of each
};

constinit SparePages spare_pages;

void* Allocate(size_t bytes) noexcept {
  if (bytes < kMappedBytes) return ::operator new(bytes, std::nothrow);
  if (void* const spare = spare_pages.Take(bytes); spare != nullptr) return spare;
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

void Deallocate(void* memory, size_t bytes) noexcept {
  if (bytes < kMappedBytes) {
    ::operator delete(memory);
  } else if (!spare_pages.Keep(memory, bytes)) {
    munmap(memory, bytes);
  }
}

}  // namespace

SessionMemory::SessionMemory(std::shared_ptr<net::MemoryAccount> account) noexcept
    : account_(std::move(account)), functions_{this, &Malloc, &Free, &Calloc, &Realloc} {}

SessionMemory::~SessionMemory() {
  while (first_ != nullptr) Release(first_);
}

SessionMemory::Header* SessionMemory::HeaderOf(void* data) noexcept {
  return static_cast<Header*>(data) - 1;
}

void SessionMemory::Release(Header* header) noexcept {
  (header->previous != nullptr ? header->previous->next : first_) = header->next;
  if (header->next != nullptr) header->next->previous = header->previous;
  used_ -= CountOf(header->bytes);
  account_->Remove(CountOf(header->bytes));
  Deallocate(header, header->bytes);
}

void* SessionMemory::Malloc(size_t bytes, void* self) {
  auto& memory = *static_cast<SessionMemory*>(self);
  if (bytes > SIZE_MAX - sizeof(Header)) return nullptr;
  const size_t all = bytes + sizeof(Header);
  void* const space = Allocate(all);
  if (space == nullptr) {
    memory.failed_ = true;
    return nullptr;
  }
  Header* const header = new (space) Header{all, memory.first_, nullptr};
  if (memory.first_ != nullptr) memory.first_->previous = header;
  memory.first_ = header;
  memory.used_ += CountOf(all);
  memory.account_->Add(CountOf(all));
  return header + 1;
}

void SessionMemory::Free(void* data, void* self) {
  auto& memory = *static_cast<SessionMemory*>(self);
  if (data != nullptr && !memory.failed_) memory.Release(HeaderOf(data));
}

void* SessionMemory::Calloc(size_t count, size_t bytes, void* self) {
  if (bytes != 0 && count > SIZE_MAX / bytes) return nullptr;
  void* const data = Malloc(count * bytes, self);
  if (data != nullptr) std::memset(data, 0, count * bytes);
  return data;
}

void* SessionMemory::Realloc(void* data, size_t bytes, void* self) {
  if (data == nullptr) return Malloc(bytes, self);
  void* const moved = Malloc(bytes, self);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, data, std::min(bytes, HeaderOf(data)->bytes - sizeof(Header)));
  Free(data, self);
  return moved;
}

}  // namespace cbt::rpc::http2
