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

template <typename WordAt>
RunScan Scan(WordAt word_at, size_t words, uint64_t origin, unsigned shift, uint64_t open,
             uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  size_t runs = 0;
  for (size_t i = 0; i < words; ++i) {
    if (runs >= room) return {i, runs, open};
    const uint64_t word = word_at(i);
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

RunScan Single(const uint8_t* a, const uint8_t*, size_t words, uint64_t origin, unsigned shift,
               uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8); }, words, origin, shift, open, offsets,
              lengths, room);
}

RunScan Exclusive(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
                  uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) ^ LoadWord(b + i * 8); }, words, origin,
              shift, open, offsets, lengths, room);
}

RunScan AndNot(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
               uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(b + i * 8) & ~LoadWord(a + i * 8); }, words, origin,
              shift, open, offsets, lengths, room);
}

RunScan Either(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
               uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) | LoadWord(b + i * 8); }, words, origin,
              shift, open, offsets, lengths, room);
}

RunScan Both(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
             uint64_t open, uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  return Scan([=](size_t i) { return LoadWord(a + i * 8) & LoadWord(b + i * 8); }, words, origin,
              shift, open, offsets, lengths, room);
}

}  // namespace

const ExtractRunsKernels kExtractRuns = {&Single, &Exclusive, &AndNot, &Either, &Both};

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
  CheckPattern pattern;
  for (size_t i = 0; i < kWords; ++i) {
    const uint64_t kind = pattern.Next() % 4;
    a[i] = pattern.Next();
    b[i] = kind == 0 ? pattern.Next() : kind == 1 ? ~a[i] : a[i];
    if (kind == 2) b[i] ^= uint64_t{1} << (pattern.Next() % 64);
    if (i >= 64 && i < 128) a[i] = b[i] = 0;
    if (i >= 128 && i < 160) a[i] = ~(b[i] = 0);
  }
  const auto* bytes_a = reinterpret_cast<const uint8_t*>(a);
  const auto* bytes_b = reinterpret_cast<const uint8_t*>(b);
  constexpr ExtractRunsFn* ExtractRunsKernels::*kOperations[] = {
      &ExtractRunsKernels::single, &ExtractRunsKernels::exclusive, &ExtractRunsKernels::and_not,
      &ExtractRunsKernels::either, &ExtractRunsKernels::both};
  for (const auto operation : kOperations) {
    want[0][0] = got[0][0] = 1;
    const RunScan expected = (scalar::kExtractRuns.*operation)(bytes_a, bytes_b, kWords, 7, 3, 1,
                                                               want[0], want[1], kRoom);
    const RunScan scan =
        (candidate.*operation)(bytes_a, bytes_b, kWords, 7, 3, 1, got[0], got[1], kRoom);
    if (scan.words != expected.words || scan.runs != expected.runs || scan.open != expected.open) {
      return false;
    }
    const size_t starts = expected.runs + static_cast<size_t>(expected.open);
    if (std::memcmp(got[0], want[0], starts * sizeof(uint64_t)) != 0) return false;
    if (std::memcmp(got[1], want[1], expected.runs * sizeof(uint64_t)) != 0) return false;
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(ExtractRuns, CBT_EVERY_VARIANT(kExtractRuns))

}  // namespace cbt::simd
