// diff/<pattern>/<bytes of a bitmap>/<impl>: the runs of the difference of two bitmaps.
//
// Compare `cbt` and the levels with `ctz`, the loop that one writes first, and with `limit`, which
// only reads both bitmaps. Bytes are those read, both bitmaps together.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/support/variants.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

using simd::EdgeScan;
using simd::RunEdgesFn;

struct Bitmaps {
  std::vector<uint64_t> base;
  std::vector<uint64_t> target;
};

// Each bit of the target differs with probability `density`.
Bitmaps Random(size_t words, double density) {
  std::mt19937_64 random(1);
  Bitmaps bitmaps{std::vector<uint64_t>(words), std::vector<uint64_t>(words)};
  for (uint64_t& word : bitmaps.base) word = random();
  bitmaps.target = bitmaps.base;
  if (density <= 0) return bitmaps;
  std::geometric_distribution<uint64_t> gap(density);
  for (uint64_t bit = gap(random); bit < words * 64; bit += 1 + gap(random)) {
    bitmaps.target[bit / 64] ^= uint64_t{1} << (bit % 64);
  }
  return bitmaps;
}

// Runs of differing bits of geometric mean length 64 over 5 % of the bits.
Bitmaps Clustered(size_t words) {
  std::mt19937_64 random(2);
  Bitmaps bitmaps = Random(words, 0);
  std::geometric_distribution<uint64_t> run(1.0 / 64);
  std::geometric_distribution<uint64_t> gap(1.0 / (64 * 19));
  for (uint64_t bit = gap(random); bit < words * 64; bit += 1 + gap(random)) {
    for (uint64_t length = 1 + run(random); length > 0 && bit < words * 64; --length, ++bit) {
      bitmaps.target[bit / 64] ^= uint64_t{1} << (bit % 64);
    }
  }
  return bitmaps;
}

// The obvious loop: word by word, the next set bit, the next clear bit.
EdgeScan Ctz(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry,
             uint64_t* edges, size_t) noexcept {
  uint64_t* out = edges;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word_a;
    uint64_t word_b;
    std::memcpy(&word_a, a + i * 8, 8);
    std::memcpy(&word_b, b + i * 8, 8);
    const uint64_t word = word_a ^ word_b;
    uint64_t changes = word ^ (word << 1 | carry);
    carry = word >> 63;
    while (changes != 0) {
      *out++ = position + i * 64 + static_cast<uint64_t>(__builtin_ctzll(changes));
      changes &= changes - 1;
    }
  }
  return {words, static_cast<size_t>(out - edges)};
}

// Reads both bitmaps and nothing else.
EdgeScan Limit(const uint8_t* a, const uint8_t* b, size_t words, uint64_t, uint64_t,
               uint64_t* edges, size_t) noexcept {
  uint64_t any = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word_a;
    uint64_t word_b;
    std::memcpy(&word_a, a + i * 8, 8);
    std::memcpy(&word_b, b + i * 8, 8);
    any |= word_a ^ word_b;
  }
  *edges = any;
  return {words, 0};
}

// Scans the whole bitmap in pieces of `piece` words: as long as possible where there is nothing to
// find, short enough for the edges to stay in the cache where there is.
void Run(benchmark::State& state, const Bitmaps& bitmaps, RunEdgesFn* scan, size_t piece) {
  std::vector<uint64_t> edges((std::min<size_t>(piece, 64) + 1) * simd::kEdgesPerWord);
  const auto* a = reinterpret_cast<const uint8_t*>(bitmaps.base.data());
  const auto* b = reinterpret_cast<const uint8_t*>(bitmaps.target.data());
  const size_t words = bitmaps.base.size();
  for (auto _ : state) {
    uint64_t carry = 0;
    for (size_t i = 0; i < words; i += piece) {
      const EdgeScan done = scan(a + i * 8, b + i * 8, std::min(piece, words - i), i * 64, carry,
                                 edges.data(), edges.size());
      carry = (carry + done.edges) % 2;
      benchmark::DoNotOptimize(edges.data());
      benchmark::ClobberMemory();
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(words * 16));
}

void Register(const std::string& pattern, size_t bytes, const Bitmaps& bitmaps, size_t piece) {
  const auto add = [&](const std::string& impl, RunEdgesFn* scan) {
    const std::string name = "diff/" + pattern + "/" + std::to_string(bytes) + "/" + impl;
    benchmark::RegisterBenchmark(
        name.c_str(), [=, &bitmaps](benchmark::State& state) { Run(state, bitmaps, scan, piece); });
  };
  ForEachVariant(simd::RunEdgesVariants(), simd::RunEdges(),
                 [&](const std::string& level, const simd::RunEdgesKernels& kernels) {
                   add(level, kernels.exclusive);
                 });
  add("ctz", &Ctz);
  add("limit", &Limit);
}

const bool registered = [] {
  constexpr size_t kBytes = size_t{1} << 20;
  static const Bitmaps identical = Random(kBytes / 8, 0);
  static const Bitmaps sparse = Random(kBytes / 8, 1e-3);
  static const Bitmaps mixed = Random(kBytes / 8, 1e-1);
  static const Bitmaps clustered = Clustered(kBytes / 8);
  Register("identical", kBytes, identical, kBytes / 8);
  Register("random1e-3", kBytes, sparse, 64);
  Register("random1e-1", kBytes, mixed, 64);
  Register("clustered", kBytes, clustered, 64);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
