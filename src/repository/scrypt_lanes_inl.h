// The body of scrypt for 1, 2 or 4 lanes side by side, included once for each instruction set with
// CBT_SCRYPT_NAMESPACE defined. No function of a library is called: what is inline would be
// compiled with instructions that other code must not have.
#ifndef CBT_SCRYPT_NAMESPACE
#error "scrypt_lanes_inl.h needs CBT_SCRYPT_NAMESPACE"
#endif

#include <cstddef>
#include <cstdint>

namespace cbt::repository {

// scryptROMix of `count` lanes of 128 * r bytes, in place, with the instruction set of its name.
// `memory` has room for n + 2 times as much, from a multiple of 64 bytes on. `count`: 1 or 2; for
// AVX-512 also 4.
void MixLanesAvx2(size_t count, uint8_t* lanes, uint64_t n, size_t r, void* memory);
void MixLanesAvx512(size_t count, uint8_t* lanes, uint64_t n, size_t r, void* memory);

}  // namespace cbt::repository

namespace cbt::repository::CBT_SCRYPT_NAMESPACE {

// Four words of a block of Salsa20, for each lane; vectors of the compiler, which has registers of
// this size on the machines where they are used.
template <size_t kLanes>
struct WordsOf;
template <>
struct WordsOf<1> {
  using Type = uint32_t __attribute__((vector_size(16)));
};
template <>
struct WordsOf<2> {
  using Type = uint32_t __attribute__((vector_size(32)));
};
template <>
struct WordsOf<4> {
  using Type = uint32_t __attribute__((vector_size(64)));
};

#define CBT_ROTATE(a, bits) (((a) << (bits)) | ((a) >> (32 - (bits))))

// Moves the four words of each lane.
#define CBT_TURN(x, a, b, c, d)                                                                    \
  if constexpr (kLanes == 1) {                                                                     \
    x = __builtin_shufflevector(x, x, a, b, c, d);                                                 \
  } else if constexpr (kLanes == 2) {                                                              \
    x = __builtin_shufflevector(x, x, a, b, c, d, 4 + a, 4 + b, 4 + c, 4 + d);                     \
  } else {                                                                                         \
    x = __builtin_shufflevector(x, x, a, b, c, d, 4 + a, 4 + b, 4 + c, 4 + d, 8 + a, 8 + b, 8 + c, \
                                8 + d, 12 + a, 12 + b, 12 + c, 12 + d);                            \
  }

// scryptBlockMix of `in`, combined with `other` unless that is null, to `out`. Each row of a
// block's matrix stands along its diagonal, so that columns and, after a turn, rows are mixed four
// at a time.
template <size_t kLanes, bool kTwo>
static void MixBlocks(const typename WordsOf<kLanes>::Type* in,
                      const typename WordsOf<kLanes>::Type* other,
                      typename WordsOf<kLanes>::Type* out, size_t r) {
  using Words = typename WordsOf<kLanes>::Type;
  const size_t last = (2 * r - 1) * 4;
  Words b0 = in[last];
  Words b1 = in[last + 1];
  Words b2 = in[last + 2];
  Words b3 = in[last + 3];
  if constexpr (kTwo) {
    b0 ^= other[last];
    b1 ^= other[last + 1];
    b2 ^= other[last + 2];
    b3 ^= other[last + 3];
  }
  for (size_t block = 0; block < 2 * r; ++block) {
    const size_t at = block * 4;
    b0 ^= in[at];
    b1 ^= in[at + 1];
    b2 ^= in[at + 2];
    b3 ^= in[at + 3];
    if constexpr (kTwo) {
      b0 ^= other[at];
      b1 ^= other[at + 1];
      b2 ^= other[at + 2];
      b3 ^= other[at + 3];
    }
    Words x0 = b0;
    Words x1 = b1;
    Words x2 = b2;
    Words x3 = b3;
    for (int round = 0; round < 8; round += 2) {
      Words sum = x0 + x3;
      x1 ^= CBT_ROTATE(sum, 7);
      sum = x1 + x0;
      x2 ^= CBT_ROTATE(sum, 9);
      sum = x2 + x1;
      x3 ^= CBT_ROTATE(sum, 13);
      sum = x3 + x2;
      x0 ^= CBT_ROTATE(sum, 18);
      CBT_TURN(x1, 3, 0, 1, 2)
      CBT_TURN(x2, 2, 3, 0, 1)
      CBT_TURN(x3, 1, 2, 3, 0)
      sum = x0 + x1;
      x3 ^= CBT_ROTATE(sum, 7);
      sum = x3 + x0;
      x2 ^= CBT_ROTATE(sum, 9);
      sum = x2 + x3;
      x1 ^= CBT_ROTATE(sum, 13);
      sum = x1 + x2;
      x0 ^= CBT_ROTATE(sum, 18);
      CBT_TURN(x1, 1, 2, 3, 0)
      CBT_TURN(x2, 2, 3, 0, 1)
      CBT_TURN(x3, 3, 0, 1, 2)
    }
    b0 += x0;
    b1 += x1;
    b2 += x2;
    b3 += x3;
    // Blocks with an even number come first.
    Words* const to = out + (block / 2 + block % 2 * r) * 4;
    to[0] = b0;
    to[1] = b1;
    to[2] = b2;
    to[3] = b3;
  }
}

// scryptROMix of kLanes lanes, which follow each other in `lanes`, in place.
template <size_t kLanes>
static void MixLanes(uint8_t* lanes, uint64_t n, size_t r, void* memory) {
  using Words = typename WordsOf<kLanes>::Type;
  const size_t vectors = 2 * r * 4;
  const size_t lane_bytes = 128 * r;
  auto* const past = static_cast<Words*>(memory);
  Words* const x = past + n * vectors;
  for (size_t i = 0; i < vectors; ++i) {
    for (size_t word = 0; word < 4 * kLanes; ++word) {
      // Where the word of a block stands on its diagonals.
      const size_t from = i / 4 * 16 + (i % 4 * 4 + word % 4) * 5 % 16;
      const uint8_t* const bytes = lanes + word / 4 * lane_bytes + 4 * from;
      past[i][word] = uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
                      uint32_t{bytes[3]} << 24;
    }
  }
  for (uint64_t i = 0; i < n; ++i) {
    Words* const kept = past + i * vectors;
    MixBlocks<kLanes, false>(kept, nullptr, i + 1 < n ? kept + vectors : x, r);
  }
  Words* now = x;
  Words* then = x + vectors;
  for (uint64_t i = 0; i < n; ++i) {
    if constexpr (kLanes == 1) {
      const uint64_t chosen = now[(2 * r - 1) * 4][0] & (n - 1);
      MixBlocks<kLanes, true>(now, past + chosen * vectors, then, r);
    } else {
      // Each lane chooses for itself.
      const Words choice = now[(2 * r - 1) * 4];
      for (size_t lane = 0; lane < kLanes; ++lane) {
        using One = uint32_t __attribute__((vector_size(16), may_alias));
        const uint64_t chosen = choice[4 * lane] & (n - 1);
        const auto* const from = reinterpret_cast<const One*>(past + chosen * vectors) + lane;
        auto* const to = reinterpret_cast<One*>(now) + lane;
        for (size_t k = 0; k < vectors; ++k) to[k * kLanes] ^= from[k * kLanes];
      }
      MixBlocks<kLanes, false>(now, nullptr, then, r);
    }
    Words* const swapped = now;
    now = then;
    then = swapped;
  }
  for (size_t i = 0; i < vectors; ++i) {
    for (size_t word = 0; word < 4 * kLanes; ++word) {
      const size_t to = i / 4 * 16 + (i % 4 * 4 + word % 4) * 5 % 16;
      uint8_t* const bytes = lanes + word / 4 * lane_bytes + 4 * to;
      const uint32_t value = now[i][word];
      for (size_t byte = 0; byte < 4; ++byte) {
        bytes[byte] = static_cast<uint8_t>(value >> (8 * byte));
      }
    }
  }
}

#undef CBT_ROTATE
#undef CBT_TURN

}  // namespace cbt::repository::CBT_SCRYPT_NAMESPACE
