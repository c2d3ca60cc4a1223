// Body of decode_tuples for level avx512: eight tuples per iteration. Included by isa_avx512.cc
// inside no namespace; the BMI2 body decodes the rest.
//
// Most tuples have the layout of the tuple before them: as many bytes in either varint. Eight of
// one layout are a pattern of fixed bytes with their values in between, and are taken out of two
// vectors by one permutation for each field. Where they also have the size of the first one, as in
// streams of fixed length, the sizes are part of the pattern. Where the layout changes, the
// positions of eight tuples are found one after the other from their length bytes; everything else
// is done for all eight at once, on cells of 16 bytes. Longer tuples, with offsets from 2^49 or
// sizes from 2^35 on, use the BMI2 body.
#include <immintrin.h>

#include "simd/tuples/decode_tuples.h"
#include "simd/tuples/decode_tuples_bmi2_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace decode_tuples {

// A varint in each lane.
struct Varints8 {
  __m512i values;
  __m512i bits;  // eight times its length in bytes; 64 if it does not end before the eighth byte
};

// Requires: the highest byte of each lane is 0.
static inline Varints8 TakeVarints(__m512i varints) noexcept {
  const __m512i more = _mm512_set1_epi64(static_cast<long long>(0x8080808080808080u));
  const __m512i ends = _mm512_andnot_si512(varints, more);
  const __m512i mask = _mm512_xor_si512(ends, _mm512_add_epi64(ends, _mm512_set1_epi64(-1)));
  const __m512i bytes = _mm512_and_si512(_mm512_andnot_si512(more, varints), mask);
  // From seven bits per byte to 14 per word, 28 per double word, 56 per lane.
  const __m512i by_14 = _mm512_maddubs_epi16(_mm512_set1_epi16(static_cast<short>(0x8001)), bytes);
  const __m512i by_28 = _mm512_madd_epi16(by_14, _mm512_set1_epi32(0x40000001));
  const __m512i high = _mm512_slli_epi64(_mm512_srli_epi64(by_28, 32), 28);
  const __m512i low = _mm512_and_si512(by_28, _mm512_set1_epi64(0xffffffff));
  return {_mm512_or_si512(low, high), _mm512_popcnt_epi64(mask)};
}

// Loads the 16 bytes at each of four positions.
static inline __m512i LoadCells(const uint8_t* a, const uint8_t* b, const uint8_t* c,
                                const uint8_t* d) noexcept {
  const auto load = [](const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load(a)), load(b), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load(c)), load(d), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

constexpr size_t kCells = 8;
constexpr size_t kCell = 16;

// Decodes eight tuples per iteration while enough bytes are left to read for eight. Length bytes
// are used as they are or, with kMasked (a cycle slower), limited to what fits in a cell; a wrong
// length is detected later.
template <bool kMasked>
static TupleScan DecodeCells(const uint8_t* in, size_t bytes, uint64_t* offsets, uint64_t* lengths,
                             size_t room) noexcept {
  constexpr size_t kMaxContent = kMasked ? kCell - 1 : 255;
  constexpr size_t kTurn = kCells * (2 + kMaxContent) + kCell;
  constexpr uint8_t kNone = 0x80;
  // The first varint's bytes, then the bytes of the head.
  alignas(16) static constexpr uint8_t kFirst[16] = {3, 4, 5, 6,     7,     8,     9,     kNone,
                                                     0, 1, 2, kNone, kNone, kNone, kNone, kNone};
  // The position of the second tag and varint if the first varint had no bytes.
  alignas(16) static constexpr uint8_t kSecond[16] = {3, 4, 5, 6, 7, 8, 9, 10,
                                                      3, 4, 5, 6, 7, 8, 9, 10};
  const auto four_times = [](const uint8_t* constants) {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(constants)));
  };
  const __m512i first_bytes = four_times(kFirst);
  const __m512i second_bytes = four_times(kSecond);
  const __m512i even_lane = _mm512_setzero_si512();
  const __m512i odd_lane = _mm512_set1_epi8(8);
  const uint8_t* p = in;
  const uint8_t* const end = in + bytes;
  size_t i = 0;
  while (room - i >= kCells && static_cast<size_t>(end - p) >= kTurn) {
    // Each position depends on the previous length byte: the two bytes before the contents are
    // added outside that chain.
    const uint8_t* at[kCells + 1];
    const uint8_t* contents = p;
    for (size_t k = 0; k < kCells; ++k) {
      at[k] = contents + 2 * k;
      contents += contents[2 * k + 1] & kMaxContent;
    }
    at[kCells] = contents + 2 * kCells;
    // Even and odd tuples separately, so that unpacking restores their order.
    const __m512i even = LoadCells(at[0], at[2], at[4], at[6]);
    const __m512i odd = LoadCells(at[1], at[3], at[5], at[7]);
    const __m512i even_first = _mm512_shuffle_epi8(even, first_bytes);
    const __m512i odd_first = _mm512_shuffle_epi8(odd, first_bytes);
    const Varints8 offset = TakeVarints(_mm512_unpacklo_epi64(even_first, odd_first));
    const __m512i head = _mm512_unpackhi_epi64(even_first, odd_first);
    const __m512i count = _mm512_srli_epi64(offset.bits, 3);
    const __m512i even_second = _mm512_shuffle_epi8(
        even, _mm512_add_epi8(second_bytes, _mm512_shuffle_epi8(count, even_lane)));
    const __m512i odd_second = _mm512_shuffle_epi8(
        odd, _mm512_add_epi8(second_bytes, _mm512_shuffle_epi8(count, odd_lane)));
    const __m512i second = _mm512_unpacklo_epi64(even_second, odd_second);
    const Varints8 length = TakeVarints(_mm512_srli_epi64(second, 8));
    // Check 1a, the length (both varints plus 2), 08, 10, and that the tuple fits in a cell.
    const __m512i bits = _mm512_add_epi64(offset.bits, length.bits);
    const __m512i want = _mm512_add_epi64(_mm512_slli_epi64(bits, 5), _mm512_set1_epi64(0x08021a));
    const __m512i tag = _mm512_and_si512(second, _mm512_set1_epi64(0xff));
    const unsigned wrong =
        static_cast<unsigned>(_mm512_cmpneq_epi64_mask(head, want)) |
        static_cast<unsigned>(_mm512_cmpneq_epi64_mask(tag, _mm512_set1_epi64(0x10))) |
        static_cast<unsigned>(_mm512_cmpgt_epi64_mask(bits, _mm512_set1_epi64(12LL * 8))) |
        static_cast<unsigned>(_mm512_test_epi64_mask(_mm512_or_si512(offset.bits, length.bits),
                                                     _mm512_set1_epi64(64)));
    if (__builtin_expect(wrong != 0, 0)) break;
    _mm512_storeu_si512(offsets + i, offset.values);
    _mm512_storeu_si512(lengths + i, length.values);
    i += kCells;
    p = at[kCells];
  }
  return {i, static_cast<size_t>(p - in)};
}

// Eight tuples with varints of the same lengths, in 128 bytes.
struct Layout {
  alignas(64) uint8_t known[128] = {};   // bits that the layout determines
  alignas(64) uint8_t wanted[128] = {};  // their values
  alignas(64) uint8_t offset_from[64] = {};
  alignas(64) uint8_t length_from[64] = {};
  alignas(64) uint8_t place[128] = {};  // of each byte in its tuple
  uint64_t offset_lanes = 0;            // bytes of offset_from that are used
  uint64_t length_lanes = 0;
  uint64_t length_bytes[2] = {};  // bytes that belong to lengths
  size_t tuple_bytes = 0;
};

constexpr size_t kMaxOffset = 7;  // bytes of a varint
constexpr size_t kMaxLength = 5;
static_assert(4 + kMaxOffset + kMaxLength == kCell);

struct Layouts {
  Layout of[kMaxOffset + 1][kMaxLength + 1] = {};

  constexpr Layouts() {
    for (size_t offset_bytes = 1; offset_bytes <= kMaxOffset; ++offset_bytes) {
      for (size_t length_bytes = 1; length_bytes <= kMaxLength; ++length_bytes) {
        Fill(of[offset_bytes][length_bytes], offset_bytes, length_bytes);
      }
    }
  }

  static constexpr void Fill(Layout& layout, size_t offset_bytes, size_t length_bytes) {
    layout.tuple_bytes = 4 + offset_bytes + length_bytes;
    for (size_t i = 0; i < kCells; ++i) {
      size_t at = i * layout.tuple_bytes;
      const auto fixed = [&](size_t value) {
        layout.known[at] = 0xff;
        layout.wanted[at++] = static_cast<uint8_t>(value);
      };
      const auto varint = [&](size_t count, uint8_t* from, uint64_t& lanes) {
        for (size_t k = 0; k < count; ++k) {
          from[8 * i + k] = static_cast<uint8_t>(at);
          lanes |= uint64_t{1} << (8 * i + k);
          layout.known[at] = 0x80;
          layout.wanted[at++] = k + 1 < count ? 0x80 : 0;
        }
      };
      fixed(0x1a);
      fixed(layout.tuple_bytes - 2);
      fixed(0x08);
      varint(offset_bytes, layout.offset_from, layout.offset_lanes);
      fixed(0x10);
      for (size_t k = at; k < at + length_bytes; ++k) {
        layout.length_bytes[k / 64] |= uint64_t{1} << k % 64;
      }
      varint(length_bytes, layout.length_from, layout.length_lanes);
    }
    for (size_t at = 0; at < kCells * layout.tuple_bytes; ++at) {
      layout.place[at] = static_cast<uint8_t>(at % layout.tuple_bytes);
    }
  }
};
static constexpr Layouts kLayouts;

// The layout of the tuple at `in`; null if it is unknown. Reads kCell bytes.
static inline const Layout* LayoutAt(const uint8_t* in) noexcept {
  uint64_t first;
  __builtin_memcpy(&first, in + 3, sizeof(first));
  const uint64_t ends = ~first & 0x8080808080808080u;
  const auto offset_bytes = static_cast<size_t>(_tzcnt_u64(ends) / 8 + 1);
  const size_t length_bytes = size_t{in[1]} - 2 - offset_bytes;
  if (offset_bytes > kMaxOffset || length_bytes - 1 >= kMaxLength) return nullptr;
  return &kLayouts.of[offset_bytes][length_bytes];
}

// The value of the varint in each lane, whose other bytes are 0.
static inline __m512i TakeValues(__m512i varints) noexcept {
  const __m512i bytes = _mm512_and_si512(varints, _mm512_set1_epi64(0x7f7f7f7f7f7f7f7f));
  const __m512i by_14 = _mm512_maddubs_epi16(_mm512_set1_epi16(static_cast<short>(0x8001)), bytes);
  const __m512i by_28 = _mm512_madd_epi16(by_14, _mm512_set1_epi32(0x40000001));
  constexpr int kSelect = 0xca;  // a ? b : c
  return _mm512_ternarylogic_epi64(_mm512_set1_epi64((1 << 28) - 1), by_28,
                                   _mm512_srli_epi64(by_28, 4), kSelect);
}

// Decodes eight tuples per iteration while they have `layout`, that of the first one; with
// kSameSize, while they also have its size.
template <bool kSameSize>
static TupleScan DecodeLayout(const Layout& layout, const uint8_t* in, size_t bytes,
                              uint64_t* offsets, uint64_t* lengths, size_t room) noexcept {
  constexpr size_t kTurn = 128;
  if (bytes < kTurn) return {0, 0};
  __m512i known[2] = {_mm512_load_si512(layout.known), _mm512_load_si512(layout.known + 64)};
  __m512i wanted[2] = {_mm512_load_si512(layout.wanted), _mm512_load_si512(layout.wanted + 64)};
  const __m512i offset_from = _mm512_load_si512(layout.offset_from);
  const __m512i length_from = _mm512_load_si512(layout.length_from);
  const __mmask64 offset_lanes = layout.offset_lanes;
  const __mmask64 length_lanes = layout.length_lanes;
  __m512i size = _mm512_setzero_si512();
  if constexpr (kSameSize) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
    const __m512i tuple = _mm512_castsi128_si512(first);
    for (size_t half = 0; half < 2; ++half) {
      const __mmask64 of_size = layout.length_bytes[half];
      known[half] = _mm512_or_si512(known[half], _mm512_movm_epi8(of_size));
      wanted[half] = _mm512_mask_permutexvar_epi8(
          wanted[half], of_size, _mm512_load_si512(layout.place + 64 * half), tuple);
    }
    // In the first lane is that of the first tuple.
    size = _mm512_broadcastq_epi64(_mm512_castsi512_si128(
        TakeValues(_mm512_maskz_permutexvar_epi8(length_lanes, length_from, tuple))));
  }
  const size_t turn = kCells * layout.tuple_bytes;
  constexpr int kAndThenXor = 0x6a;  // (a & b) ^ c
  const uint8_t* p = in;
  const uint8_t* const end = in + bytes;
  size_t i = 0;
  while (room - i >= kCells && static_cast<size_t>(end - p) >= kTurn) {
    const __m512i low = _mm512_loadu_si512(p);
    const __m512i high = _mm512_loadu_si512(p + 64);
    const __m512i wrong =
        _mm512_or_si512(_mm512_ternarylogic_epi64(low, known[0], wanted[0], kAndThenXor),
                        _mm512_ternarylogic_epi64(high, known[1], wanted[1], kAndThenXor));
    if (_mm512_test_epi64_mask(wrong, wrong) != 0) break;
    const auto take = [&](__mmask64 lanes, __m512i from) {
      return TakeValues(_mm512_maskz_permutex2var_epi8(lanes, low, from, high));
    };
    _mm512_storeu_si512(offsets + i, take(offset_lanes, offset_from));
    _mm512_storeu_si512(lengths + i, kSameSize ? size : take(length_lanes, length_from));
    i += kCells;
    p += turn;
  }
  return {i, static_cast<size_t>(p - in)};
}

// Decodes eight tuples per iteration while they have the layout of the first one.
static TupleScan DecodeAlike(const uint8_t* in, size_t bytes, uint64_t* offsets, uint64_t* lengths,
                             size_t room) noexcept {
  if (bytes < kCell) return {0, 0};
  const Layout* const layout = LayoutAt(in);
  if (layout == nullptr) return {0, 0};
  TupleScan done = DecodeLayout<true>(*layout, in, bytes, offsets, lengths, room);
  const TupleScan more =
      DecodeLayout<false>(*layout, in + done.bytes, bytes - done.bytes, offsets + done.tuples,
                          lengths + done.tuples, room - done.tuples);
  return {done.tuples + more.tuples, done.bytes + more.bytes};
}

static TupleScan DecodeWide(const uint8_t* in, size_t bytes, uint64_t* offsets, uint64_t* lengths,
                            size_t room) noexcept {
  TupleScan done = {0, 0};
  // Where tuples differ, trying them as alike is worth less and less.
  size_t mixed = kCells;
  for (;;) {
    const TupleScan alike = DecodeAlike(in + done.bytes, bytes - done.bytes, offsets + done.tuples,
                                        lengths + done.tuples, room - done.tuples);
    done.tuples += alike.tuples;
    done.bytes += alike.bytes;
    mixed = alike.tuples != 0 ? kCells : mixed < 64 * kCells ? mixed * 2 : mixed;
    const size_t next = room - done.tuples < mixed ? room - done.tuples : mixed;
    const TupleScan more = DecodeCells<false>(in + done.bytes, bytes - done.bytes,
                                              offsets + done.tuples, lengths + done.tuples, next);
    done.tuples += more.tuples;
    done.bytes += more.bytes;
    if (more.tuples < mixed) break;
  }
  for (DecodeTuplesFn* const next : {&DecodeCells<true>, &Decode}) {
    const TupleScan more = next(in + done.bytes, bytes - done.bytes, offsets + done.tuples,
                                lengths + done.tuples, room - done.tuples);
    done.tuples += more.tuples;
    done.bytes += more.bytes;
  }
  return done;
}

}  // namespace decode_tuples

extern const DecodeTuplesKernels kDecodeTuples;
const DecodeTuplesKernels kDecodeTuples = {&decode_tuples::DecodeWide};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
