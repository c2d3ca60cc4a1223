// track/<threads>/<bytes of a volume>/<impl>: ranges of 4 KiB to 1 MiB at random places of a volume
// of blocks of 4 KiB are marked as written; items are ranges.
//
//   cbt      ChangeTracker::Mark()
//   begin    ChangeTracker::Begin() and End()
//   atomic   a fetch_or for each word
//   mutex    a lock around std::vector<bool>
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cbt/change_tracker.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kCapacity = kTiB;
constexpr uint64_t kBlocks = kCapacity / kBlock;

struct Range {
  uint64_t begin;  // blocks
  uint64_t end;
};

// The ranges of one thread.
const std::vector<Range>& Ranges(int thread) {
  static const std::vector<std::vector<Range>> all = [] {
    std::vector<std::vector<Range>> ranges(2);
    for (size_t t = 0; t < ranges.size(); ++t) {
      std::mt19937_64 random(t);
      for (int i = 0; i < 1 << 16; ++i) {
        const uint64_t length = 1 + random() % 256;
        const uint64_t begin = random() % (kBlocks - length);
        ranges[t].push_back({begin, begin + length});
      }
    }
    return ranges;
  }();
  return all[static_cast<size_t>(thread)];
}

ChangeTracker& Tracker() {
  static const std::unique_ptr<ChangeTracker> tracker =
      *ChangeTracker::Create({.geometry = {kCapacity, kBlock}});
  return *tracker;
}

std::vector<std::atomic<uint64_t>>& Words() {
  static std::vector<std::atomic<uint64_t>> words(kBlocks / 64);
  return words;
}

void MarkTracker(const Range& range) {
  benchmark::DoNotOptimize(
      Tracker().Mark({range.begin * kBlock, (range.end - range.begin) * kBlock}));
}

void BeginTracker(const Range& range) {
  benchmark::DoNotOptimize(
      Tracker().Begin({range.begin * kBlock, (range.end - range.begin) * kBlock}));
}

void MarkAtomic(const Range& range) {
  std::vector<std::atomic<uint64_t>>& words = Words();
  const uint64_t first = range.begin / 64;
  const uint64_t last = (range.end - 1) / 64;
  for (uint64_t i = first; i <= last; ++i) {
    uint64_t bits = ~uint64_t{0};
    if (i == first) bits &= ~uint64_t{0} << range.begin % 64;
    if (i == last) bits &= ~uint64_t{0} >> (63 - (range.end - 1) % 64);
    words[i].fetch_or(bits);
  }
}

void MarkMutex(const Range& range) {
  static std::mutex mutex;
  static std::vector<bool> bits(kBlocks);
  const std::lock_guard<std::mutex> lock(mutex);
  std::fill(bits.begin() + static_cast<std::ptrdiff_t>(range.begin),
            bits.begin() + static_cast<std::ptrdiff_t>(range.end), true);
}

void Register(const char* impl, void (*mark)(const Range&)) {
  for (const int threads : {1, 2}) {
    const std::string name = "track/" + std::to_string(threads) +
                             (threads == 1 ? "thread/" : "threads/") + std::to_string(kCapacity) +
                             "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                   const std::vector<Range>& ranges = Ranges(state.thread_index());
                                   for (const Range& range : ranges)
                                     mark(range);  // touches the memory
                                   size_t next = 0;
                                   for (auto _ : state) {
                                     for (int i = 0; i < 64; ++i)
                                       mark(ranges[next++ % ranges.size()]);
                                   }
                                   state.SetItemsProcessed(state.iterations() * 64);
                                 })
        ->Threads(threads)
        ->UseRealTime();
  }
}

const bool registered = [] {
  Register("cbt", &MarkTracker);
  Register("begin", &BeginTracker);
  Register("atomic", &MarkAtomic);
  Register("mutex", &MarkMutex);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
