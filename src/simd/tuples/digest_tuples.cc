// Scalar reference of digest_tuples, the list of its variants, and the choice between them.
#include "simd/tuples/digest_tuples.h"

#include <algorithm>
#include <iterator>

#include "simd/dispatch/variants.h"

namespace cbt::simd {

// Constants of the format: the specification lists them as bytes.
const DigestSecret kDigestSecret = {
    {0xbe4ba423396cfeb8u, 0xdb979083e96dd4deu, 0x78e5c0cc4ee679cbu, 0x8e2443f7744608b8u,
     0xcb00c391bb52283cu, 0x4ef90da297486471u, 0x3f349ce33f76faa8u, 0x3159b4cd4be0518au,
     0xc3ebd33483acc5eau, 0x49daf0b751dd0d17u, 0xfca1477d58be162bu, 0x280416958f3acb45u},
    {0x1cad21f72c81017cu, 0x1f67b3b7a4a44072u, 0x2172ffcc7dd05a82u, 0x4c263a81e69035e0u,
     0xa32e531b8b65d088u, 0xd8acdea946ef1938u, 0x1d4f0bc7c7bbdcf9u, 0x647378d9c97e9fc8u,
     0xeb6313faffa081c5u, 0x9e68d429265516d3u, 0xce31d07ad1b8f88fu, 0x7e404bbbcafbd7afu}};

namespace scalar {
namespace {

// The product of the halves.
uint64_t Fold(uint64_t value) noexcept { return (value & 0xffffffff) * (value >> 32); }

uint64_t Scramble(uint64_t lane, uint64_t key) noexcept {
  return (lane ^ lane >> 47 ^ key) * 0x9E3779B1u;
}

uint64_t Add(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
             DigestLanes& lanes) noexcept {
  uint64_t bytes = 0;
  const auto word = [](size_t i) {
    return i % 2 == 0 ? kDigestSecret.even[i / 2] : kDigestSecret.odd[i / 2];
  };
  for (size_t i = 0; i < stripes; ++i) {
    for (size_t k = 0; k < kStripeTuples; ++k) {
      const uint64_t offset = offsets[i * kStripeTuples + k];
      const uint64_t length = lengths[i * kStripeTuples + k];
      lanes.even[k] += Fold(offset ^ word(lanes.stripe + 2 * k)) + length;
      lanes.odd[k] += Fold(length ^ word(lanes.stripe + 2 * k + 1)) + offset;
      bytes += length;
    }
    if (++lanes.stripe < kBlockStripes) continue;
    lanes.stripe = 0;
    for (size_t k = 0; k < kStripeTuples; ++k) {
      lanes.even[k] = Scramble(lanes.even[k], word(16 + 2 * k));
      lanes.odd[k] = Scramble(lanes.odd[k], word(17 + 2 * k));
    }
  }
  return bytes;
}

}  // namespace

const DigestTuplesKernels kDigestTuples = {&Add};

}  // namespace scalar

namespace {

// Blocks in two parts, with odd numbers of stripes; in the second one with lengths that are the
// same for two blocks.
bool KnownAnswer(const DigestTuplesKernels& candidate) noexcept {
  constexpr size_t kStripes = 6 * kBlockStripes + 5;
  constexpr size_t kFirst = 2 * kBlockStripes - 3;
  uint64_t offsets[kStripes * kStripeTuples];
  uint64_t lengths[kStripes * kStripeTuples];
  CheckPattern pattern;
  for (size_t i = 0; i < std::size(offsets); ++i) {
    offsets[i] = pattern.Next();
    lengths[i] = i < (kFirst + 2) * kStripeTuples || i >= 5 * kBlockStripes * kStripeTuples
                     ? pattern.Next()
                     : 4096;
  }
  DigestLanes want = {{1, 2, 3, 4}, {5, 6, 7, 8}, 7};
  DigestLanes got = want;
  const uint64_t want_bytes = scalar::kDigestTuples.add(offsets, lengths, kStripes, want);
  uint64_t bytes = candidate.add(offsets, lengths, kFirst, got);
  constexpr size_t kPlace = kFirst * kStripeTuples;
  bytes += candidate.add(offsets + kPlace, lengths + kPlace, kStripes - kFirst, got);
  return bytes == want_bytes && std::equal(want.even, want.even + 4, got.even) &&
         std::equal(want.odd, want.odd + 4, got.odd) && want.stripe == got.stripe;
}

}  // namespace

CBT_DEFINE_KERNELS(DigestTuples, CBT_EVERY_VARIANT(kDigestTuples))

}  // namespace cbt::simd
