#include "source/image/chunk_compare.h"

#include <algorithm>
#include <new>
#include <optional>

#include "simd/kernels.h"
#include "source/image/data_walk.h"
#include "source/image/read_ahead.h"

namespace cbt {
namespace {

// In a chunk, the kernel is asked this far ahead of the position.
constexpr uint64_t kAheadInChunk = 2 * kMiB;

// Two aligned buffers per comparing thread, kept for its lifetime: with many chunks, fresh memory
// would cost a page fault per page of each.
struct Buffers {
  struct Delete {
    void operator()(uint8_t* memory) const noexcept {
      ::operator delete[](memory, std::align_val_t{4096});
    }
  };
  std::unique_ptr<uint8_t[], Delete> memory{new (std::align_val_t{4096}) uint8_t[2 * kPieceBytes]};
  uint8_t* base() const noexcept { return memory.get(); }
  uint8_t* target() const noexcept { return memory.get() + kPieceBytes; }
};

Buffers& ThreadBuffers() {
  static thread_local Buffers buffers;
  return buffers;
}

}  // namespace

absl::StatusOr<uint64_t> ImagePair::NextData(uint64_t offset) const {
  DataWalk base_walk(base.get(), skip_holes);
  DataWalk target_walk(target.get(), skip_holes);
  if (absl::Status status = base_walk.MoveTo(offset); !status.ok()) return status;
  if (absl::Status status = target_walk.MoveTo(offset); !status.ok()) return status;
  return std::min({base_walk.begin(), target_walk.begin(), target->size()});
}

absl::Status ImagePair::CheckUnchanged() const {
  if (base != nullptr) {
    if (absl::Status status = base->CheckUnchanged(); !status.ok()) return status;
  }
  return target->CheckUnchanged();
}

absl::Status CompareChunk(const ImagePair& pair, uint64_t begin, uint64_t end, size_t block_size,
                          uint64_t asked, std::atomic<bool>* cold, std::vector<uint64_t>& changed) {
  const uint64_t blocks = BlockCount(end - begin, block_size);
  changed.assign(static_cast<size_t>((blocks + 63) / 64), 0);
  const simd::CompareBlocksKernels& kernels = simd::CompareBlocks();
  const Buffers& buffers = ThreadBuffers();
  std::vector<uint64_t> bits(kPieceBytes / block_size / 64 + 1);
  DataWalk base(pair.base.get(), pair.skip_holes);
  DataWalk target(pair.target.get(), pair.skip_holes);
  std::optional<ReadAhead> ahead;
  WaitWatch watch(cold);
  uint64_t position = begin;
  while (position < end) {
    if (absl::Status status = base.MoveTo(position); !status.ok()) return status;
    if (absl::Status status = target.MoveTo(position); !status.ok()) return status;
    // A piece begins at the block with the first data of either side and ends with that data. A
    // side whose next data begins after it is a hole there: zeros that need not be read.
    const bool base_first = base.begin() < target.begin();
    const uint64_t data = base_first ? base.begin() : target.begin();
    if (data >= end) break;
    const uint64_t piece = position + AlignDown(data - position, block_size);
    const uint64_t data_end = base_first ? base.end() : target.end();
    const uint64_t limit = std::min(end, piece + kPieceBytes);
    const uint64_t piece_end =
        data_end >= limit ? limit : std::min(limit, piece + AlignUp(data_end - piece, block_size));
    const auto length = static_cast<size_t>(piece_end - piece);
    const uint64_t wanted = std::min(end, piece + kAheadInChunk);
    if (asked < wanted && cold != nullptr && cold->load(std::memory_order_relaxed)) {
      if (!ahead.has_value()) ahead.emplace(pair);
      ahead->Ask(std::max(asked, piece), wanted);
      asked = wanted;
    }
    const bool read_base = base.begin() < piece_end;
    const bool read_target = target.begin() < piece_end;
    if (read_base) {
      absl::Status status = pair.base->Read(piece, length, buffers.base());
      if (!status.ok()) return status;
    }
    if (read_target) {
      absl::Status status = pair.target->Read(piece, length, buffers.target());
      if (!status.ok()) return status;
    }
    watch.Update();
    if (read_base && read_target) {
      kernels.compare(buffers.base(), buffers.target(), length, block_size, bits.data());
    } else {
      kernels.nonzero(read_base ? buffers.base() : buffers.target(), length, block_size,
                      bits.data());
    }
    const uint64_t first = (piece - begin) / block_size;
    const uint64_t count = BlockCount(length, block_size);
    for (uint64_t k = 0; k < count; ++k) {
      const uint64_t bit = bits[static_cast<size_t>(k / 64)] >> (k % 64) & 1;
      changed[static_cast<size_t>((first + k) / 64)] |= bit << ((first + k) % 64);
    }
    position = piece_end;
  }
  return absl::OkStatus();
}

}  // namespace cbt
