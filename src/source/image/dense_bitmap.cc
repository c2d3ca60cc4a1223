#include "cbt/source/dense_bitmap.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Bits read at once: one MiB of them.
constexpr uint64_t kWindowBits = uint64_t{8} << 20;

// The bytes of a file that hold the volume's bits: [begin, end), in whole words.
struct Place {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t first_bit = 0;  // from `begin` on
};

absl::StatusOr<Place> Locate(const DenseBitmapLayout& layout, uint64_t capacity) {
  if (absl::Status status =
          CheckGeometry({.capacity = capacity, .granularity = layout.granularity});
      !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("dense bitmap: ", status.message()));
  }
  const uint64_t word = layout.format.reversed_word_bytes;
  if (word != 1 && word != 2 && word != 4 && word != 8) {
    return absl::InvalidArgumentError(absl::StrCat("dense bitmap: words of ", word, " bytes"));
  }
  const uint64_t bits = BlockCount(capacity, layout.granularity);
  // Small enough that sums can't overflow.
  constexpr uint64_t kFurthest = kMaxCapacity / 4;
  if (layout.header_bytes > kFurthest || layout.first_bit > kFurthest || bits > kFurthest) {
    return absl::InvalidArgumentError("dense bitmap: the first bit lies too far back");
  }
  Place place;
  place.begin = layout.header_bytes + layout.first_bit / (8 * word) * word;
  place.first_bit = layout.first_bit % (8 * word);
  place.end = place.begin + (place.first_bit + bits + 8 * word - 1) / (8 * word) * word;
  return place;
}

absl::Status TooShort(const std::string& label, uint64_t has, uint64_t needs) {
  return absl::InvalidArgumentError(
      absl::StrCat(label, ": has ", has, " bytes, the volume's bits end at byte ", needs));
}

class DenseFileCursor final : public ExtentCursor {
 public:
  DenseFileCursor(std::shared_ptr<const Image> file, const DenseBitmapLayout& layout,
                  const Place& place, uint64_t capacity)
      : ExtentCursor({.capacity = capacity, .granularity = layout.granularity}),
        file_(std::move(file)),
        format_(layout.format),
        place_(place),
        bits_(BlockCount(capacity, layout.granularity)),
        runs_(capacity, layout.granularity) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    const uint64_t bit = offset / granularity();
    window_ = window_end_ = bit;
    words_.clear();
    used_ = 0;
    runs_.Reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    bool loaded = false;
    while (!batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (used_ < words_.size()) {
        const auto* const words = reinterpret_cast<const uint8_t*>(words_.data() + used_);
        used_ += runs_.Scan(simd::ExtractRuns().single, words, words, words_.size() - used_,
                            window_ + used_ * 64, batch);
      } else if (window_end_ == bits_) {
        runs_.Close(bits_, batch);
        break;
      } else if (loaded) {
        break;  // one window per call, so that callers can check for cancellation
      } else {
        if (absl::Status status = Load(); !status.ok()) return status;
        loaded = true;
      }
    }
    const uint64_t scanned = std::min(window_end_, window_ + used_ * 64);
    if (pieces_allowed()) runs_.ClosePiece(scanned, batch);
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    if (scanned < bits_) return scanned * granularity();
    if (absl::Status status = file_->CheckUnchanged(); !status.ok()) return status;
    return capacity();
  }

  // Loads the next window: whole words, except the last one, whose missing bits end a run.
  absl::Status Load() {
    window_ = window_end_;
    window_end_ = std::min(bits_, window_ + kWindowBits);
    used_ = 0;
    const uint64_t word = format_.reversed_word_bytes;
    const uint64_t first = place_.first_bit + window_;
    const uint64_t begin = first / (8 * word) * word;
    const uint64_t last = place_.first_bit + window_end_;
    const uint64_t end = (last + 8 * word - 1) / (8 * word) * word;
    bytes_.resize(static_cast<size_t>(end - begin));
    absl::Status status = file_->Read(place_.begin + begin, bytes_.size(), bytes_.data());
    if (!status.ok()) return status;
    const absl::StatusOr<BitmapView> view =
        BitmapView::Create(bytes_, first - begin * 8, window_end_ - window_, format_);
    if (!view.ok()) return view.status();
    words_.resize(static_cast<size_t>((window_end_ - window_ + 63) / 64));
    view->CopyWords(0, words_.data(), words_.size());
    return absl::OkStatus();
  }

  const std::shared_ptr<const Image> file_;
  const BitmapFormat format_;
  const Place place_;
  const uint64_t bits_;
  RunAssembler runs_;
  std::vector<uint8_t> bytes_;
  std::vector<uint64_t> words_;  // of the window [window_, window_end_), in bits
  uint64_t window_ = 0;
  uint64_t window_end_ = 0;
  size_t used_ = 0;  // number of words in use
};

// At most `bytes` bytes from the rest of `stream`.
absl::StatusOr<std::string> ReadUpTo(ByteStream& stream, uint64_t bytes) {
  std::string text;
  constexpr size_t kStep = kMiB;
  while (text.size() < bytes) {
    const size_t there = text.size();
    text.resize(there + static_cast<size_t>(std::min<uint64_t>(kStep, bytes - there)));
    const absl::StatusOr<size_t> count =
        stream.Read({reinterpret_cast<uint8_t*>(text.data()) + there, text.size() - there});
    if (!count.ok()) return count.status();
    text.resize(there + *count);
    if (*count == 0) break;
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeDenseBitmapCursor(
    std::shared_ptr<const Image> file, const DenseBitmapLayout& layout, uint64_t capacity) {
  if (file == nullptr) return absl::InvalidArgumentError("dense bitmap: no file");
  const absl::StatusOr<Place> place = Locate(layout, capacity);
  if (!place.ok()) return place.status();
  if (file->size() < place->end) return TooShort(file->label(), file->size(), place->end);
  return std::make_unique<DenseFileCursor>(std::move(file), layout, *place, capacity);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> ReadDenseBitmap(ByteStream& stream, bool base64,
                                                              const DenseBitmapLayout& layout,
                                                              uint64_t capacity) {
  const absl::StatusOr<Place> place = Locate(layout, capacity);
  if (!place.ok()) return place.status();
  std::string text;
  uint64_t skipped = 0;
  if (base64) {
    // Four characters per three bytes, and as much again for white space and for what follows.
    absl::StatusOr<std::string> encoded = ReadUpTo(stream, place->end / 3 * 8 + 4096);
    if (!encoded.ok()) return encoded.status();
    if (!absl::Base64Unescape(*encoded, &text)) {
      return absl::DataLossError(absl::StrCat(stream.label(), ": invalid base64"));
    }
  } else {
    skipped = place->begin;
    if (absl::Status status = stream.Skip(skipped); !status.ok()) return status;
    absl::StatusOr<std::string> bytes = ReadUpTo(stream, place->end - skipped);
    if (!bytes.ok()) return bytes.status();
    text = *std::move(bytes);
  }
  if (skipped + text.size() < place->end) {
    return TooShort(stream.label(), skipped + text.size(), place->end);
  }
  const auto from = text.begin() + static_cast<std::ptrdiff_t>(place->begin - skipped);
  const auto to = text.begin() + static_cast<std::ptrdiff_t>(place->end - skipped);
  std::vector<uint8_t> bytes(from, to);
  absl::StatusOr<Bitmap> bitmap = Bitmap::Create(
      std::move(bytes), place->first_bit, BlockCount(capacity, layout.granularity), layout.format);
  if (!bitmap.ok()) return bitmap.status();
  return MakeBitmapCursor(*bitmap, {.capacity = capacity, .granularity = layout.granularity});
}

}  // namespace cbt
