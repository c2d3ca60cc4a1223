// Scalar reference of extract_runs, the list of its variants, and the choice between them.
#include "simd/extract_runs.h"

#include <cstring>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint64_t LoadWord(const uint8_t* bytes) noexcept {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// in_order(word) puts the bits of a word in ascending order.
template <typename WordAt, typename InOrder>
RunScan Scan(WordAt word_at, InOrder in_order, size_t words, uint64_t origin, unsigned shift,
             uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  size_t runs = 0;
  for (size_t i = 0; i < words; ++i) {
    if (runs >= room) return {i, runs, open};
    const uint64_t unordered = word_at(i);
    if (unordered == uint64_t{0} - open) continue;  // no edge, in any order
    const uint64_t word = in_order(unordered);
    uint64_t changes = word ^ (word << 1 | open);
    while (changes != 0) {
      const uint64_t bit = i * 64 + static_cast<uint64_t>(__builtin_ctzll(changes));
      const uint64_t offset = origin + (bit << shift);
      if (open != 0) {
        lengths[runs] = offset - offsets[runs];
        ++runs;
      } else {
        offsets[runs] = offset;
      }
      open ^= 1;
      changes &= changes - 1;
    }
  }
  return {words, runs, open};
}

uint64_t Single(uint64_t a, uint64_t) noexcept { return a; }
uint64_t Exclusive(uint64_t a, uint64_t b) noexcept { return a ^ b; }
uint64_t AndNot(uint64_t a, uint64_t b) noexcept { return b & ~a; }
uint64_t Either(uint64_t a, uint64_t b) noexcept { return a | b; }
uint64_t Both(uint64_t a, uint64_t b) noexcept { return a & b; }

// The word of `b` at `index`; of one bitmap, any word.
template <auto kOp>
uint64_t SecondWord(const uint8_t* a, const uint8_t* b, size_t index) noexcept {
  return LoadWord((kOp == &Single ? a : b) + index * 8);
}

template <auto kOp>
RunScan Plain(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
              uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return kOp(LoadWord(a + i * 8), SecondWord<kOp>(a, b, i)); },
              [](uint64_t word) { return word; }, words, origin, shift, open, offsets, lengths,
              room);
}

// The bits of a word in ascending order.
uint64_t InOrder(const BitLayout& layout, uint64_t word) noexcept {
  if (layout.most_significant_first) {
    constexpr uint64_t kOdd = 0x5555555555555555u;
    constexpr uint64_t kPairs = 0x3333333333333333u;
    constexpr uint64_t kNibbles = 0x0f0f0f0f0f0f0f0fu;
    word = (word >> 1 & kOdd) | (word & kOdd) << 1;
    word = (word >> 2 & kPairs) | (word & kPairs) << 2;
    word = (word >> 4 & kNibbles) | (word & kNibbles) << 4;
  }
  if (layout.reversed_word_bytes == 1) return word;
  // All bytes are reversed; then shorter words are moved back to their places.
  word = __builtin_bswap64(word);
  if (layout.reversed_word_bytes <= 4) word = word >> 32 | word << 32;
  if (layout.reversed_word_bytes == 2) {
    constexpr uint64_t kLow = 0x0000ffff0000ffffu;
    word = (word >> 16 & kLow) | (word & kLow) << 16;
  }
  return word;
}

template <auto kOp>
RunScan InLayout(const BitLayout& layout, const uint8_t* a, const uint8_t* b, size_t words,
                 uint64_t origin, unsigned shift, uint64_t open, uint64_t* offsets,
                 uint64_t* lengths, size_t room) noexcept {
  const auto in_order = [layout](uint64_t word) { return InOrder(layout, word); };
  if constexpr (kOp == &Single || kOp == &Exclusive) {
    // What inverts an operand inverts the result.
    const uint64_t flip = layout.flip_a ^ (kOp == &Exclusive ? layout.flip_b : 0);
    return Scan([=](size_t i) { return kOp(LoadWord(a + i * 8), SecondWord<kOp>(a, b, i)) ^ flip; },
                in_order, words, origin, shift, open, offsets, lengths, room);
  }
  const uint64_t flip_a = layout.flip_a;
  const uint64_t flip_b = layout.flip_b;
  return Scan(
      [=](size_t i) { return kOp(LoadWord(a + i * 8) ^ flip_a, LoadWord(b + i * 8) ^ flip_b); },
      in_order, words, origin, shift, open, offsets, lengths, room);
}

}  // namespace

const ExtractRunsKernels kExtractRuns = {
    {&Plain<Single>, &Plain<Exclusive>, &Plain<AndNot>, &Plain<Either>, &Plain<Both>},
    {&InLayout<Single>, &InLayout<Exclusive>, &InLayout<AndNot>, &InLayout<Either>,
     &InLayout<Both>}};

}  // namespace scalar

namespace {

// Long enough for every level's vector loop, its largest block and its tail, with empty and full
// stretches and words of every density.
bool KnownAnswer(const ExtractRunsKernels& candidate) noexcept {
  constexpr size_t kWords = 413;
  constexpr size_t kRoom = 2048;  // enough for most operations; the others must stop alike
  uint64_t a[kWords];
  uint64_t b[kWords];
  uint64_t want[2][kRoom + kRunSlack];
  uint64_t got[2][kRoom + kRunSlack];
  FillCheckBitmaps(a, b, kWords, 32);
  const auto* bytes_a = reinterpret_cast<const uint8_t*>(a);
  const auto* bytes_b = reinterpret_cast<const uint8_t*>(b);
  // `scan` runs one function of a variant.
  const auto agrees = [&](auto scan) {
    want[0][0] = got[0][0] = 1;
    const RunScan expected = scan(scalar::kExtractRuns, want[0], want[1]);
    const RunScan found = scan(candidate, got[0], got[1]);
    const size_t starts = expected.runs + static_cast<size_t>(expected.open);
    return found.words == expected.words && found.runs == expected.runs &&
           found.open == expected.open &&
           std::memcmp(got[0], want[0], starts * sizeof(uint64_t)) == 0 &&
           std::memcmp(got[1], want[1], expected.runs * sizeof(uint64_t)) == 0;
  };
  using Plain = RunsOfEachOperation<ExtractRunsFn>;
  constexpr ExtractRunsFn* Plain::*kOperations[] = {&Plain::single, &Plain::exclusive,
                                                    &Plain::and_not, &Plain::either, &Plain::both};
  for (const auto operation : kOperations) {
    if (!agrees([&](const ExtractRunsKernels& kernels, uint64_t* offsets, uint64_t* lengths) {
          return (kernels.*operation)(bytes_a, bytes_b, kWords, 7, 3, 1, offsets, lengths, kRoom);
        })) {
      return false;
    }
  }
  using InLayout = RunsOfEachOperation<ExtractRunsInLayoutFn>;
  constexpr ExtractRunsInLayoutFn* InLayout::*kInLayout[] = {
      &InLayout::single, &InLayout::exclusive, &InLayout::and_not, &InLayout::either,
      &InLayout::both};
  for (const auto operation : kInLayout) {
    for (unsigned i = 0; i < 32; ++i) {
      const BitLayout layout = {.most_significant_first = i % 2 != 0,
                                .reversed_word_bytes = 1u << (i / 2 % 4),
                                .flip_a = i / 8 % 2 != 0 ? ~uint64_t{0} : 0,
                                .flip_b = i / 16 != 0 ? ~uint64_t{0} : 0};
      if (!agrees([&](const ExtractRunsKernels& kernels, uint64_t* offsets, uint64_t* lengths) {
            return (kernels.in_layout.*operation)(layout, bytes_a, bytes_b, kWords, 7, 3, 1,
                                                  offsets, lengths, kRoom);
          })) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(ExtractRuns, CBT_EVERY_VARIANT(kExtractRuns))

}  // namespace cbt::simd
