// Body of extract_runs for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
//
// A scan proceeds in steps of up to 256 words. Each step makes four passes over memory in the
// first-level cache, none of which branches on the data of a single word:
//   1. combine the bitmaps, keep the edges of each word, note which words have any;
//   2. list those words;
//   3. write the positions of their edges, as 16-bit numbers, by stores of constant width whose
//      surplus the next ones overwrite;
//   4. widen pairs of positions to offsets and lengths.
// Before a step, words without an edge are skipped at the speed of the loads.
//
// Words of other layouts are put in order in pass 1. A word without an edge has equal bits,
// whatever their order, so what is skipped need not be.
#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/extract_runs.h"
#include "simd/word_ops_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace extract_runs {

using namespace word_ops;  // NOLINT(google-build-using-namespace): one body in two files

// Words per step; a short step returns to the quiet loop sooner.
constexpr size_t kLongStep = 256;
constexpr size_t kShortStep = 64;
// So many words with edges among four vectors are taken one by one.
constexpr int kFewWords = 4;

struct Step {
  alignas(64) uint64_t edges[kLongStep];
  alignas(64) uint64_t mixed[kLongStep / 64];           // bit i: word i has an edge
  alignas(64) uint16_t list[kLongStep + 64];            // the indexes of those words
  alignas(64) uint16_t positions[kLongStep * 64 + 64];  // of the edges, from the step's first bit
};

// Writes base + i for every set bit i, first bits first; may write three more elements. Returns the
// number of set bits. Does not branch if it is at most four.
template <bool kDescending>
static inline size_t ListFewBits(uint64_t bits, size_t base, uint16_t* out) noexcept {
  const auto count = static_cast<size_t>(__builtin_popcountll(bits));
  size_t i = 0;
  do {
    for (size_t k = 0; k < 4; ++k) {
      out[i + k] = static_cast<uint16_t>(base + TakeBit<kDescending>(bits));
    }
    i += 4;
  } while (i < count);
  return count;
}

// --- What differs between instruction sets ---------------------------------------------------

#if defined(__AVX512VBMI2__)

// The bits of `now` that differ from the bit before them; `before` holds the lanes before.
template <bool kDescending>
static inline Words Edges(Words before, Words now) noexcept {
  const __m512i previous = Previous(before, now);
  // The lower half of (previous : now) >> 1 holds each bit's predecessor.
  if constexpr (kDescending) return _mm512_xor_si512(now, _mm512_shrdi_epi64(now, previous, 1));
  // The upper half of (now : previous) << 1 does.
  return _mm512_xor_si512(now, _mm512_shldi_epi64(now, previous, 1));
}

// The numbers 0 .. 63 in the bytes of a vector.
static inline __m512i Identity() noexcept {
  alignas(64) static constexpr uint8_t kIdentity[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  return _mm512_load_si512(kIdentity);
}

// The low, or with kHigh the high, 32 bytes of `bytes` as 16-bit numbers. (vpermb takes one cycle,
// the dedicated instruction three.)
template <bool kHigh>
static inline __m512i ToWords(__m512i bytes) noexcept {
  constexpr __mmask64 kEven = 0x5555555555555555u;
  const __m512i half = _mm512_srli_epi16(Identity(), 8);  // 1, 3, 5, ...
  const __m512i places = _mm512_srli_epi16(half, 1);      // 0, 1, 2, ...
  const __m512i from = kHigh ? _mm512_add_epi16(places, _mm512_set1_epi16(32)) : places;
  return _mm512_maskz_permutexvar_epi8(kEven, from, bytes);
}

// Writes base + i for every set bit i, lowest first; may write 64 elements. Returns the number of
// set bits. `base` is a multiple of 64. kAll: for words with often more than 32 bits set.
template <bool kAll>
static inline size_t ListManyBits(uint64_t bits, size_t base, uint16_t* out) noexcept {
  const __m512i found = _mm512_maskz_compress_epi8(bits, Identity());
  const __m512i bases = _mm512_set1_epi16(static_cast<short>(base));
  const auto count = static_cast<size_t>(__builtin_popcountll(bits));
  _mm512_storeu_si512(out, _mm512_or_si512(ToWords<false>(found), bases));
  if (kAll || __builtin_expect(count > 32, 0)) {
    _mm512_storeu_si512(out + 32, _mm512_or_si512(ToWords<true>(found), bases));
  }
  return count;
}

// Lists the words with edges; `many`: the previous step had many.
static inline size_t ListWords(uint64_t mixed, size_t base, bool many, uint16_t* out) noexcept {
  return many ? ListManyBits<true>(mixed, base, out) : ListManyBits<false>(mixed, base, out);
}

// Writes offsets[i] and lengths[i] for `count` pairs of positions; may write 7 more elements.
static inline void Widen(const uint16_t* positions, size_t count, uint64_t origin, unsigned shift,
                         uint64_t* offsets, uint64_t* lengths) noexcept {
  const __m512i origins = _mm512_set1_epi64(static_cast<long long>(origin));
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i low_half = _mm512_set1_epi64(0xffff);
  for (size_t i = 0; i < count; i += 8) {
    const __m512i pair = _mm512_cvtepu32_epi64(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(positions + 2 * i)));
    const __m512i start = _mm512_and_si512(pair, low_half);
    const __m512i length = _mm512_sub_epi64(_mm512_srli_epi64(pair, 16), start);
    _mm512_storeu_si512(offsets + i, _mm512_add_epi64(_mm512_sll_epi64(start, by), origins));
    _mm512_storeu_si512(lengths + i, _mm512_sll_epi64(length, by));
  }
}

#else

template <bool kDescending>
static inline Words Edges(Words before, Words now) noexcept {
  const Words previous = Previous(before, now);
  return kDescending ? now ^ (now >> 1 | previous << 63) : now ^ (now << 1 | previous >> 63);
}

// As ListFewBits(), without any branch, for words with many set bits; may write seven more
// elements.
template <bool kAll>
static inline size_t ListManyBits(uint64_t bits, size_t base, uint16_t* out) noexcept {
  uint16_t* const first = out;
  for (size_t byte = 0; byte < 8; ++byte) {
    const auto part = static_cast<unsigned>(bits >> (8 * byte) & 0xff);
#if defined(__x86_64__)
    const __m128i found = _mm_cvtepu8_epi16(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kByteTable.positions[part])));
    const __m128i bases = _mm_set1_epi16(static_cast<short>(base + 8 * byte));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_add_epi16(found, bases));
#else
    const uint16x8_t found = vmovl_u8(vcreate_u8(kByteTable.positions[part]));
    vst1q_u16(out, vaddq_u16(found, vdupq_n_u16(static_cast<uint16_t>(base + 8 * byte))));
#endif
    out += __builtin_popcount(part);
  }
  return static_cast<size_t>(out - first);
}

static inline size_t ListWords(uint64_t mixed, size_t base, bool, uint16_t* out) noexcept {
  return ListFewBits<false>(mixed, base, out);
}

static inline void Widen(const uint16_t* positions, size_t count, uint64_t origin, unsigned shift,
                         uint64_t* offsets, uint64_t* lengths) noexcept {
  for (size_t i = 0; i < count; ++i) {
    uint32_t pair;
    __builtin_memcpy(&pair, positions + 2 * i, sizeof(pair));
    const uint64_t start = pair & 0xffff;
    offsets[i] = origin + (start << shift);
    lengths[i] = (uint64_t{pair >> 16} - start) << shift;
  }
}

#endif

// --- What they share -------------------------------------------------------------------------

// Fills step.edges and step.mixed with `count` words from byte `at` on; `open`: the bit before
// them.
template <typename Reader>
static inline void Load(const Reader& reader, size_t at, size_t count, uint64_t open,
                        Step& step) noexcept {
  constexpr size_t kLanes = Words::size;
  static_assert(64 % kLanes == 0);
  open = reader.Raw(open);
  Words before(uint64_t{0} - open);
  size_t i = 0;
  for (size_t group = 0; group * 64 < count; ++group) {
    uint64_t mixed = 0;
    const size_t end = count - group * 64 < 64 ? count : group * 64 + 64;
    for (; end - i >= kLanes; i += kLanes) {
      const Words now = reader.RawVector(at + i * 8);
      const Words edges = Edges<Reader::kDescending>(before, now);
      edges.store_aligned(step.edges + i);
      mixed |= uint64_t{NonZeroLanes(edges)} << (i % 64);
      before = now;
    }
    // The last words of the scan, fewer than a vector.
    uint64_t last = i == 0 ? uint64_t{0} - open : reader.RawWord(at + (i - 1) * 8);
    for (; i < end; ++i) {
      const uint64_t now = reader.RawWord(at + i * 8);
      step.edges[i] = WordEdges<Reader::kDescending>(last, now);
      mixed |= uint64_t{step.edges[i] != 0} << (i % 64);
      last = now;
    }
    step.mixed[group] = mixed;
  }
}

// The typical number of edges in the mixed words of a step.
enum class Density { kFew, kMany, kMost };

// Samples four of the `listed` > 0 words. A wrong guess only costs time.
static inline Density Guess(const Step& step, size_t listed) noexcept {
  int edges = 0;
  for (size_t k = 0; k < 4; ++k) {
    edges += __builtin_popcountll(step.edges[step.list[listed * k / 4]]);
  }
  return edges <= 14 ? Density::kFew : edges <= 88 ? Density::kMany : Density::kMost;
}

// Writes the positions of the edges of the listed words with list(bits, base, out) until there are
// at least `limit`. Returns their number; sets `taken` to the number of words.
template <typename List>
static inline size_t ListEdges(Step& step, size_t listed, size_t limit, size_t& taken,
                               List list) noexcept {
  size_t found = 0;
  size_t k = 0;
  while (k < listed && found < limit) {
    const size_t word = step.list[k++];
    found += list(step.edges[word], word * 64, step.positions + found);
  }
  taken = k;
  return found;
}

template <bool kDescending>
static inline size_t ListEdges(Step& step, size_t count, size_t listed, size_t limit,
                               size_t& taken) noexcept {
  const Density density = Guess(step, listed);
  if (kDescending && density == Density::kFew && !kTakesHighest) {
    for (size_t k = 0; k < listed; ++k) {
      uint64_t& edges = step.edges[step.list[k]];
      edges = ReverseBits(edges);
    }
  }
  if (kDescending && density != Density::kFew) {
    // In whole vectors: few words have no edge.
    for (size_t i = 0; i < count; i += Words::size) {
      ReverseBits(Words::load_aligned(step.edges + i)).store_aligned(step.edges + i);
    }
  }
  switch (density) {
    case Density::kFew:
      return ListEdges(step, listed, limit, taken, [](uint64_t bits, size_t base, uint16_t* out) {
        return ListFewBits < kDescending && kTakesHighest > (bits, base, out);
      });
    case Density::kMany:
      return ListEdges(step, listed, limit, taken, [](uint64_t bits, size_t base, uint16_t* out) {
        return ListManyBits<false>(bits, base, out);
      });
    case Density::kMost:
      break;
  }
  return ListEdges(step, listed, limit, taken, [](uint64_t bits, size_t base, uint16_t* out) {
    return ListManyBits<true>(bits, base, out);
  });
}

#if defined(__AVX512F__)
// Bytes of a bitmap that do not stay in a second-level cache. Cursors scan up to twice as many.
constexpr size_t kLargeBytes = 4u << 20;

// Whether any of four vectors of words from byte `at` on is not `open` throughout.
template <typename Reader>
static inline bool HasEdges(const Reader& reader, size_t at, uint64_t open) noexcept {
  const NarrowWords fill = reader.NarrowFill(uint64_t{0} - open);
  NarrowWords any = reader.Narrow(at) ^ fill;
#pragma GCC unroll 8
  for (size_t k = 1; k < 8; ++k) any = any | (reader.Narrow(at + 32 * k) ^ fill);
  return _mm256_testz_si256(any.lanes, any.lanes) == 0;
}
#endif

template <typename Reader>
static inline RunScan ScanWith(const Reader reader, size_t words, uint64_t origin, unsigned shift,
                               uint64_t open, uint64_t* offsets, uint64_t* lengths,
                               size_t room) noexcept {
  // Four vectors per iteration of the quiet loop: enough independent loads to keep the memory
  // pipeline full, and one branch for all of them.
  constexpr size_t kVector = Words::size;
  constexpr size_t kQuiet = 4 * kVector;
  Step step;
  size_t runs = 0;
  size_t step_words = kShortStep;
  bool quiet = true;  // quiet words may follow
#if defined(__AVX512F__)
  // Where memory is the limit and few words have edges, loads of 32 bytes recover sooner from
  // branches that can't be predicted.
  constexpr int kCalmest = 8;
  int calm = 0;  // grows where edges have quiet words before them, and shrinks where not
  size_t after_edges = 0;
  bool narrow = false;
#endif
  size_t i = 0;
  while (i < words) {
    // Check before quiet words too, so that every variant stops at the same word.
    if (runs >= room) return {i, runs, open};
    while (quiet && words - i >= kQuiet) {
      const Words fill(uint64_t{0} - open);
      const size_t at = i * 8;
#if defined(__AVX512F__)
      if (narrow && !HasEdges(reader, at, open)) {
        i += kQuiet;
        continue;
      }
#endif
      const Words w0 = reader.Quiet(at, fill);
      const Words w1 = reader.Quiet(at + kVector * 8, fill);
      const Words w2 = reader.Quiet(at + kVector * 16, fill);
      const Words w3 = reader.Quiet(at + kVector * 24, fill);
      if (!xsimd::any(((w0 | w1) | (w2 | w3)) != Words(uint64_t{0}))) {
        i += kQuiet;
        continue;
      }
      if (step_words == kLongStep) break;
      const uint64_t mixed = uint64_t{NonZeroLanes(w0)} | uint64_t{NonZeroLanes(w1)} << kVector |
                             uint64_t{NonZeroLanes(w2)} << (2 * kVector) |
                             uint64_t{NonZeroLanes(w3)} << (3 * kVector);
      // Up to a few words with edges: a step would cost more than the words themselves. The group
      // is finished, so that the loads stay at whole cache lines.
      if (__builtin_popcountll(mixed) > kFewWords) break;
#if defined(__AVX512F__)
      calm = i == after_edges ? calm - (calm > 0 ? 1 : 0) : calm + (calm < kCalmest ? 1 : 0);
      after_edges = i + kQuiet;
      narrow = 2 * calm >= kCalmest && words - i >= kLargeBytes / 8;
#endif
      const uint64_t quiet_open = open;
      for (uint64_t left = mixed; left != 0;) {
        const auto k = static_cast<size_t>(__builtin_ctzll(left));
        left &= left - 1;
        const uint64_t word = reader.Word((i + k) * 8);
        uint64_t edges = WordEdges<Reader::kDescending>(uint64_t{0} - open, word);
        constexpr bool kHighest = Reader::kDescending && kTakesHighest;
        if constexpr (Reader::kDescending && !kHighest) edges = ReverseBits(edges);
        const uint64_t base = origin + (uint64_t{i + k} * 64 << shift);
        while (edges != 0) {
          const uint64_t offset = base + (TakeBit<kHighest>(edges) << shift);
          if (open == 0) {
            offsets[runs] = offset;
          } else {
            lengths[runs] = offset - offsets[runs];
            ++runs;
          }
          open ^= 1;
        }
        if (runs >= room) return {i + k + 1, runs, open};
        // What is quiet has changed: the next word has an edge, or is the first of a run's middle.
        if (open != quiet_open && k + 1 < kQuiet) left |= uint64_t{1} << (k + 1);
      }
      i += kQuiet;
    }
    if (i == words) break;

    const size_t count = words - i < step_words ? words - i : step_words;
    Load(reader, i * 8, count, open, step);
    size_t listed = 0;
    for (size_t group = 0; group * 64 < count; ++group) {
      listed += ListWords(step.mixed[group], group * 64, !quiet, step.list + listed);
    }
    if (listed == 0) {
      i += count;
      continue;
    }
    size_t taken = 0;
    const size_t found =
        ListEdges<Reader::kDescending>(step, count, listed, 2 * (room - runs) - open, taken);
    const uint64_t base = origin + (uint64_t{i} * 64 << shift);
    if (open != 0 && found != 0) {
      lengths[runs] = base + (uint64_t{step.positions[0]} << shift) - offsets[runs];
    }
    // Pairs begin after an edge that ends an open run. The last pair may be half, and its length is
    // written when the other half is found.
    const size_t pairs = (found + 1 - open) / 2;
    Widen(step.positions + open, pairs, base, shift, offsets + runs + open, lengths + runs + open);
    runs += (found + open) / 2;
    open ^= found & 1;
    // Out of room: the remaining words are left to the next scan.
    const bool full = runs >= room;
    i += full ? size_t{step.list[taken - 1]} + 1 : count;
    step_words = listed >= count / 32 ? kLongStep : kShortStep;
    quiet = listed < count / 2;
  }
  return {words, runs, open};
}

template <typename Op>
static RunScan Scan(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin,
                    unsigned shift, uint64_t open, uint64_t* offsets, uint64_t* lengths,
                    size_t room) noexcept {
  return ScanWith(PlainReader<Op>{a, b}, words, origin, shift, open, offsets, lengths, room);
}

template <typename Op>
static RunScan ScanInLayout(const BitLayout& layout, const uint8_t* a, const uint8_t* b,
                            size_t words, uint64_t origin, unsigned shift, uint64_t open,
                            uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  if (layout.most_significant_first) {
    return ScanWith(LayoutReader<Op, true>(layout, a, b), words, origin, shift, open, offsets,
                    lengths, room);
  }
  return ScanWith(LayoutReader<Op, false>(layout, a, b), words, origin, shift, open, offsets,
                  lengths, room);
}

}  // namespace extract_runs

extern const ExtractRunsKernels kExtractRuns;
const ExtractRunsKernels kExtractRuns = {
    {&extract_runs::Scan<extract_runs::Single>, &extract_runs::Scan<extract_runs::Exclusive>,
     &extract_runs::Scan<extract_runs::AndNot>, &extract_runs::Scan<extract_runs::Either>,
     &extract_runs::Scan<extract_runs::Both>},
    {&extract_runs::ScanInLayout<extract_runs::Single>,
     &extract_runs::ScanInLayout<extract_runs::Exclusive>,
     &extract_runs::ScanInLayout<extract_runs::AndNot>,
     &extract_runs::ScanInLayout<extract_runs::Either>,
     &extract_runs::ScanInLayout<extract_runs::Both>},
};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
