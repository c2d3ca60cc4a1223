// Memory of a transport: what it holds, and the buffers that it reads into.
#ifndef CBT_NET_MEMORY_H_
#define CBT_NET_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "cbt/units.h"

namespace cbt::net {

// A status that needs no memory itself.
inline absl::Status NoMemory() noexcept {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

// The bytes that connections hold: of a whole server, or of one of its loops. Thread safe.
class MemoryAccount {
 public:
  // What this one holds, `whole` holds too; it may be null.
  explicit MemoryAccount(std::shared_ptr<MemoryAccount> whole = nullptr) noexcept
      : whole_(std::move(whole)) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  void Add(size_t bytes) noexcept {
    used_.fetch_add(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Add(bytes);
  }
  void Remove(size_t bytes) noexcept {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Remove(bytes);
  }
  size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<MemoryAccount> whole_;
  std::atomic<size_t> used_{0};
};

// What an object of the heap takes beside its own bytes.
inline constexpr size_t kHeapOverhead = 16;

// A changing number of bytes in an account, which outlives it.
class MemoryCharge {
 public:
  explicit MemoryCharge(MemoryAccount& account) noexcept : account_(account) {}
  ~MemoryCharge() { Set(0); }
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

  void Set(size_t bytes) noexcept {
    if (bytes > bytes_) account_.Add(bytes - bytes_);
    if (bytes < bytes_) account_.Remove(bytes_ - bytes);
    bytes_ = bytes;
  }
  size_t bytes() const noexcept { return bytes_; }

 private:
  MemoryAccount& account_;
  size_t bytes_ = 0;
};

// The buffer that a loop's connections read into, one after another, so that a waiting connection
// holds none. Pieces share the chunk and keep it alive. For one thread; pieces may be used and
// destroyed in any.
class ReadChunks {
 public:
  // The size of a chunk: a multiple of a TLS record, and small enough for the processor's cache.
  static constexpr size_t kChunkBytes = 64 * kKiB;
  // Shorter pieces are copied, so that a small one does not keep a chunk alive.
  static constexpr size_t kSharedBytes = 4 * kKiB;

  explicit ReadChunks(std::shared_ptr<MemoryAccount> account) noexcept;
  ~ReadChunks();
  ReadChunks(const ReadChunks&) = delete;
  ReadChunks& operator=(const ReadChunks&) = delete;

  // At least a quarter of a chunk to read into; empty if there is no memory.
  std::span<char> Space() noexcept;

  // Marks the first `bytes` of the last Space() as used until the next call of Space().
  void Advance(size_t bytes) noexcept { used_ += bytes; }

  // A piece of the data read into the last Space(). Its user counts it; a chunk counts the rest of
  // itself. Throws std::bad_alloc.
  absl::Cord Piece(const char* data, size_t bytes);

  MemoryAccount& account() noexcept { return *account_; }
  const std::shared_ptr<MemoryAccount>& shared_account() const noexcept { return account_; }

 private:
  struct Chunk;
  static void Release(Chunk* chunk) noexcept;

  const std::shared_ptr<MemoryAccount> account_;
  Chunk* chunk_ = nullptr;
  size_t used_ = 0;
};

}  // namespace cbt::net

#endif  // CBT_NET_MEMORY_H_
