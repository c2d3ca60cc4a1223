// track/<threads>/<bytes of a volume>/<impl>: ranges of 4 KiB to 1 MiB at random places of a volume
// of blocks of 4 KiB are marked as written, again and again: their bits are set already. Items are
// ranges.
//
//   <threads>-neighbours   blocks, one after the other; two threads take turns at them
//   1thread-new            the ranges in a bitmap without a bit, and without the lines in a cache
//
//   cbt      ChangeTracker::Mark()
//   begin    ChangeTracker::Begin() and End()
//   atomic   a fetch_or for each word
//   mutex    a lock around std::vector<bool>
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
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

constexpr uint64_t kRanges = uint64_t{1} << 16;

// The ranges of one thread.
const std::vector<Range>& Ranges(int thread) {
  static const std::vector<std::vector<Range>> all = [] {
    std::vector<std::vector<Range>> ranges(2);
    for (size_t t = 0; t < ranges.size(); ++t) {
      std::mt19937_64 random(t);
      for (uint64_t i = 0; i < kRanges; ++i) {
        const uint64_t length = 1 + random() % 256;
        const uint64_t begin = random() % (kBlocks - length);
        ranges[t].push_back({begin, begin + length});
      }
    }
    return ranges;
  }();
  return all[static_cast<size_t>(thread)];
}

// Every second block of the front of the volume: those of both threads share words.
const std::vector<Range>& Neighbours(int thread) {
  static const std::vector<std::vector<Range>> all = [] {
    std::vector<std::vector<Range>> ranges(2);
    for (size_t t = 0; t < ranges.size(); ++t) {
      for (uint64_t i = 0; i < kRanges; ++i) ranges[t].push_back({2 * i + t, 2 * i + t + 1});
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

// Two bitmaps, as a tracker has, so that a cleared one is not in a cache either.
size_t current = 0;
std::vector<std::atomic<uint64_t>>& Words() {
  static std::vector<std::atomic<uint64_t>> words[2] = {
      std::vector<std::atomic<uint64_t>>(kBlocks / 64),
      std::vector<std::atomic<uint64_t>>(kBlocks / 64)};
  return words[current];
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

using Mark = void (*)(const Range&);

void Register(const std::string& kind, const std::vector<Range>& (*ranges_of)(int),
              const char* impl, Mark mark) {
  for (const int threads : {1, 2}) {
    const std::string name = "track/" + std::to_string(threads) +
                             (threads == 1 ? "thread" : "threads") + kind + "/" +
                             std::to_string(kCapacity) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                   const std::vector<Range>& ranges =
                                       ranges_of(state.thread_index());
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

void Expect(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

// `clear` clears every bit, outside of the measured time.
void RegisterNew(const char* impl, Mark mark, void (*clear)()) {
  const std::string name = "track/1thread-new/" + std::to_string(kCapacity) + "/" + impl;
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const std::vector<Range>& ranges = Ranges(0);
    for (const Range& range : ranges) mark(range);  // touches the memory
    for (auto _ : state) {
      state.PauseTiming();
      clear();
      state.ResumeTiming();
      for (const Range& range : ranges) mark(range);
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ranges.size()));
  })->UseRealTime();
}

void ClearTracker() {
  Expect(Tracker().OpenEpoch("next"));
  const absl::StatusOr<ChangeMap> map = Tracker().CloseEpoch();
  Expect(map.status());
  Expect(Tracker().Acknowledge(map->identity()));
}

void ClearWords() {
  for (std::atomic<uint64_t>& word : Words()) word.store(0, std::memory_order_relaxed);
  current = 1 - current;
}

const bool registered = [] {
  for (const auto& [impl, mark] :
       std::initializer_list<std::pair<const char*, Mark>>{{"cbt", &MarkTracker},
                                                           {"begin", &BeginTracker},
                                                           {"atomic", &MarkAtomic},
                                                           {"mutex", &MarkMutex}}) {
    Register("", &Ranges, impl, mark);
    Register("-neighbours", &Neighbours, impl, mark);
  }
  RegisterNew("cbt", &MarkTracker, &ClearTracker);
  RegisterNew("atomic", &MarkAtomic, &ClearWords);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
