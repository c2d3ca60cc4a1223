// Scalar reference of split_extents, the list of its variants, and the choice between them.
//
// The reference does not branch on the number of pieces: without a compress instruction, vectors
// below avx512 would gain nothing.
#include "simd/tuples/split_extents.h"

#include <algorithm>
#include <cstring>

#include "simd/dispatch/variants.h"

namespace cbt::simd {
namespace scalar {
namespace {

SplitScan Split(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint64_t most,
                uint64_t limit, uint64_t* piece_offsets, uint64_t* piece_lengths,
                size_t room) noexcept {
  size_t pieces = 0;
  size_t i = 0;
  for (; i < count && room - pieces >= 2; ++i) {
    const uint64_t offset = offsets[i];
    const uint64_t length = std::min(lengths[i], limit - offset);
    if (length - 1 >= 2 * most) break;
    // Always writes both pieces.
    piece_offsets[pieces] = offset;
    piece_lengths[pieces] = std::min(length, most);
    piece_offsets[pieces + 1] = offset + most;
    piece_lengths[pieces + 1] = length - most;
    pieces += length > most ? 2 : 1;
  }
  return {i, pieces};
}

}  // namespace

const SplitExtentsKernels kSplitExtents = {&Split};

}  // namespace scalar

namespace {

// Extents of every number of pieces up to three, with every room.
bool KnownAnswer(const SplitExtentsKernels& candidate) noexcept {
  constexpr size_t kMost = 40;
  uint64_t offsets[kMost];
  uint64_t lengths[kMost];
  CheckPattern pattern;
  uint64_t at = 0;
  for (size_t i = 0; i < kMost; ++i) {
    offsets[i] = at += pattern.Next() % 3;
    lengths[i] = 1 + pattern.Next() % (i == 30 ? 30 : 20);
    at += lengths[i];
  }
  for (const uint64_t limit : {at, at + 5, at - lengths[kMost - 1] + 1}) {
    for (size_t room = 0; room <= 2 * kMost; ++room) {
      uint64_t out[4][2 * kMost + kSplitSlack];
      const SplitScan want =
          scalar::kSplitExtents.split(offsets, lengths, kMost, 10, limit, out[0], out[1], room);
      const SplitScan got =
          candidate.split(offsets, lengths, kMost, 10, limit, out[2], out[3], room);
      if (got.extents != want.extents || got.pieces != want.pieces ||
          std::memcmp(out[0], out[2], want.pieces * sizeof(uint64_t)) != 0 ||
          std::memcmp(out[1], out[3], want.pieces * sizeof(uint64_t)) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(SplitExtents,
                   CBT_SCALAR_VARIANT(kSplitExtents) CBT_AVX512_VARIANT(kSplitExtents))

}  // namespace cbt::simd
