// Memory of a transport: what it holds, and the buffers that it reads into.
#ifndef CBT_RPC_TRANSPORT_HTTP2_MEMORY_H_
#define CBT_RPC_TRANSPORT_HTTP2_MEMORY_H_

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "cbt/units.h"

namespace cbt::rpc::http2 {

// A status that needs no memory itself.
inline absl::Status NoMemory() noexcept {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

// The bytes that all connections hold. Thread safe.
class MemoryAccount {
 public:
  void Add(size_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void Remove(size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> used_{0};
};

// nghttp2's allocations for one session, counted. The large ones, whose pages it hardly touches,
// come directly from the system, so that an idle connection keeps no used memory. Outlives the
// session.
//
// After a failed allocation the session may only be deleted, and no memory is released before this
// object is destroyed: nghttp2 may still refer to freed memory (a stream to its DATA, if the queue
// of streams can't grow).
class SessionMemory {
 public:
  explicit SessionMemory(std::shared_ptr<MemoryAccount> account) noexcept;
  ~SessionMemory();
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  nghttp2_mem* functions() noexcept { return &functions_; }
  size_t used() const noexcept { return used_; }

 private:
  struct Header;
  static Header* HeaderOf(void* data) noexcept;
  void Release(Header* header) noexcept;
  static void* Malloc(size_t bytes, void* self);
  static void Free(void* data, void* self);
  static void* Calloc(size_t count, size_t bytes, void* self);
  static void* Realloc(void* data, size_t bytes, void* self);

  const std::shared_ptr<MemoryAccount> account_;
  size_t used_ = 0;
  Header* first_ = nullptr;
  bool failed_ = false;
  nghttp2_mem functions_;
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

  // A piece of the data read into the last Space(). Throws std::bad_alloc.
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

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_MEMORY_H_
