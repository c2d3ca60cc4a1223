#include "net/memory.h"

#include <new>
#include <utility>

namespace cbt::net {

struct ReadChunks::Chunk {
  std::atomic<size_t> references{1};
  std::shared_ptr<MemoryAccount> account;
  char bytes[kChunkBytes];
};

ReadChunks::ReadChunks(std::shared_ptr<MemoryAccount> account) noexcept
    : account_(std::move(account)) {}

ReadChunks::~ReadChunks() {
  if (chunk_ != nullptr) Release(chunk_);
}

void ReadChunks::Release(Chunk* chunk) noexcept {
  if (chunk->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  chunk->account->Remove(sizeof(Chunk));
  delete chunk;
}

std::span<char> ReadChunks::Space() noexcept {
  if (chunk_ != nullptr && chunk_->references.load(std::memory_order_acquire) == 1) used_ = 0;
  if (chunk_ != nullptr && kChunkBytes - used_ < kChunkBytes / 4) {
    Release(std::exchange(chunk_, nullptr));
  }
  if (chunk_ == nullptr) {
    chunk_ = new (std::nothrow) Chunk;
    if (chunk_ == nullptr) return {};
    chunk_->account = account_;
    account_->Add(sizeof(Chunk));
    used_ = 0;
  }
  return {chunk_->bytes + used_, kChunkBytes - used_};
}

absl::Cord ReadChunks::Piece(const char* data, size_t bytes) {
  const absl::string_view view(data, bytes);
  if (bytes < kSharedBytes) return absl::Cord(view);
  struct Reference {
    Reference(Chunk* shared, size_t its_bytes) noexcept : chunk(shared), bytes(its_bytes) {
      chunk->references.fetch_add(1, std::memory_order_relaxed);
      chunk->account->Remove(bytes);
    }
    Reference(Reference&& other) noexcept
        : chunk(std::exchange(other.chunk, nullptr)), bytes(other.bytes) {}
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;
    Reference& operator=(Reference&&) = delete;
    ~Reference() {
      if (chunk == nullptr) return;
      chunk->account->Add(bytes);
      Release(chunk);
    }
    void operator()() const noexcept {}
    Chunk* chunk;
    const size_t bytes;
  };
  return absl::MakeCordFromExternal(view, Reference(chunk_, bytes));
}

}  // namespace cbt::net
