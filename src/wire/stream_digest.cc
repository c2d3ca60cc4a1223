#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string>

#include "absl/numeric/int128.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "simd/kernels.h"

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its name
#include <xxhash.h>

namespace cbt {
namespace {

using simd::kBlockStripes;
using simd::kStripeTuples;

// Streams of fewer tuples are of at most 240 bytes, for which XXH3 has other ways: the library
// knows them.
constexpr size_t kLongTuples = 16;
// Tuples that wait for the stripe that they belong to, or for the end of a short stream.
constexpr size_t kWaiting = kLongTuples;

constexpr uint64_t kPrime32[] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du};
constexpr uint64_t kPrime64[] = {0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                 0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u};
constexpr simd::DigestLanes kStart = {{kPrime32[2], kPrime64[1], kPrime64[3], kPrime64[4]},
                                      {kPrime64[0], kPrime64[2], kPrime32[1], kPrime32[0]},
                                      0};

constexpr uint64_t LowestFirst(uint64_t value) noexcept {
  if constexpr (std::endian::native == std::endian::little) return value;
  return __builtin_bswap64(value);
}

// The eight bytes of the secret from `byte` on, as a little-endian number. Requires: byte % 8 != 0.
uint64_t SecretAt(size_t byte) noexcept {
  const auto word = [](size_t i) {
    return i % 2 == 0 ? simd::kDigestSecret.even[i / 2] : simd::kDigestSecret.odd[i / 2];
  };
  const size_t shift = byte % 8 * 8;
  return word(byte / 8) >> shift | word(byte / 8 + 1) << (64 - shift);
}

// The halves of the product, mixed.
uint64_t FoldProduct(uint64_t a, uint64_t b) noexcept {
  const absl::uint128 product = absl::uint128(a) * b;
  return absl::Uint128Low64(product) ^ absl::Uint128High64(product);
}

uint64_t Avalanche(uint64_t hash) noexcept {
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9u;
  return hash ^ hash >> 32;
}

// The last four tuples of a long stream, whose keys are the secret's bytes from 121 on, and the sum
// of the lanes.
uint64_t Finish(simd::DigestLanes lanes, const uint64_t* offsets, const uint64_t* lengths,
                uint64_t tuples) noexcept {
  const auto fold = [](uint64_t value) { return (value & 0xffffffff) * (value >> 32); };
  uint64_t hash = tuples * 16 * kPrime64[0];
  for (size_t i = 0; i < kStripeTuples; ++i) {
    lanes.even[i] += fold(offsets[i] ^ SecretAt(121 + 16 * i)) + lengths[i];
    lanes.odd[i] += fold(lengths[i] ^ SecretAt(129 + 16 * i)) + offsets[i];
    hash +=
        FoldProduct(lanes.even[i] ^ SecretAt(11 + 16 * i), lanes.odd[i] ^ SecretAt(19 + 16 * i));
  }
  return Avalanche(hash);
}

}  // namespace

// The lanes hold all stripes but the last one, which ends the stream and needs other keys. It may
// overlap the one before it: four tuples before those that wait are kept.
struct StreamDigest::State {
  simd::DigestLanes lanes = kStart;
  size_t waiting = 0;
  std::array<uint64_t, kStripeTuples + kWaiting> offsets;
  std::array<uint64_t, kStripeTuples + kWaiting> lengths;

  // Returns the sum of the lengths.
  uint64_t Wait(const uint64_t* from_offsets, const uint64_t* from_lengths, size_t count) noexcept {
    std::copy_n(from_offsets, count, offsets.data() + kStripeTuples + waiting);
    std::copy_n(from_lengths, count, lengths.data() + kStripeTuples + waiting);
    waiting += count;
    return std::accumulate(from_lengths, from_lengths + count, uint64_t{0});
  }
  // The four tuples before those that wait.
  void Keep(const uint64_t* from_offsets, const uint64_t* from_lengths) noexcept {
    std::copy_n(from_offsets, kStripeTuples, offsets.data());
    std::copy_n(from_lengths, kStripeTuples, lengths.data());
  }
};

StreamDigest::StreamDigest() : state_(std::make_unique<State>()) {}
StreamDigest::~StreamDigest() = default;
StreamDigest::StreamDigest(StreamDigest&&) noexcept = default;
StreamDigest& StreamDigest::operator=(StreamDigest&&) noexcept = default;

void StreamDigest::Add(std::span<const uint64_t> offsets,
                       std::span<const uint64_t> lengths) noexcept {
  State& state = *state_;
  const uint64_t* offset = offsets.data();
  const uint64_t* length = lengths.data();
  size_t count = offsets.size();
  tuples_ += count;
  if (count <= kWaiting - state.waiting) {
    bytes_ += state.Wait(offset, length, count);
    return;
  }

  // More follow what waits, so all of it can be added; at least one tuple of the new ones waits.
  const simd::DigestTuplesKernels& kernels = simd::DigestTuples();
  const size_t filled = kWaiting - state.waiting;
  bytes_ += state.Wait(offset, length, filled);
  offset += filled;
  length += filled;
  count -= filled;
  const uint64_t* const old_offsets = state.offsets.data() + kStripeTuples;
  const uint64_t* const old_lengths = state.lengths.data() + kStripeTuples;
  kernels.add(old_offsets, old_lengths, kWaiting / kStripeTuples, state.lanes);
  const size_t stripes = (count - 1) / kStripeTuples;
  bytes_ += kernels.add(offset, length, stripes, state.lanes);
  const size_t done = stripes * kStripeTuples;
  if (stripes != 0) {
    state.Keep(offset + done - kStripeTuples, length + done - kStripeTuples);
  } else {
    state.Keep(old_offsets + kWaiting - kStripeTuples, old_lengths + kWaiting - kStripeTuples);
  }
  state.waiting = 0;
  bytes_ += state.Wait(offset + done, length + done, count - done);
}

uint64_t StreamDigest::digest() const noexcept {
  const State& state = *state_;
  const uint64_t* const offsets = state.offsets.data() + kStripeTuples;
  const uint64_t* const lengths = state.lengths.data() + kStripeTuples;
  if (tuples_ < kLongTuples) {
    uint64_t pairs[2 * kLongTuples];
    for (size_t i = 0; i < state.waiting; ++i) {
      pairs[2 * i] = LowestFirst(offsets[i]);
      pairs[2 * i + 1] = LowestFirst(lengths[i]);
    }
    return XXH3_64bits(pairs, state.waiting * 16);
  }
  simd::DigestLanes lanes = state.lanes;
  simd::DigestTuples().add(offsets, lengths, (state.waiting - 1) / kStripeTuples, lanes);
  const size_t last = state.waiting;  // from the first tuple kept, four before the end
  return Finish(lanes, state.offsets.data() + last, state.lengths.data() + last, tuples_);
}

std::string StreamDigest::DigestText() const {
  constexpr char kHex[] = "0123456789abcdef";
  const uint64_t value = digest();
  std::string text(16, '0');
  for (int i = 0; i < 16; ++i) {
    text[static_cast<size_t>(i)] = kHex[(value >> (60 - 4 * i)) & 15];
  }
  return text;
}

}  // namespace cbt
