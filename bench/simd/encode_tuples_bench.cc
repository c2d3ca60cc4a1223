// encode/<pattern>/<tuples>/<impl>: tuples to protobuf bytes.
//
// Compare `cbt` and the levels with `memcpy` of the encoded bytes. Items are tuples.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/support/variants.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

constexpr size_t kTuples = 8192;

struct Tuples {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
};

// Ascending extents of up to `blocks` blocks of 4096 bytes, spread over `capacity` bytes.
Tuples Make(uint64_t capacity, uint64_t blocks) {
  std::mt19937_64 random(1);
  Tuples tuples;
  const uint64_t stride = capacity / kTuples;
  for (uint64_t i = 0; i < kTuples; ++i) {
    tuples.offsets.push_back((i * stride + random() % (stride / 2)) / 4096 * 4096);
    tuples.lengths.push_back(4096 * (1 + random() % blocks));
  }
  return tuples;
}

void Register(const std::string& pattern, const Tuples& tuples) {
  const std::string prefix = "encode/" + pattern + "/" + std::to_string(kTuples) + "/";
  const auto finish = [](benchmark::State& state, size_t bytes) {
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kTuples));
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
  };
  ForEachVariant(simd::EncodeTuplesVariants(), simd::EncodeTuples(),
                 [&](const std::string& level, const simd::EncodeTuplesKernels& kernels) {
                   benchmark::RegisterBenchmark(
                       (prefix + level).c_str(),
                       [=, &tuples, encode = kernels.encode](benchmark::State& state) {
                         std::vector<uint8_t> out(kTuples * simd::kTupleBytes);
                         size_t bytes = 0;
                         for (auto _ : state) {
                           bytes = encode(tuples.offsets.data(), tuples.lengths.data(), kTuples,
                                          out.data(), out.size())
                                       .bytes;
                           benchmark::DoNotOptimize(out.data());
                           benchmark::ClobberMemory();
                         }
                         finish(state, bytes);
                       });
                 });
  benchmark::RegisterBenchmark((prefix + "memcpy").c_str(), [=, &tuples](benchmark::State& state) {
    std::vector<uint8_t> encoded(kTuples * simd::kTupleBytes);
    const size_t bytes = simd::EncodeTuples()
                             .encode(tuples.offsets.data(), tuples.lengths.data(), kTuples,
                                     encoded.data(), encoded.size())
                             .bytes;
    std::vector<uint8_t> out(bytes);
    for (auto _ : state) {
      std::memcpy(out.data(), encoded.data(), bytes);
      benchmark::DoNotOptimize(out.data());
      benchmark::ClobberMemory();
    }
    finish(state, bytes);
  });
}

const bool registered = [] {
  static const Tuples large = Make(uint64_t{64} << 40, 64);
  static const Tuples blocks = Make(uint64_t{64} << 40, 1);
  static const Tuples small = Make(uint64_t{1} << 30, 4);
  Register("extents64TiB", large);
  Register("blocks64TiB", blocks);
  Register("extents1GiB", small);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
