// compare/<pattern>/<bytes of a side>/<impl>: which blocks of 4096 bytes differ.
//
// Compare `cbt` and the levels with `memcmp`, the loop that one writes first (scalar is the same),
// and with `limit`, which only reads both sides. Bytes are those of both sides together.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "bench/support/variants.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

using simd::CompareBlocksFn;

constexpr size_t kBlock = 4096;

struct Sides {
  std::vector<uint8_t> base;
  std::vector<uint8_t> target;
};

// Changes the last byte of every `every`th block; 0: none.
Sides Make(size_t bytes, size_t every) {
  Sides sides{std::vector<uint8_t>(bytes, 1), std::vector<uint8_t>(bytes, 1)};
  for (size_t block = 0; every != 0 && block < bytes / kBlock; block += every) {
    sides.target[(block + 1) * kBlock - 1] = 2;
  }
  return sides;
}

void Memcmp(const uint8_t* a, const uint8_t* b, size_t bytes, size_t block_size,
            uint64_t* changed) noexcept {
  for (size_t block = 0; block * block_size < bytes; ++block) {
    if (block % 64 == 0) changed[block / 64] = 0;
    const size_t at = block * block_size;
    if (std::memcmp(a + at, b + at, block_size) != 0) {
      changed[block / 64] |= uint64_t{1} << (block % 64);
    }
  }
}

void Limit(const uint8_t* a, const uint8_t* b, size_t bytes, size_t, uint64_t* changed) noexcept {
  uint64_t any = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word_a;
    uint64_t word_b;
    std::memcpy(&word_a, a + i, 8);
    std::memcpy(&word_b, b + i, 8);
    any |= word_a ^ word_b;
  }
  *changed = any;
}

void Register(const std::string& pattern, const Sides& sides) {
  const auto add = [&](const std::string& impl, CompareBlocksFn* compare) {
    const std::string name =
        "compare/" + pattern + "/" + std::to_string(sides.base.size()) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [=, &sides](benchmark::State& state) {
      std::vector<uint64_t> changed(sides.base.size() / kBlock / 64 + 1);
      for (auto _ : state) {
        compare(sides.base.data(), sides.target.data(), sides.base.size(), kBlock, changed.data());
        benchmark::DoNotOptimize(changed.data());
        benchmark::ClobberMemory();
      }
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(sides.base.size() * 2));
    });
  };
  ForEachVariant(simd::CompareBlocksVariants(), simd::CompareBlocks(),
                 [&](const std::string& level, const simd::CompareBlocksKernels& kernels) {
                   add(level, kernels.compare);
                 });
  add("memcmp", &Memcmp);
  add("limit", &Limit);
}

const bool registered = [] {
  constexpr size_t kBytes = size_t{1} << 20;
  static const Sides identical = Make(kBytes, 0);
  static const Sides some = Make(kBytes, 100);
  Register("identical", identical);
  Register("changed1e-2", some);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
