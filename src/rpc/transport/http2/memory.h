// Memory of a transport: what it has taken, and the buffers that it reads into.
#ifndef CBT_RPC_TRANSPORT_HTTP2_MEMORY_H_
#define CBT_RPC_TRANSPORT_HTTP2_MEMORY_H_

#include <nghttp2/nghttp2.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/strings/cord.h"
#include "cbt/units.h"

namespace cbt::rpc::http2 {

// Bytes that connections hold together. Thread safe.
class MemoryAccount {
 public:
  void Add(size_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void Remove(size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> used_{0};
};

// nghttp2's allocations for one session, counted. The big ones, whose pages it hardly touches, come
// from the system directly, so that an idle connection does not keep used memory. Outlives the
// session.
//
// After an allocation that has failed, the session is only good for being deleted, and nothing is
// given back before this object's end: nghttp2 may still refer to what it has freed (a stream to
// its DATA, if the queue of streams can't grow).
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

// Where a loop's connections read to, one after the other: a connection that waits for its peer
// holds none of it. Pieces of what was read share the chunk and keep it alive. In one thread; the
// pieces may be used and destroyed in any.
class ReadChunks {
 public:
  // Of a chunk. A multiple of a TLS record, and small enough to stay in the processor's cache.
  static constexpr size_t kChunkBytes = 64 * kKiB;
  // Shorter pieces are copied, so that nothing small keeps a chunk alive.
  static constexpr size_t kSharedBytes = 4 * kKiB;

  explicit ReadChunks(std::shared_ptr<MemoryAccount> account) noexcept;
  ~ReadChunks();
  ReadChunks(const ReadChunks&) = delete;
  ReadChunks& operator=(const ReadChunks&) = delete;

  // At least a quarter of a chunk to read into; empty without memory.
  std::span<char> Space() noexcept;

  // The first `bytes` of the last Space() are in use until the next call of Space().
  void Advance(size_t bytes) noexcept { used_ += bytes; }

  // A piece of what was read into the last Space(). Throws std::bad_alloc.
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
