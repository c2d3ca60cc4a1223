// One bitmap, or two that a kernel combines, as a stream of words.
#ifndef CBT_CORE_BITMAP_PAIR_H_
#define CBT_CORE_BITMAP_PAIR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "cbt/bitmap.h"

namespace cbt {

// The input of kernels: the bits of `a`, or of `a` and `b` at the same positions.
class BitmapPair {
 public:
  explicit BitmapPair(const BitmapView& a) noexcept : a_(a), binary_(false) {}
  BitmapPair(const BitmapView& a, const BitmapView& b) noexcept : a_(a), b_(b), binary_(true) {}

  uint64_t bit_count() const noexcept { return a_.bit_count(); }

  BitmapPair Slice(uint64_t begin, uint64_t end) const noexcept {
    return binary_ ? BitmapPair(a_.Slice(begin, end), b_.Slice(begin, end))
                   : BitmapPair(a_.Slice(begin, end));
  }

  // Calls use(a, b, words) for at most `max_words` words from bit `position` < bit_count() on, in
  // place if possible, otherwise in copies of at most kScratchWords. Bits past the end are 0.
  // Returns the result of `use`.
  template <typename Use>
  auto WithWords(uint64_t position, uint64_t max_words, Use use) const noexcept {
    const uint64_t bits = bit_count() - position;
    const uint64_t whole = std::min<uint64_t>(bits / 64, max_words);
    const uint8_t* const in_place_a = a_.InPlace(position, whole);
    const uint8_t* const in_place_b = binary_ ? b_.InPlace(position, whole) : in_place_a;
    if (whole > 0 && in_place_a != nullptr && in_place_b != nullptr) {
      return use(in_place_a, in_place_b, static_cast<size_t>(whole));
    }
    // Other formats, views that start inside a byte, and the last partial word.
    const auto words = static_cast<size_t>(
        std::min<uint64_t>({(bits + 63) / 64, max_words, uint64_t{kScratchWords}}));
    std::array<uint64_t, kScratchWords> words_a;
    std::array<uint64_t, kScratchWords> words_b;
    a_.CopyWords(position, words_a.data(), words);
    if (binary_) b_.CopyWords(position, words_b.data(), words);
    return use(reinterpret_cast<const uint8_t*>(words_a.data()),
               reinterpret_cast<const uint8_t*>(words_b.data()), words);
  }

  // Calls use(a, b, 1) for the word that begins at `position` rounded down to a byte, with the bits
  // before `position` cleared. Words after it can be read in place.
  template <typename Use>
  auto WithFirstWord(uint64_t position, Use use) const noexcept {
    const uint64_t begin = position / 8 * 8;
    const uint64_t mask = ~uint64_t{0} << (position - begin);
    uint64_t word_a;
    uint64_t word_b = 0;
    a_.CopyWords(begin, &word_a, 1);
    if (binary_) b_.CopyWords(begin, &word_b, 1);
    word_a &= mask;
    word_b &= mask;
    return use(reinterpret_cast<const uint8_t*>(&word_a), reinterpret_cast<const uint8_t*>(&word_b),
               size_t{1});
  }

 private:
  static constexpr size_t kScratchWords = 256;

  BitmapView a_;
  BitmapView b_;
  bool binary_;
};

// The function for `op` in a kernel table (extract_runs, count_bits); null if `op` is not a valid
// enumerator.
template <typename Kernels>
auto* KernelFor(const Kernels& kernels, BitmapOp op) noexcept {
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
  return static_cast<decltype(kernels.both)>(nullptr);
}

// INVALID_ARGUMENT unless `bitmap` has exactly one bit per block of the volume.
absl::Status CheckBits(const BitmapView& bitmap, uint64_t capacity, uint64_t granularity);

}  // namespace cbt

#endif  // CBT_CORE_BITMAP_PAIR_H_
