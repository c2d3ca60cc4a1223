// compare/<pattern>/<bytes of a side>/<impl>: which blocks of 4096 bytes differ, as extents.
//
//   cbt             the cursor, with the kernel in use
//   sse42, ...      each kernel that runs here, one bit per block
//   memcmp          the obvious loop, one bit per block
//   limit           reads both sides, returns nothing
//
// Bytes are those of both sides together, even if a difference leaves some of them unread.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/huge_memory.h"
#include "bench/support/limit.h"
#include "cbt/memory.h"
#include "cbt/units.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

constexpr size_t kBlock = 4096;

struct Pattern {
  const char* name;
  double changed;  // blocks, each in one byte somewhere
};
constexpr Pattern kPatterns[] = {{"identical", 0}, {"changed1e-2", 0.01}, {"all", 1}};

struct Sides {
  Sides(const Pattern& pattern, size_t bytes) : base(bytes), target(bytes) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = i * 0x9e3779b97f4a7c15u;
      std::memcpy(&base[i], &word, 8);
    }
    target = base;
    std::bernoulli_distribution changed(pattern.changed);
    for (size_t block = 0; block < bytes / kBlock; ++block) {
      if (changed(random)) target[block * kBlock + random() % kBlock] ^= 1;
    }
  }
  static const Sides& Get(const Pattern& pattern, size_t bytes) {
    static std::map<std::pair<std::string, size_t>, std::unique_ptr<Sides>> all;
    auto& sides = all[{pattern.name, bytes}];
    if (sides == nullptr) sides = std::make_unique<Sides>(pattern, bytes);
    return *sides;
  }
  HugeVector<uint8_t> base;
  HugeVector<uint8_t> target;
};

using Job = std::function<void(const Sides&, std::vector<uint64_t>& bits)>;

void Cursor(const Sides& sides, std::vector<uint64_t>&) {
  auto cursor = *MakeBorrowedMemoryDeltaCursor(sides.base, sides.target);
  ExtentBatch batch;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = *cursor->Next(batch);
    benchmark::DoNotOptimize(batch.mutable_offsets());
    benchmark::ClobberMemory();
  }
}

void Memcmp(const Sides& sides, std::vector<uint64_t>& bits) {
  for (size_t block = 0; block * kBlock < sides.base.size(); ++block) {
    if (block % 64 == 0) bits[block / 64] = 0;
    if (std::memcmp(&sides.base[block * kBlock], &sides.target[block * kBlock], kBlock) != 0) {
      bits[block / 64] |= uint64_t{1} << (block % 64);
    }
  }
}

void Limit(const Sides& sides, std::vector<uint64_t>& bits) {
  bits[0] = ReadBoth(sides.base.data(), sides.target.data(), sides.base.size());
}

void Register(const Pattern& pattern, size_t bytes) {
  const auto add = [&](const std::string& impl, Job job) {
    const std::string name =
        std::string("compare/") + pattern.name + "/" + std::to_string(bytes) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const Sides& sides = Sides::Get(pattern, bytes);
      std::vector<uint64_t> bits(bytes / kBlock / 64 + 1);
      for (auto _ : state) {
        job(sides, bits);
        benchmark::DoNotOptimize(bits.data());
        benchmark::ClobberMemory();
      }
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes * 2));
    })->UseRealTime();
  };
  add("cbt", &Cursor);
  for (const auto& variant : simd::CompareBlocksVariants()) {
    if (!simd::IsRunnable(variant.level)) continue;
    add(SimdLevelName(variant.level),
        [compare = variant.kernels->compare](const Sides& sides, std::vector<uint64_t>& bits) {
          compare(sides.base.data(), sides.target.data(), sides.base.size(), kBlock, bits.data());
        });
  }
  add("memcmp", &Memcmp);
  add("limit", &Limit);
}

const bool registered = [] {
  for (const size_t bytes : {kMiB, 256 * kMiB}) {
    for (const Pattern& pattern : kPatterns) Register(pattern, bytes);
  }
  return true;
}();

}  // namespace
}  // namespace cbt::bench
