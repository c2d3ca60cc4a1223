#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Reverses the bytes of each word of `word` bytes.
uint64_t ReverseWords(uint64_t bits, size_t word) noexcept {
  constexpr uint64_t kLow = 0x0000ffff0000ffffu;
  bits = __builtin_bswap64(bits);
  if (word < 8) bits = bits >> 32 | bits << 32;
  if (word < 4) bits = (bits >> 16 & kLow) | (bits & kLow) << 16;
  return bits;
}

// Copies bytes [begin, begin + count) of a bitmap whose words of 2, 4 or 8 bytes are byte-reversed.
void CopyReversed(const uint8_t* bytes, size_t word, uint64_t begin, size_t count,
                  uint8_t* out) noexcept {
  size_t i = 0;
  for (; i < count && (begin + i) % word != 0; ++i) out[i] = bytes[(begin + i) ^ (word - 1)];
  for (; count - i >= 8; i += 8) {
    uint64_t bits;
    std::memcpy(&bits, bytes + begin + i, sizeof(bits));
    bits = ReverseWords(bits, word);
    std::memcpy(out + i, &bits, sizeof(bits));
  }
  for (; i < count; ++i) out[i] = bytes[(begin + i) ^ (word - 1)];
}

}  // namespace

absl::StatusOr<BitmapView> BitmapView::Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                              uint64_t bit_count, BitmapFormat format) {
  const size_t word = format.reversed_word_bytes;
  if (word != 1 && word != 2 && word != 4 && word != 8) {
    return absl::InvalidArgumentError(absl::StrCat("bitmap words of ", word, " bytes"));
  }
  const uint64_t bits = uint64_t{bytes.size() / word * word} * 8;
  if (first_bit > bits || bit_count > bits - first_bit) {
    return absl::InvalidArgumentError(absl::StrCat("bitmap of ", bytes.size(),
                                                   " bytes is too short for ", bit_count,
                                                   " bits from bit ", first_bit));
  }
  return BitmapView(bytes.data(), first_bit, bit_count, format);
}

BitmapView BitmapView::Slice(uint64_t begin, uint64_t end) const noexcept {
  return BitmapView(bytes_, first_bit_ + begin, end - begin, format_);
}

absl::StatusOr<Bitmap> Bitmap::Create(SharedBytes bytes, uint64_t first_bit, uint64_t bit_count,
                                      BitmapFormat format) {
  const absl::StatusOr<BitmapView> view =
      BitmapView::Create(bytes.bytes(), first_bit, bit_count, format);
  if (!view.ok()) return view.status();
  return Bitmap(bytes.owner(), *view);
}

Bitmap Bitmap::Slice(uint64_t begin, uint64_t end) const {
  return Bitmap(owner_, view_.Slice(begin, end));
}

void BitmapView::CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept {
  const simd::LoadBitsKernels& kernels = simd::LoadBits();
  const bool reverse = format_.order == BitmapFormat::BitOrder::kMostSignificantFirst;
  const uint64_t bit = first_bit_ + position;
  const uint64_t rest = bit_count_ - position;
  const auto shift = static_cast<unsigned>(bit % 8);
  const size_t word = format_.reversed_word_bytes;
  if (word > 1) {
    // Through the kernel too, in pieces that stay in the first-level cache.
    constexpr size_t kPieceWords = 64;
    uint8_t piece[kPieceWords * 8 + 1];
    for (size_t done = 0; done < words; done += kPieceWords) {
      const size_t count = std::min(kPieceWords, words - done);
      const uint64_t there = rest > done * 64 ? rest - done * 64 : 0;
      const auto bits = static_cast<size_t>(std::min<uint64_t>(there, count * 64));
      const size_t filled = bits == 0 ? 0 : (shift + bits + 7) / 8;
      CopyReversed(bytes_, word, bit / 8 + done * 8, filled, piece);
      std::memset(piece + filled, 0, sizeof(piece) - filled);
      kernels.load(piece, shift, reverse, format_.inverted, out + done, count);
      // Inversion set the bits of the piece that lie past the end.
      if (bits < count * 64) {
        if (bits % 64 != 0) out[done + bits / 64] &= (uint64_t{1} << bits % 64) - 1;
        const size_t first_empty = (bits + 63) / 64;
        std::memset(out + done + first_empty, 0, (count - first_empty) * sizeof(*out));
      }
    }
    return;
  }
  // Words entirely inside the view; the ninth byte that a shift reads is inside it too.
  const auto whole = static_cast<size_t>(std::min<uint64_t>(rest / 64, words));
  if (whole > 0) kernels.load(bytes_ + bit / 8, shift, reverse, format_.inverted, out, whole);
  if (whole == words) return;
  std::memset(out + whole, 0, (words - whole) * sizeof(*out));
  const auto bits = static_cast<unsigned>(rest % 64);
  if (bits == 0) return;
  // The last bits, from a copy of their bytes: never read a byte outside the view.
  uint8_t bytes[9] = {};
  std::memcpy(bytes, bytes_ + bit / 8 + whole * 8, (shift + bits + 7) / 8);
  kernels.load(bytes, shift, reverse, format_.inverted, out + whole, 1);
  out[whole] &= (uint64_t{1} << bits) - 1;
}

const uint8_t* BitmapView::InPlace(uint64_t position, uint64_t words) const noexcept {
  const uint64_t bit = first_bit_ + position;
  if (bit % 8 != 0 || position > bit_count_ || words > (bit_count_ - position) / 64 ||
      format_ != BitmapFormat{}) {
    return nullptr;
  }
  return bytes_ + bit / 8;
}

}  // namespace cbt
