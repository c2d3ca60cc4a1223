#include <cstring>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"

namespace cbt {

absl::StatusOr<BitmapView> BitmapView::Create(std::span<const uint8_t> bytes, uint64_t first_bit,
                                              uint64_t bit_count) {
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  if (first_bit > bits || bit_count > bits - first_bit) {
    return absl::InvalidArgumentError(absl::StrCat("bitmap of ", bytes.size(),
                                                   " bytes is too short for ", bit_count,
                                                   " bits from bit ", first_bit));
  }
  return BitmapView(bytes.data(), first_bit, bit_count);
}

void BitmapView::CopyWords(uint64_t position, uint64_t* out, size_t words) const noexcept {
  uint64_t rest = bit_count_ - position;
  uint64_t bit = first_bit_ + position;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t wanted = rest < 64 ? rest : 64;
    uint64_t word = 0;
    if (wanted != 0) {
      // Nine bytes hold 64 bits at any offset; never touch one that holds none of ours.
      const uint8_t* from = bytes_ + bit / 8;
      const unsigned shift = static_cast<unsigned>(bit % 8);
      const size_t span = static_cast<size_t>((shift + wanted + 7) / 8);
      std::memcpy(&word, from, span < 8 ? span : 8);
      word >>= shift;
      if (span == 9) word |= uint64_t{from[8]} << (64 - shift);
      if (wanted < 64) word &= (uint64_t{1} << wanted) - 1;
    }
    out[i] = word;
    bit += wanted;
    rest -= wanted;
  }
}

const uint8_t* BitmapView::InPlace(uint64_t position, uint64_t words) const noexcept {
  const uint64_t bit = first_bit_ + position;
  if (bit % 8 != 0 || position > bit_count_ || words > (bit_count_ - position) / 64) return nullptr;
  return bytes_ + bit / 8;
}

}  // namespace cbt
