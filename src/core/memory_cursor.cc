// Cursors over memory: blocks are compared a chunk at a time into one bit per block, and runs of
// bits become extents.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "cbt/units.h"
#include "core/parallel_cursor.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Bytes compared before runs are extracted (at least 64 blocks, to fill a word), and the most bytes
// compared in one Next().
constexpr uint64_t kChunkBytes = kMiB;
constexpr uint64_t kBytesPerCall = 16 * kMiB;

// What keeps the memory; empty if the caller does.
using MemoryOwners = std::array<std::shared_ptr<const void>, 2>;

class MemoryCursor final : public ExtentCursor {
 public:
  // `base` null: all zeros. Reports nothing from `end` on, which is a block boundary or the end of
  // the memory.
  MemoryCursor(const uint8_t* base, const uint8_t* target, MemoryOwners owners, uint64_t capacity,
               uint64_t end, uint64_t block_size) noexcept
      : ExtentCursor({.capacity = capacity, .granularity = block_size}),
        owners_(std::move(owners)),
        base_(base),
        target_(target),
        end_(end),
        chunk_blocks_(std::clamp<uint64_t>(kChunkBytes / block_size / 64 * 64, 64, 64 * kWords)),
        runs_(capacity, block_size) {}

 private:
  static constexpr size_t kWords = 32;

  absl::Status DoSeek(uint64_t offset) override {
    compared_ = offset;
    words_ = scanned_ = 0;
    runs_.Reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    uint64_t budget = kBytesPerCall;
    while (!batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (scanned_ < words_) {
        const auto* words = reinterpret_cast<const uint8_t*>(bits_.data() + scanned_);
        scanned_ += runs_.Scan(simd::ExtractRuns().single, words, words, words_ - scanned_,
                               first_block_ + scanned_ * 64, batch);
      } else if (compared_ == end_) {
        runs_.Close(BlockCount(end_, granularity()), batch);
        return capacity();
      } else if (budget == 0) {
        break;
      } else {
        budget -= std::min(budget, Compare());
      }
    }
    if (pieces_allowed() && scanned_ == words_) {
      runs_.ClosePiece(BlockCount(compared_, granularity()), batch);
    }
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    if (scanned_ < words_) return (first_block_ + scanned_ * 64) * granularity();
    return compared_ < end_ ? compared_ : capacity();
  }

  // Compares the next chunk; returns its bytes.
  uint64_t Compare() noexcept {
    const uint64_t rest = end_ - compared_;
    const uint64_t bytes =
        BlockCount(rest, granularity()) <= chunk_blocks_ ? rest : chunk_blocks_ * granularity();
    const auto block_size = static_cast<size_t>(granularity());
    const simd::CompareBlocksKernels& kernels = simd::CompareBlocks();
    if (base_ != nullptr) {
      kernels.compare(base_ + compared_, target_ + compared_, static_cast<size_t>(bytes),
                      block_size, bits_.data());
    } else {
      kernels.nonzero(target_ + compared_, static_cast<size_t>(bytes), block_size, bits_.data());
    }
    first_block_ = compared_ / granularity();
    words_ = static_cast<size_t>((BlockCount(bytes, granularity()) + 63) / 64);
    scanned_ = 0;
    compared_ += bytes;
    return bytes;
  }

  const MemoryOwners owners_;
  const uint8_t* const base_;
  const uint8_t* const target_;
  const uint64_t end_;
  const uint64_t chunk_blocks_;
  RunAssembler runs_;
  uint64_t compared_ = 0;     // the blocks below this offset have been compared
  uint64_t first_block_ = 0;  // of the last chunk, whose bits are bits_[0 .. words_)
  size_t words_ = 0;
  size_t scanned_ = 0;
  std::array<uint64_t, kWords> bits_;
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeCursor(const uint8_t* base,
                                                         std::span<const uint8_t> target,
                                                         MemoryOwners owners,
                                                         const MemoryOptions& options) {
  const uint64_t block_size = options.block_size;
  if (block_size < kMinMemoryBlockSize || block_size > kMaxMemoryBlockSize) {
    return absl::InvalidArgumentError(absl::StrCat("block size ", block_size, " is not between ",
                                                   kMinMemoryBlockSize, " and ",
                                                   kMaxMemoryBlockSize));
  }
  const uint64_t capacity = target.size();
  if (options.parallel <= 1 || options.executor == nullptr) {
    return std::make_unique<MemoryCursor>(base, target.data(), std::move(owners), capacity,
                                          capacity, block_size);
  }
  ParallelParts parts;
  parts.make = [=, owners = std::move(owners)](uint64_t end) {
    return std::make_unique<MemoryCursor>(base, target.data(), owners, capacity, end, block_size);
  };
  // A few MiB each: the cost is in reading, not in what is found.
  parts.first_blocks = parts.min_blocks =
      std::max<uint64_t>(4 * kChunkBytes / block_size / 64 * 64, 64);
  parts.max_blocks = 4 * parts.min_blocks;
  return MakeParallelCursor(std::move(parts), capacity, block_size, *options.executor,
                            options.parallel);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeDelta(std::span<const uint8_t> base,
                                                        std::span<const uint8_t> target,
                                                        MemoryOwners owners,
                                                        const MemoryOptions& options) {
  if (base.size() != target.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory delta: base has ", base.size(), " bytes, target ", target.size()));
  }
  // An empty span may be null, which would mean all zeros.
  static constexpr uint8_t kNothing = 0;
  return MakeCursor(base.empty() ? &kNothing : base.data(), target, std::move(owners), options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryDeltaCursor(SharedBytes base,
                                                                    SharedBytes target,
                                                                    const MemoryOptions& options) {
  return MakeDelta(base.bytes(), target.bytes(), {base.owner(), target.owner()}, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeMemoryAllocationCursor(
    SharedBytes memory, const MemoryOptions& options) {
  return MakeCursor(nullptr, memory.bytes(), {memory.owner()}, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryDeltaCursor(
    std::span<const uint8_t> base, std::span<const uint8_t> target, const MemoryOptions& options) {
  return MakeDelta(base, target, {}, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedMemoryAllocationCursor(
    std::span<const uint8_t> memory, const MemoryOptions& options) {
  return MakeCursor(nullptr, memory, {}, options);
}

}  // namespace cbt
