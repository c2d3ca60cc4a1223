#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Bits scanned in one Next() at most: a quiet bitmap of 2^34 blocks is passed in some hundred
// calls, so that callers can look for cancellation every few hundred microseconds.
constexpr uint64_t kWordsPerCall = uint64_t{1} << 20;

// Words copied at a time where a view can't be read in place.
constexpr size_t kScratchWords = 256;

class BitmapCursor final : public ExtentCursor {
 public:
  // `a` alone when `binary` is false.
  BitmapCursor(const BitmapView& a, const BitmapView& b, bool binary, simd::ExtractRunsFn* scan,
               uint64_t capacity, uint64_t granularity) noexcept
      : ExtentCursor(capacity, granularity),
        a_(a),
        b_(b),
        binary_(binary),
        scan_(scan),
        runs_(capacity, granularity) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset / granularity();
    runs_.Reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const uint64_t bits = a_.bit_count();
    uint64_t budget = kWordsPerCall;
    while (budget > 0 && !batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (position_ >= bits) {
        runs_.CloseAtCapacity(batch);
        return capacity();
      } else {
        budget -= std::min(budget, Scan(budget, batch));
      }
    }
    // What is not pending has been told up to position_. The product could wrap only in the last
    // word.
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    return position_ < bits ? position_ * granularity() : capacity();
  }

  // Scans on from position_ into `batch`; returns the words consumed.
  uint64_t Scan(uint64_t max_words, ExtentBatch& batch) noexcept {
    const uint64_t bits = a_.bit_count();
    const uint64_t whole = std::min<uint64_t>((bits - position_) / 64, max_words);
    const uint8_t* in_place_a = a_.InPlace(position_, whole);
    const uint8_t* in_place_b = binary_ ? b_.InPlace(position_, whole) : in_place_a;
    size_t done;
    if (whole > 0 && in_place_a != nullptr && in_place_b != nullptr) {
      done =
          runs_.Scan(scan_, in_place_a, in_place_b, static_cast<size_t>(whole), position_, batch);
    } else {
      // Views that start inside a byte, and the last partial word, whose missing bits are clear: a
      // run that reaches the end is closed by them, at most 63 blocks past it, and cut there.
      const size_t words =
          static_cast<size_t>(std::min<uint64_t>((bits - position_ + 63) / 64, kScratchWords));
      std::array<uint64_t, kScratchWords> words_a;
      std::array<uint64_t, kScratchWords> words_b;
      a_.CopyWords(position_, words_a.data(), words);
      if (binary_) b_.CopyWords(position_, words_b.data(), words);
      done = runs_.Scan(scan_, reinterpret_cast<const uint8_t*>(words_a.data()),
                        reinterpret_cast<const uint8_t*>(words_b.data()), words, position_, batch);
    }
    position_ += uint64_t{done} * 64;
    return done;
  }

  const BitmapView a_;
  const BitmapView b_;
  const bool binary_;
  simd::ExtractRunsFn* const scan_;
  RunAssembler runs_;
  uint64_t position_ = 0;  // the next bit to scan
};

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

simd::ExtractRunsFn* Kernel(BitmapOp op) noexcept {
  const simd::ExtractRunsKernels& kernels = simd::ExtractRuns();
  switch (op) {
    case BitmapOp::kXor:
      return kernels.exclusive;
    case BitmapOp::kAndNot:
      return kernels.and_not;
    case BitmapOp::kOr:
      return kernels.either;
    case BitmapOp::kAnd:
      return kernels.both;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& bitmap,
                                                               uint64_t capacity,
                                                               uint64_t granularity) {
  if (absl::Status status = CheckBits(bitmap, capacity, granularity); !status.ok()) return status;
  return std::make_unique<BitmapCursor>(bitmap, bitmap, false, simd::ExtractRuns().single, capacity,
                                        granularity);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const BitmapView& base,
                                                               const BitmapView& target,
                                                               BitmapOp op, uint64_t capacity,
                                                               uint64_t granularity) {
  if (absl::Status status = CheckBits(base, capacity, granularity); !status.ok()) return status;
  if (absl::Status status = CheckBits(target, capacity, granularity); !status.ok()) return status;
  simd::ExtractRunsFn* const scan = Kernel(op);
  if (scan == nullptr) return absl::InvalidArgumentError("unknown bitmap operation");
  return std::make_unique<BitmapCursor>(base, target, true, scan, capacity, granularity);
}

}  // namespace cbt
