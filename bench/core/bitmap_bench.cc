// count/<pattern>/<bytes of a bitmap>/<impl>: set bits and runs in the difference of two bitmaps.
// layout/<layout>/<bytes of a bitmap>/<impl>: the extents of family diff, pattern random1e-3, from
// bitmaps that are not little-endian words from their first byte on. `different`: only one of them
// is, and is copied first.
//
//   cbt        the public function or cursor
//   popcount   the obvious loop
//   in-place   the same bitmaps in the default layout
//   limit      reads both bitmaps
//
// Bytes are those read, both bitmaps together.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/support/bitmaps.h"
#include "bench/support/huge_memory.h"
#include "bench/support/limit.h"
#include "cbt/bitmap.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

constexpr size_t kBytes = kMiB;
constexpr uint64_t kBits = kBytes * 8;

struct Inputs {
  explicit Inputs(const Pattern& pattern) : base(kBytes / 8 + 1), target(kBytes / 8 + 1) {
    std::mt19937_64 random(3);
    const std::vector<uint64_t> differences = Differences(pattern, kBytes / 8);
    for (size_t i = 0; i < differences.size(); ++i) {
      base[i] = random();
      target[i] = base[i] ^ differences[i];
    }
  }
  BitmapView Base(uint64_t first_bit, BitmapFormat format) const {
    return View(base, first_bit, format);
  }
  BitmapView Target(uint64_t first_bit, BitmapFormat format) const {
    return View(target, first_bit, format);
  }
  static BitmapView View(const HugeVector<uint64_t>& words, uint64_t first_bit,
                         BitmapFormat format) {
    return *BitmapView::Create({reinterpret_cast<const uint8_t*>(words.data()), kBytes + 8},
                               first_bit, kBits, format);
  }
  HugeVector<uint64_t> base;
  HugeVector<uint64_t> target;
};

void Add(const std::string& name, std::function<void()> job) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    for (auto _ : state) job();
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes * 2));
  })->UseRealTime();
}

void RegisterCount(const Pattern& pattern) {
  const auto inputs = std::make_shared<Inputs>(pattern);
  const std::string name = "count/" + pattern.name + "/" + std::to_string(kBytes) + "/";
  Add(name + "cbt", [inputs] {
    BitmapCounts counts =
        CountBlocks(inputs->Base(0, {}), inputs->Target(0, {}), BitmapOp::kXor, 0, kBits);
    benchmark::DoNotOptimize(counts);
  });
  Add(name + "popcount", [inputs] {
    BitmapCounts counts;
    uint64_t open = 0;
    for (size_t i = 0; i < kBytes / 8; ++i) {
      const uint64_t word = inputs->base[i] ^ inputs->target[i];
      counts.blocks += static_cast<uint64_t>(__builtin_popcountll(word));
      counts.runs += static_cast<uint64_t>(__builtin_popcountll(word & ~(word << 1 | open)));
      open = word >> 63;
    }
    benchmark::DoNotOptimize(counts);
  });
  Add(name + "limit", [inputs] {
    uint64_t any = ReadBoth(inputs->base.data(), inputs->target.data(), kBytes);
    benchmark::DoNotOptimize(any);
  });
}

void Drain(const BitmapView& base, const BitmapView& target) {
  auto cursor = *MakeBorrowedBitmapCursor(base, target, BitmapOp::kXor,
                                          {.capacity = kBits * 4096, .granularity = 4096});
  ExtentBatch batch;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = *cursor->Next(batch);
    benchmark::DoNotOptimize(batch.mutable_offsets());
    benchmark::ClobberMemory();
  }
}

void RegisterLayout(const std::string& layout, uint64_t first_bit, BitmapFormat format,
                    bool different = false) {
  static const auto inputs = std::make_shared<Inputs>(Pattern{"random1e-3", 1e-3, 0});
  const std::string name = "layout/" + layout + "/" + std::to_string(kBytes) + "/";
  // A different layout of the same bits: those of the target are moved to it.
  auto moved = std::make_shared<HugeVector<uint64_t>>(inputs->target);
  if (different) {
    auto* const bytes = reinterpret_cast<uint8_t*>(moved->data());
    for (size_t i = 0; i < kBytes; ++i) {
      uint8_t reversed = 0;
      for (unsigned bit = 0; bit < 8; ++bit) {
        reversed = static_cast<uint8_t>(reversed | (bytes[i] >> bit & 1u) << (7 - bit));
      }
      bytes[i] = reversed;
    }
  }
  Add(name + "cbt", [=] {
    Drain(different ? inputs->Base(0, {}) : inputs->Base(first_bit, format),
          Inputs::View(*moved, first_bit, format));
  });
  Add(name + "in-place", [] { Drain(inputs->Base(0, {}), inputs->Target(0, {})); });
  Add(name + "limit", [] {
    uint64_t any = ReadBoth(inputs->base.data(), inputs->target.data(), kBytes);
    benchmark::DoNotOptimize(any);
  });
}

const bool registered = [] {
  for (const Pattern& pattern : DiffPatterns()) {
    if (pattern.name == "random1e-3" || pattern.name == "random5e-1") RegisterCount(pattern);
  }
  constexpr auto kMaxFirst = BitmapFormat::BitOrder::kMostSignificantFirst;
  constexpr auto kLeastFirst = BitmapFormat::BitOrder::kLeastSignificantFirst;
  RegisterLayout("most-significant-first", 0, {kMaxFirst, false});
  RegisterLayout("inverted", 0, {kLeastFirst, true});
  RegisterLayout("from-bit-3", 3, {kLeastFirst, false});
  RegisterLayout("all-three", 3, {kMaxFirst, true});
  RegisterLayout("words-of-4", 0, {kLeastFirst, false, 4});
  RegisterLayout("words-of-8-most-significant-first", 0, {kMaxFirst, false, 8});
  RegisterLayout("different", 0, {kMaxFirst, false}, true);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
