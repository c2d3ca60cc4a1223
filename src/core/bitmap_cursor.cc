// Cursors over the runs of set bits in one bitmap or in a combination of two.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "core/bitmap_pair.h"
#include "core/parallel_cursor.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// The most words that one Next() scans: an empty bitmap of 2^34 blocks takes a few hundred calls,
// so that callers can check for cancellation every few hundred microseconds.
constexpr uint64_t kWordsPerCall = uint64_t{1} << 20;

class BitmapCursor final : public ExtentCursor {
 public:
  // Reports nothing after the last bit of `bits`, which may have fewer bits than the volume has
  // blocks.
  BitmapCursor(const BitmapPair& bits, simd::ExtractRunsFn* scan, uint64_t capacity,
               uint64_t granularity) noexcept
      : ExtentCursor(capacity, granularity),
        bits_(bits),
        scan_(scan),
        runs_(capacity, granularity) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset / granularity();
    runs_.Reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const uint64_t end = bits_.bit_count();
    uint64_t budget = kWordsPerCall;
    while (budget > 0 && !batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (position_ >= end) {
        runs_.Close(end, batch);
        return capacity();
      } else {
        if (position_ % 8 != 0) {
          const uint64_t begin = position_ / 8 * 8;
          bits_.WithFirstWord(position_, [&](const uint8_t* a, const uint8_t* b, size_t count) {
            return runs_.Scan(scan_, a, b, count, begin, batch);
          });
          position_ = begin + 64;
          continue;
        }
        const uint64_t words = bits_.WithWords(
            position_, budget, [&](const uint8_t* a, const uint8_t* b, size_t count) {
              return uint64_t{runs_.Scan(scan_, a, b, count, position_, batch)};
            });
        // The missing bits of a partial last word are clear: they end a run that reaches the end.
        position_ += words * 64;
        budget -= std::min(budget, words);
      }
    }
    if (pieces_allowed()) runs_.ClosePiece(position_, batch);
    // Everything below position_ that is not pending has been returned. The product could wrap only
    // in the last word.
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    return position_ < end ? position_ * granularity() : capacity();
  }

  const BitmapPair bits_;
  simd::ExtractRunsFn* const scan_;
  RunAssembler runs_;
  uint64_t position_ = 0;  // the next bit to scan
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeCursor(const BitmapPair& bits,
                                                         simd::ExtractRunsFn* scan,
                                                         uint64_t capacity, uint64_t granularity,
                                                         const BitmapOptions& options) {
  if (scan == nullptr) return absl::InvalidArgumentError("unknown bitmap operation");
  if (options.parallel <= 1 || options.executor == nullptr) {
    return std::make_unique<BitmapCursor>(bits, scan, capacity, granularity);
  }
  ParallelParts parts;
  parts.make = [=](uint64_t end) {
    return std::make_unique<BitmapCursor>(bits.Slice(0, BlockCount(end, granularity)), scan,
                                          capacity, granularity);
  };
  return MakeParallelCursor(std::move(parts), capacity, granularity, *options.executor,
                            options.parallel);
}

}  // namespace

absl::Status CheckBits(const BitmapView& bitmap, uint64_t capacity, uint64_t granularity) {
  if (absl::Status status = CheckGeometry(capacity, granularity); !status.ok()) return status;
  const uint64_t blocks = BlockCount(capacity, granularity);
  if (bitmap.bit_count() != blocks) {
    return absl::InvalidArgumentError(absl::StrCat("bitmap has ", bitmap.bit_count(),
                                                   " bits, a volume of ", capacity, " bytes has ",
                                                   blocks, " blocks of ", granularity));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& bitmap,
                                                               uint64_t capacity,
                                                               uint64_t granularity,
                                                               const BitmapOptions& options) {
  if (absl::Status status = CheckBits(bitmap, capacity, granularity); !status.ok()) return status;
  return MakeCursor(BitmapPair(bitmap), simd::ExtractRuns().single, capacity, granularity, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& base,
                                                               const BitmapView& target,
                                                               BitmapOp op, uint64_t capacity,
                                                               uint64_t granularity,
                                                               const BitmapOptions& options) {
  if (absl::Status status = CheckBits(base, capacity, granularity); !status.ok()) return status;
  if (absl::Status status = CheckBits(target, capacity, granularity); !status.ok()) return status;
  return MakeCursor(BitmapPair(base, target), KernelFor(simd::ExtractRuns(), op), capacity,
                    granularity, options);
}

}  // namespace cbt
