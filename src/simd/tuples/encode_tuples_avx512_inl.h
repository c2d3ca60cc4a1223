// Body of encode_tuples for level avx512: eight tuples per iteration, without branching on their
// sizes. Included by isa_avx512.cc inside no namespace; the BMI2 body encodes the rest.
//
// Both values of a tuple are spread to varint bytes in their lanes. The bytes of four tuples, with
// their tags and lengths, are permuted into cells of 16 bytes,
//
//   1a LL 08 o0 o1 o2 o3 o4 o5 o6 10 s0 s1 s2 s3 s4
//
// and one compress instruction removes the unused bytes of the varints. Where all eight have
// varints of the same lengths, as most have, two permutations put the bytes where they belong;
// where they have the same size, those of the offsets are put into a pattern. Offsets from 2^49 and
// sizes from 2^35 on don't fit in a cell, and zeros are omitted from messages: the BMI2 body
// encodes such tuples.
#include <immintrin.h>

#include "simd/tuples/encode_tuples.h"
#include "simd/tuples/encode_tuples_bmi2_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace encode_tuples {

constexpr int kAndThenOr = 0xea;                  // (a & b) | c
constexpr uint64_t kSevens = 0x312a231c150e0700;  // byte i from bit 7 i on

// Lookup tables, indexed by the number of leading zeros of a value or by the length of its varint.
struct Tables {
  // Leading zeros to varint length; 0 for values that don't fit in a cell (the value 0 has 64
  // leading zeros, which is looked up as 0).
  alignas(64) uint8_t offset_bytes[64] = {};
  alignas(64) uint8_t length_bytes[64] = {};
  // Varint length to its continuation bits, and to the other bytes of its lane.
  alignas(64) uint64_t offset_rest[8] = {};
  alignas(64) uint64_t length_rest[8] = {};
  // Varint length to the bytes of a cell that are kept.
  alignas(64) uint64_t offset_keep[8] = {};
  alignas(64) uint64_t length_keep[8] = {};

  constexpr Tables() {
    for (unsigned bits = 1; bits <= 49; ++bits) {
      offset_bytes[64 - bits] = static_cast<uint8_t>((bits + 6) / 7);
      if (bits <= 35) length_bytes[64 - bits] = static_cast<uint8_t>((bits + 6) / 7);
    }
    for (unsigned bytes = 1; bytes < 8; ++bytes) {
      const uint64_t continued = 0x8080808080808080u & ((uint64_t{1} << (8 * (bytes - 1))) - 1);
      // The tags' part of the length, to which the lengths of the varints are added.
      offset_rest[bytes] = continued | uint64_t{2} << 56;
      length_rest[bytes] = continued | 0x10081a0000000000u;
      // 1a LL 08, then the offset from the fourth byte on; 10, then the size from the twelfth on.
      offset_keep[bytes] = 7 | ((uint64_t{1} << bytes) - 1) << 3;
      length_keep[bytes] = 0x400 | ((uint64_t{1} << bytes) - 1) << 11;
    }
  }
};
static constexpr Tables kTables;

// Where the bytes of eight tuples of one length come from, as in kCells below: four tuples of
// either field in a vector, in the order of the tuples.
struct AlikeTables {
  // By the lengths of both varints: the source of each of 128 bytes, in [offsets | sizes] of all
  // eight lanes.
  struct Layout {
    alignas(64) uint8_t from[128] = {};
    uint64_t offset_bytes[2] = {};  // which of them belong to offsets
  };
  Layout of[8][6] = {};

  constexpr AlikeTables() {
    for (size_t offset_bytes = 1; offset_bytes < 8; ++offset_bytes) {
      for (size_t length_bytes = 1; length_bytes < 6; ++length_bytes) {
        Layout& layout = of[offset_bytes][length_bytes];
        uint8_t* from = layout.from;
        for (size_t i = 0; i < 8; ++i) {
          const auto offset = static_cast<uint8_t>(8 * i);
          const auto length = static_cast<uint8_t>(64 + 8 * i);
          *from++ = static_cast<uint8_t>(length + 5);
          *from++ = static_cast<uint8_t>(offset + 7);
          *from++ = static_cast<uint8_t>(length + 6);
          for (size_t k = 0; k < offset_bytes; ++k) {
            const auto at = static_cast<size_t>(from - layout.from);
            layout.offset_bytes[at / 64] |= uint64_t{1} << at % 64;
            *from++ = static_cast<uint8_t>(offset + k);
          }
          *from++ = static_cast<uint8_t>(length + 7);
          for (size_t k = 0; k < length_bytes; ++k) *from++ = static_cast<uint8_t>(length + k);
        }
      }
    }
  }
};
static constexpr AlikeTables kAlike;

// Encodes eight tuples per iteration while their varints are as long as those of the first tuple;
// with kSameSize, while they also have its size, so that only the bytes of the offsets change.
// Requires: eight tuples; room for all.
template <bool kSameSize>
static TupleScan EncodeAlike(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                             uint8_t* out, size_t room) noexcept {
  constexpr size_t kLanes = 8;
  constexpr size_t kRoom = 16 * kLanes + kTupleBytes;
  const size_t offset_bytes = VarintBytes(offsets[0]);
  const size_t length_bytes = VarintBytes(lengths[0]);
  if (offset_bytes > 7 || length_bytes > 5 || offsets[0] == 0 || lengths[0] == 0) return {0, 0};
  const auto same = [](uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); };
  // The values of a length are those from its least one on.
  const auto least = [](size_t bytes) {
    return bytes == 1 ? uint64_t{1} : uint64_t{1} << (7 * (bytes - 1));
  };
  const auto number = [&](size_t bytes) { return (uint64_t{1} << (7 * bytes)) - least(bytes); };
  const __m512i least_offset = same(least(offset_bytes));
  const __m512i least_length = same(least(length_bytes));
  const __m512i offset_number = same(number(offset_bytes));
  const __m512i length_number = same(number(length_bytes));
  const size_t tuple_bytes = 4 + offset_bytes + length_bytes;
  const __m512i offset_rest =
      same(kTables.offset_rest[offset_bytes] + ((offset_bytes + length_bytes) << 56));
  const __m512i length_rest = same(kTables.length_rest[length_bytes]);
  const __m512i sevens = same(kSevens);
  const __m512i low_bits = same(0x7f7f7f7f7f7f7f7f);
  const AlikeTables::Layout& layout = kAlike.of[offset_bytes][length_bytes];
  const __m512i low_from = _mm512_load_si512(layout.from);
  const __m512i high_from = _mm512_load_si512(layout.from + 64);
  const auto spread_length = [&](__m512i length) {
    return _mm512_ternarylogic_epi64(_mm512_multishift_epi64_epi8(sevens, length), low_bits,
                                     length_rest, kAndThenOr);
  };
  const __m512i size = same(lengths[0]);
  const __m512i low_rest = _mm512_permutex2var_epi8(offset_rest, low_from, spread_length(size));
  const __m512i high_rest = _mm512_permutex2var_epi8(offset_rest, high_from, spread_length(size));
  uint8_t* p = out;
  const uint8_t* const end = out + room;
  size_t i = 0;
  while (count - i >= kLanes && static_cast<size_t>(end - p) >= kRoom) {
    const __m512i offset = _mm512_loadu_si512(offsets + i);
    const __m512i length = _mm512_loadu_si512(lengths + i);
    const __mmask8 near =
        _mm512_cmplt_epu64_mask(_mm512_sub_epi64(offset, least_offset), offset_number);
    const __mmask8 fit = kSameSize
                             ? _mm512_mask_cmpeq_epi64_mask(near, length, size)
                             : _mm512_mask_cmplt_epu64_mask(
                                   near, _mm512_sub_epi64(length, least_length), length_number);
    if (fit != 0xff) break;
    const __m512i left = _mm512_ternarylogic_epi64(_mm512_multishift_epi64_epi8(sevens, offset),
                                                   low_bits, offset_rest, kAndThenOr);
    if constexpr (kSameSize) {
      _mm512_storeu_si512(
          p, _mm512_mask_permutexvar_epi8(low_rest, layout.offset_bytes[0], low_from, left));
      _mm512_storeu_si512(
          p + 64, _mm512_mask_permutexvar_epi8(high_rest, layout.offset_bytes[1], high_from, left));
    } else {
      const __m512i right = spread_length(length);
      _mm512_storeu_si512(p, _mm512_permutex2var_epi8(left, low_from, right));
      _mm512_storeu_si512(p + 64, _mm512_permutex2var_epi8(left, high_from, right));
    }
    p += kLanes * tuple_bytes;
    i += kLanes;
  }
  return {i, static_cast<size_t>(p - out)};
}

static TupleScan EncodeWide(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                            uint8_t* out, size_t room) noexcept {
  constexpr size_t kLanes = 8;
  // Eight cells, plus the room that must be left for the last tuple.
  constexpr size_t kRoom = 16 * kLanes + kTupleBytes;
  // The source of each byte of a cell in [offsets of four lanes | sizes of four lanes]. The last
  // byte of an offset's lane holds the length, those of a size's lane the three tags.
  alignas(64) static constexpr uint8_t kCells[64] = {
      37, 7,  38, 0,  1,  2,  3,  4,  5,  6,  39, 32, 33, 34, 35, 36,  //
      45, 15, 46, 8,  9,  10, 11, 12, 13, 14, 47, 40, 41, 42, 43, 44,  //
      53, 23, 54, 16, 17, 18, 19, 20, 21, 22, 55, 48, 49, 50, 51, 52,  //
      61, 31, 62, 24, 25, 26, 27, 28, 29, 30, 63, 56, 57, 58, 59, 60};
  const __m512i cells = _mm512_load_si512(kCells);
  const __m512i offset_bytes_of = _mm512_load_si512(kTables.offset_bytes);
  const __m512i length_bytes_of = _mm512_load_si512(kTables.length_bytes);
  const __m512i offset_rest_of = _mm512_load_si512(kTables.offset_rest);
  const __m512i length_rest_of = _mm512_load_si512(kTables.length_rest);
  const __m512i offset_keep_of = _mm512_load_si512(kTables.offset_keep);
  const __m512i length_keep_of = _mm512_load_si512(kTables.length_keep);
  const __m512i sevens = _mm512_set1_epi64(static_cast<long long>(kSevens));
  const __m512i low_bits = _mm512_set1_epi64(0x7f7f7f7f7f7f7f7f);
  uint8_t* p = out;
  const uint8_t* const end = out + room;
  size_t i = 0;
  // Where tuples differ, trying them as alike is worth less and less.
  size_t mixed = 1;
  for (size_t turn = 0; count - i >= kLanes && static_cast<size_t>(end - p) >= kRoom; ++turn) {
    if (turn % mixed == 0) {
      size_t alike = 0;
      for (EncodeTuplesFn* const encode : {&EncodeAlike<true>, &EncodeAlike<false>}) {
        // The second one goes on where the first one stopped.
        if (count - i < kLanes) break;
        const TupleScan scan =
            encode(offsets + i, lengths + i, count - i, p, static_cast<size_t>(end - p));
        alike += scan.tuples;
        i += scan.tuples;
        p += scan.bytes;
      }
      mixed = alike != 0 ? 1 : mixed < 64 ? mixed * 2 : mixed;
      if (alike != 0) continue;
    }
    const __m512i offset = _mm512_loadu_si512(offsets + i);
    const __m512i length = _mm512_loadu_si512(lengths + i);
    const __m512i offset_bytes =
        _mm512_permutexvar_epi8(_mm512_lzcnt_epi64(offset), offset_bytes_of);
    const __m512i length_bytes =
        _mm512_permutexvar_epi8(_mm512_lzcnt_epi64(length), length_bytes_of);
    const __m512i fewest = _mm512_min_epu64(offset_bytes, length_bytes);
    if (__builtin_expect(_mm512_testn_epi64_mask(fewest, fewest) != 0, 0)) {
      const TupleScan scan =
          Encode(offsets + i, lengths + i, kLanes, p, static_cast<size_t>(end - p));
      i += scan.tuples;
      p += scan.bytes;
      if (scan.tuples < kLanes) return {i, static_cast<size_t>(p - out)};
      continue;
    }
    const __m512i content = _mm512_add_epi64(offset_bytes, length_bytes);
    const __m512i left =
        _mm512_add_epi64(_mm512_ternarylogic_epi64(
                             _mm512_multishift_epi64_epi8(sevens, offset), low_bits,
                             _mm512_permutexvar_epi64(offset_bytes, offset_rest_of), kAndThenOr),
                         _mm512_slli_epi64(content, 56));
    const __m512i right = _mm512_ternarylogic_epi64(
        _mm512_multishift_epi64_epi8(sevens, length), low_bits,
        _mm512_permutexvar_epi64(length_bytes, length_rest_of), kAndThenOr);
    const __m128i keeps = _mm512_cvtepi64_epi16(
        _mm512_or_si512(_mm512_permutexvar_epi64(offset_bytes, offset_keep_of),
                        _mm512_permutexvar_epi64(length_bytes, length_keep_of)));
    const auto low_keep = static_cast<uint64_t>(_mm_cvtsi128_si64(keeps));
    const auto high_keep = static_cast<uint64_t>(_mm_extract_epi64(keeps, 1));
    const __m512i low = _mm512_permutexvar_epi8(cells, _mm512_shuffle_i64x2(left, right, 0x44));
    const __m512i high = _mm512_permutexvar_epi8(cells, _mm512_shuffle_i64x2(left, right, 0xee));
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi8(low_keep, low));
    p += __builtin_popcountll(low_keep);
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi8(high_keep, high));
    p += __builtin_popcountll(high_keep);
    i += kLanes;
  }
  const TupleScan rest =
      Encode(offsets + i, lengths + i, count - i, p, static_cast<size_t>(end - p));
  return {i + rest.tuples, static_cast<size_t>(p - out) + rest.bytes};
}

}  // namespace encode_tuples

extern const EncodeTuplesKernels kEncodeTuples;
const EncodeTuplesKernels kEncodeTuples = {&encode_tuples::EncodeWide};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE
