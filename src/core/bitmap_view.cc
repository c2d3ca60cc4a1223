#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "simd/kernels.h"

namespace cbt {

absl::StatusOr<BitmapView> BitmapView::Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                              uint64_t bit_count, BitmapFormat format) {
  const uint64_t bits = uint64_t{bytes.size()} * 8;
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

void BitmapView::CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept {
  const simd::LoadBitsKernels& kernels = simd::LoadBits();
  const bool reverse = format_.order == BitmapFormat::BitOrder::kMostSignificantFirst;
  const uint64_t bit = first_bit_ + position;
  const uint64_t rest = bit_count_ - position;
  const auto shift = static_cast<unsigned>(bit % 8);
  // Words that lie in the view as a whole: with them lies the ninth byte that a shift needs.
  const auto whole = static_cast<size_t>(std::min<uint64_t>(rest / 64, words));
  if (whole > 0) kernels.load(bytes_ + bit / 8, shift, reverse, format_.inverted, out, whole);
  if (whole == words) return;
  std::memset(out + whole, 0, (words - whole) * sizeof(*out));
  const auto bits = static_cast<unsigned>(rest % 64);
  if (bits == 0) return;
  // The last bits, from a copy of the bytes that hold them: never touch one that holds none.
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
