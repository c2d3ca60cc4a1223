// One bitmap, or two that a kernel combines, as a stream of words.
#ifndef CBT_CORE_BITMAP_PAIR_H_
#define CBT_CORE_BITMAP_PAIR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "cbt/bitmap.h"
#include "simd/extract_runs.h"

namespace cbt {

// The input of kernels: the bits of `a`, or of `a` and `b` at the same positions.
class BitmapPair {
 public:
  explicit BitmapPair(const BitmapView& a) noexcept : BitmapPair(a, a, false) {}
  BitmapPair(const BitmapView& a, const BitmapView& b) noexcept : BitmapPair(a, b, true) {}

  uint64_t bit_count() const noexcept { return a_.bit_count(); }

  BitmapPair Slice(uint64_t begin, uint64_t end) const noexcept {
    return {a_.Slice(begin, end), b_.Slice(begin, end), binary_};
  }

  // Calls use(a, b, groups) for at most `max_groups` groups of `group` words (a divisor of
  // kScratchWords) from bit `position` < bit_count() on, in place if possible, otherwise in copies
  // of at most kScratchWords. Bits past the end are 0. Returns the result of `use`.
  template <typename Use>
  auto WithGroups(uint64_t position, size_t group, uint64_t max_groups, Use use) const noexcept {
    return WithGroupsInLayout(
        position, group, max_groups,
        [&](const uint8_t* a, const uint8_t* b, size_t groups, const simd::BitLayout*) {
          return use(a, b, groups);
        },
        plain_);
  }

  // WithGroups() for single words.
  template <typename Use>
  auto WithWords(uint64_t position, uint64_t max_words, Use use) const noexcept {
    return WithGroups(position, 1, max_words, use);
  }

  // The same with use(a, b, words, layout): the words may be in place in a layout, which is null if
  // it is the default.
  template <typename Use>
  auto WithWordsInLayout(uint64_t position, uint64_t max_words, Use use) const noexcept {
    return WithGroupsInLayout(position, 1, max_words, use, alike_);
  }

  // How many bits before `position` the words begin that can be read in place, at most 63; 0 if
  // none can.
  unsigned PastUnit(uint64_t position) const noexcept {
    return alike_ ? static_cast<unsigned>((a_.first_bit_ + position) % unit_bits_) : 0;
  }

  // Calls use(a, b, 1) for a word, in the default layout, that begins PastUnit(position) bits
  // before `position`, with those bits cleared. Words after it can be read in place.
  template <typename Use>
  auto WithFirstWord(uint64_t position, Use use) const noexcept {
    const unsigned before = PastUnit(position);
    uint64_t word_a;
    uint64_t word_b = 0;
    a_.CopyWords(position, &word_a, 1);
    if (binary_) b_.CopyWords(position, &word_b, 1);
    word_a <<= before;
    word_b <<= before;
    return use(reinterpret_cast<const uint8_t*>(&word_a), reinterpret_cast<const uint8_t*>(&word_b),
               size_t{1});
  }

  // Calls use(a, b, 1) for the group of `group` words that begins at `position` rounded down to a
  // multiple of 8, with the bits before `position` cleared.
  template <typename Use>
  auto WithFirstGroup(uint64_t position, size_t group, Use use) const noexcept {
    const uint64_t begin = position / 8 * 8;
    const uint64_t mask = ~uint64_t{0} << (position - begin);
    std::array<uint64_t, kScratchWords> words_a;
    std::array<uint64_t, kScratchWords> words_b;
    words_b[0] = 0;
    a_.CopyWords(begin, words_a.data(), group);
    if (binary_) b_.CopyWords(begin, words_b.data(), group);
    words_a[0] &= mask;
    words_b[0] &= mask;
    return use(reinterpret_cast<const uint8_t*>(words_a.data()),
               reinterpret_cast<const uint8_t*>(words_b.data()), size_t{1});
  }

 private:
  static constexpr size_t kScratchWords = 1024;

  BitmapPair(const BitmapView& a, const BitmapView& b, bool binary) noexcept
      : a_(a),
        b_(b),
        binary_(binary),
        unit_bits_(8u * a.format_.reversed_word_bytes),
        alike_(a.format_.order == b.format_.order &&
               a.format_.reversed_word_bytes == b.format_.reversed_word_bytes &&
               a.first_bit_ % unit_bits_ == b.first_bit_ % unit_bits_),
        plain_(alike_ && a.format_ == BitmapFormat{} && b.format_ == BitmapFormat{}),
        layout_{a.format_.order == BitmapFormat::BitOrder::kMostSignificantFirst,
                a.format_.reversed_word_bytes, a.format_.inverted ? ~uint64_t{0} : 0,
                b.format_.inverted ? ~uint64_t{0} : 0} {}

  template <typename Use>
  auto WithGroupsInLayout(uint64_t position, size_t group, uint64_t max_groups, Use use,
                          bool in_place) const noexcept {
    const uint64_t bits = bit_count() - position;
    const uint64_t whole = std::min<uint64_t>(bits / 64 / group, max_groups);
    if (in_place && whole > 0 && PastUnit(position) == 0) {
      return use(a_.bytes_ + (a_.first_bit_ + position) / 8,
                 b_.bytes_ + (b_.first_bit_ + position) / 8, static_cast<size_t>(whole),
                 plain_ ? nullptr : &layout_);
    }
    const auto groups = static_cast<size_t>(std::min<uint64_t>(
        {BlockCount(bits, 64 * group), max_groups, uint64_t{kScratchWords / group}}));
    std::array<uint64_t, kScratchWords> words_a;
    std::array<uint64_t, kScratchWords> words_b;
    const uint8_t* const a = WordsOf(a_, position, groups * group, words_a.data());
    const uint8_t* const b = binary_ ? WordsOf(b_, position, groups * group, words_b.data()) : a;
    return use(a, b, groups, static_cast<const simd::BitLayout*>(nullptr));
  }

  // In place if they lie in the default layout, otherwise copied.
  static const uint8_t* WordsOf(const BitmapView& bits, uint64_t position, size_t words,
                                uint64_t* copy) noexcept {
    if (const uint8_t* const there = bits.InPlace(position, words); there != nullptr) return there;
    bits.CopyWords(position, copy, words);
    return reinterpret_cast<const uint8_t*>(copy);
  }

  BitmapView a_;
  BitmapView b_;
  bool binary_;
  unsigned unit_bits_;  // words in place begin at multiples of this
  bool alike_;          // the words of both lie alike, but for inversion
  bool plain_;          // ... in the default format
  simd::BitLayout layout_;
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
absl::Status CheckBits(const BitmapView& bitmap, const VolumeGeometry& geometry);

}  // namespace cbt

#endif  // CBT_CORE_BITMAP_PAIR_H_
