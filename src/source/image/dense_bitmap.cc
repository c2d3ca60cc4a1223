#include "cbt/source/dense_bitmap.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"
#include "source/image/partclone.h"
#include "source/input/derived_inputs.h"

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

// Where a cursor's bits come from.
class BitSource {
 public:
  virtual ~BitSource() = default;
  BitSource(const BitSource&) = delete;
  BitSource& operator=(const BitSource&) = delete;

  // Reads the bytes from `offset` on, counted from the one with the volume's first bit.
  virtual absl::Status Read(uint64_t offset, std::span<uint8_t> out) = 0;
  // Whether all that was read belongs together.
  virtual absl::Status Check() = 0;

 protected:
  BitSource() = default;
};

class FileBits final : public BitSource {
 public:
  FileBits(std::shared_ptr<const Image> file, uint64_t begin)
      : file_(std::move(file)), begin_(begin) {}
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    return file_->Read(begin_ + offset, out.size(), out.data());
  }
  absl::Status Check() override { return file_->CheckUnchanged(); }

 private:
  const std::shared_ptr<const Image> file_;
  const uint64_t begin_;
};

// Read once, from the front.
class StreamBits final : public BitSource {
 public:
  // `stream`: at the volume's first bit, which is byte `begin` of the input. Ends at `end`.
  StreamBits(ByteStream& stream, const Place& place) : stream_(stream), place_(place) {}
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    // Windows share the word in which one ends and the next begins.
    if (offset > done_ || done_ - offset > tail_.size()) {
      return absl::InternalError("dense bitmap: a stream is read in order");
    }
    const auto again = std::min(static_cast<size_t>(done_ - offset), out.size());
    std::copy_n(tail_.end() - static_cast<std::ptrdiff_t>(done_ - offset), again, out.begin());
    for (std::span<uint8_t> rest = out.subspan(again); !rest.empty();) {
      const absl::StatusOr<size_t> count = stream_.Read(rest);
      if (!count.ok()) return count.status();
      if (*count == 0) return TooShort(stream_.label(), place_.begin + done_, place_.end);
      crc_ = Crc32(crc_, rest.first(*count));
      done_ += *count;
      rest = rest.subspan(*count);
    }
    const std::span<uint8_t> last = out.last(std::min(out.size(), kLongestWord));
    tail_.assign(last.begin(), last.end());
    return absl::OkStatus();
  }
  absl::Status Check() override { return absl::OkStatus(); }

  // The checksum of all bytes that were read, as partclone computes it.
  uint32_t crc() const noexcept { return crc_; }

 private:
  ByteStream& stream_;
  const Place place_;
  static constexpr size_t kLongestWord = 8;
  uint64_t done_ = 0;
  std::vector<uint8_t> tail_;  // of what was read
  uint32_t crc_ = kCrc32Begin;
};

class DenseCursor final : public ExtentCursor {
 public:
  DenseCursor(std::shared_ptr<BitSource> source, const DenseBitmapLayout& layout,
              const Place& place, uint64_t capacity)
      : ExtentCursor({.capacity = capacity, .granularity = layout.granularity}),
        source_(std::move(source)),
        format_(layout.format),
        first_bit_(place.first_bit),
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
    if (absl::Status status = source_->Check(); !status.ok()) return status;
    return capacity();
  }

  // Loads the next window: whole words, except the last one, whose missing bits end a run.
  absl::Status Load() {
    window_ = window_end_;
    const uint64_t first = first_bit_ + window_;
    window_end_ = std::min(bits_, window_ + kWindowBits);
    used_ = 0;
    const uint64_t word = format_.reversed_word_bytes;
    const uint64_t begin = first / (8 * word) * word;
    const uint64_t last = first_bit_ + window_end_;
    const uint64_t end = (last + 8 * word - 1) / (8 * word) * word;
    bytes_.resize(static_cast<size_t>(end - begin));
    absl::Status status = source_->Read(begin, bytes_);
    if (!status.ok()) return status;
    const absl::StatusOr<BitmapView> view =
        BitmapView::Create(bytes_, first - begin * 8, window_end_ - window_, format_);
    if (!view.ok()) return view.status();
    words_.resize(static_cast<size_t>((window_end_ - window_ + 63) / 64));
    view->CopyWords(0, words_.data(), words_.size());
    return absl::OkStatus();
  }

  const std::shared_ptr<BitSource> source_;
  const BitmapFormat format_;
  const uint64_t first_bit_;
  const uint64_t bits_;
  RunAssembler runs_;
  std::vector<uint8_t> bytes_;
  std::vector<uint64_t> words_;  // of the window [window_, window_end_), in bits
  uint64_t window_ = 0;
  uint64_t window_end_ = 0;
  size_t used_ = 0;  // number of words in use
};

// The set bits of `stream`, which is at the volume's first one.
absl::StatusOr<ChangeMap> MapOf(std::shared_ptr<StreamBits> bits, const DenseBitmapLayout& layout,
                                const Place& place, uint64_t capacity) {
  DenseCursor cursor(std::move(bits), layout, place, capacity);
  return ChangeMap::FromCursor(cursor);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeDenseBitmapCursor(
    std::shared_ptr<const Image> file, const DenseBitmapLayout& layout, uint64_t capacity) {
  if (file == nullptr) return absl::InvalidArgumentError("dense bitmap: no file");
  const absl::StatusOr<Place> place = Locate(layout, capacity);
  if (!place.ok()) return place.status();
  if (file->size() < place->end) return TooShort(file->label(), file->size(), place->end);
  return std::make_unique<DenseCursor>(std::make_shared<FileBits>(std::move(file), place->begin),
                                       layout, *place, capacity);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> ReadDenseBitmap(ByteStream& stream, bool base64,
                                                              const DenseBitmapLayout& layout,
                                                              uint64_t capacity) {
  const absl::StatusOr<Place> place = Locate(layout, capacity);
  if (!place.ok()) return place.status();
  const std::unique_ptr<ByteStream> decoded = base64 ? MakeBase64Stream(stream) : nullptr;
  ByteStream& bytes = base64 ? *decoded : stream;
  if (absl::Status status = bytes.Skip(place->begin); !status.ok()) return status;
  const absl::StatusOr<ChangeMap> map =
      MapOf(std::make_shared<StreamBits>(bytes, *place), layout, *place, capacity);
  if (!map.ok()) return map.status();
  return MakeChangeMapCursor(*map);
}

absl::StatusOr<ChangeMap> ReadPartclone(ByteStream& stream) {
  std::array<uint8_t, kPartcloneHeaderBytes> bytes{};
  if (absl::Status status = stream.ReadAll(bytes); !status.ok()) return status;
  const absl::StatusOr<PartcloneHeader> header = ReadPartcloneHeader(bytes, stream.label());
  if (!header.ok()) return header.status();
  const VolumeGeometry whole = {.capacity = header->device_bytes,
                                .granularity = header->block_size};
  if (!header->has_bitmap) return ChangeMap::Full(whole);
  const DenseBitmapLayout layout = {.granularity = header->block_size};
  const uint64_t known = std::min(header->device_bytes, header->blocks * header->block_size);
  const absl::StatusOr<Place> place = Locate(layout, known);
  if (!place.ok()) return place.status();
  const auto bits = std::make_shared<StreamBits>(stream, *place);
  const absl::StatusOr<ChangeMap> map = MapOf(bits, layout, *place, known);
  if (!map.ok()) return map.status();
  std::array<uint8_t, 4> checksum{};
  if (absl::Status status = stream.ReadAll(checksum); !status.ok()) return status;
  if (LoadLittle(checksum) != bits->crc()) {
    return absl::DataLossError(
        absl::StrCat(stream.label(), ": the checksum of partclone's bitmap does not match"));
  }
  // What follows the file system on the device is not in the image.
  return WithCapacity(*map, whole.capacity);
}

}  // namespace cbt
