#include <bit>
#include <string>

#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its name
#include <xxhash.h>

namespace cbt {
namespace {

// Tuples hashed at a time: small enough for the first-level cache.
constexpr size_t kChunk = 256;

constexpr uint64_t LowestFirst(uint64_t value) noexcept {
  if constexpr (std::endian::native == std::endian::little) return value;
  return __builtin_bswap64(value);
}

}  // namespace

struct StreamDigest::State {
  XXH3_state_t hash;
};

StreamDigest::StreamDigest() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->hash);
  XXH3_64bits_reset(&state_->hash);
}
StreamDigest::~StreamDigest() = default;
StreamDigest::StreamDigest(StreamDigest&&) noexcept = default;
StreamDigest& StreamDigest::operator=(StreamDigest&&) noexcept = default;

void StreamDigest::Add(std::span<const uint64_t> offsets,
                       std::span<const uint64_t> lengths) noexcept {
  const uint64_t* const offset = offsets.data();
  const uint64_t* const length = lengths.data();
  const size_t count = offsets.size();
  uint64_t pairs[2 * kChunk];
  uint64_t bytes = 0;
  for (size_t at = 0; at < count; at += kChunk) {
    const size_t chunk = count - at < kChunk ? count - at : kChunk;
    for (size_t i = 0; i < chunk; ++i) {
      pairs[2 * i] = LowestFirst(offset[at + i]);
      pairs[2 * i + 1] = LowestFirst(length[at + i]);
      bytes += length[at + i];
    }
    XXH3_64bits_update(&state_->hash, pairs, chunk * 16);
  }
  tuples_ += count;
  bytes_ += bytes;
}

uint64_t StreamDigest::digest() const noexcept { return XXH3_64bits_digest(&state_->hash); }

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
