// Pairs of bitmaps with differences of a given density, for benchmarks.
#ifndef CBT_BENCH_SUPPORT_BITMAPS_H_
#define CBT_BENCH_SUPPORT_BITMAPS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cbt/units.h"

namespace cbt::bench {

// A pattern of the differences between a base and a target.
struct Pattern {
  std::string name;
  double density;    // of single bits that differ; ignored for clusters
  uint64_t cluster;  // mean length of runs of differing bits, which make 5 % of all; 0: single bits
};

inline std::vector<Pattern> DiffPatterns() {
  return {{"identical", 0, 0},     {"random1e-4", 1e-4, 0}, {"random1e-3", 1e-3, 0},
          {"random1e-2", 1e-2, 0}, {"random1e-1", 1e-1, 0}, {"random5e-1", 5e-1, 0},
          {"clustered", 0, 64},    {"full", 1, 0}};
}

// Runs of set bits with geometrically distributed lengths: mean `run`, gaps with mean `gap`.
inline std::vector<uint64_t> Runs(size_t words, double run, double gap, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint64_t> bits(words);
  std::geometric_distribution<uint64_t> run_length(1 / run);
  std::geometric_distribution<uint64_t> gap_length(1 / gap);
  for (uint64_t bit = gap_length(random); bit < words * 64; bit += 1 + gap_length(random)) {
    const uint64_t end = std::min<uint64_t>(bit + 1 + run_length(random), words * 64);
    for (; bit < end; ++bit) bits[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  return bits;
}

// The bits that differ; longer bitmaps repeat the first MiB.
inline std::vector<uint64_t> Differences(const Pattern& pattern, size_t words) {
  constexpr size_t kPeriod = kMiB / 8;
  const size_t distinct = std::min(words, kPeriod);
  std::vector<uint64_t> bits(distinct);
  if (pattern.cluster != 0) {
    const auto mean = static_cast<double>(pattern.cluster);
    bits = Runs(distinct, mean, mean * 19, 2);
  } else if (pattern.density >= 1) {
    std::fill(bits.begin(), bits.end(), ~uint64_t{0});
  } else if (pattern.density > 0) {
    std::mt19937_64 random(1);
    std::geometric_distribution<uint64_t> gap(pattern.density);
    for (uint64_t bit = gap(random); bit < distinct * 64; bit += 1 + gap(random)) {
      bits[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }
  bits.resize(words);
  for (size_t i = distinct; i < words; ++i) bits[i] = bits[i - distinct];
  return bits;
}

}  // namespace cbt::bench

#endif  // CBT_BENCH_SUPPORT_BITMAPS_H_
