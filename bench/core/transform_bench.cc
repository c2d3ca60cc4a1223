// transform/<operation>/<extents>/<impl>: extents through one transform, from lists in memory.
// seek/<source>/<extents or blocks>/cbt: a position anywhere in a volume of 64 TiB, and the first
// sixteen extents from there.
//
//   cbt   the cursor
//   std   the obvious loop with the standard library, from and to vectors of extents
//
// Items are the input extents; for seek, positions.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kCapacity = 64 * kTiB;
constexpr uint64_t kBlock = 4096;
constexpr size_t kExtents = size_t{1} << 20;

using List = std::vector<Extent>;

// `count` ascending extents of 1 to 16 blocks over the volume.
List MakeList(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t stride = kCapacity / kBlock / count;
  List list;
  list.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = i * stride + random() % (stride - 16);
    list.push_back({at * kBlock, (1 + random() % 16) * kBlock});
  }
  return list;
}

// Lists whose extents lie close together, so that many overlap.
std::vector<List> MakeLists(size_t lists) {
  std::vector<List> all;
  for (size_t i = 0; i < lists; ++i) all.push_back(MakeList(kExtents / lists, i + 1));
  return all;
}

std::unique_ptr<ExtentCursor> Over(const List& list) {
  return *MakeExtentCursor(list, {.capacity = kCapacity, .granularity = kBlock});
}

using Make = std::function<std::unique_ptr<ExtentCursor>()>;
using Loop = std::function<void(List& out)>;

void Register(const std::string& operation, const Make& make, const Loop& loop) {
  const std::string name = "transform/" + operation + "/" + std::to_string(kExtents) + "/";
  benchmark::RegisterBenchmark((name + "cbt").c_str(), [=](benchmark::State& state) {
    const auto cursor = make();
    ExtentBatch batch;
    for (auto _ : state) {
      if (!cursor->Seek(0).ok()) std::abort();
      for (Step step = Step::kMore; step == Step::kMore;) {
        step = *cursor->Next(batch);
        benchmark::DoNotOptimize(batch.mutable_offsets());
        benchmark::ClobberMemory();
      }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kExtents));
  })->UseRealTime();
  benchmark::RegisterBenchmark((name + "std").c_str(), [=](benchmark::State& state) {
    List out;
    out.reserve(2 * kExtents);
    for (auto _ : state) {
      out.clear();
      loop(out);
      benchmark::DoNotOptimize(out.data());
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kExtents));
  })->UseRealTime();
}

// Adds an extent to a list whose last one it may touch or overlap.
void Append(List& out, const Extent& extent, uint64_t gap = 0) {
  if (!out.empty() && extent.offset <= out.back().end() + gap) {
    out.back().length = std::max(out.back().end(), extent.end()) - out.back().offset;
  } else {
    out.push_back(extent);
  }
}

void RegisterMerge(size_t count) {
  static std::vector<std::unique_ptr<const std::vector<List>>> kept;
  kept.push_back(std::make_unique<const std::vector<List>>(MakeLists(count)));
  const std::vector<List>& lists = *kept.back();
  Register(
      "merge" + std::to_string(count),
      [&lists] {
        std::vector<std::unique_ptr<ExtentCursor>> inputs;
        for (const List& list : lists) inputs.push_back(Over(list));
        return *Union(std::move(inputs));
      },
      [&lists](List& out) {
        using Head = std::pair<uint64_t, size_t>;  // offset, list
        std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
        std::vector<size_t> next(lists.size());
        for (size_t i = 0; i < lists.size(); ++i) heads.emplace(lists[i].front().offset, i);
        while (!heads.empty()) {
          const size_t list = heads.top().second;
          heads.pop();
          Append(out, lists[list][next[list]]);
          if (++next[list] < lists[list].size()) {
            heads.emplace(lists[list][next[list]].offset, list);
          }
        }
      });
}

void RegisterOthers() {
  static const List list = MakeList(kExtents, 1);
  static const List other = MakeList(kExtents, 2);
  constexpr uint64_t kGap = 32 * kMiB;
  Register(
      "coalesce", [] { return *Coalesce(Over(list), kGap); },
      [](List& out) {
        for (const Extent& extent : list) Append(out, extent, kGap);
      });
  constexpr uint64_t kMost = 8 * kBlock;
  Register(
      "split", [] { return *Split(Over(list), kMost); },
      [](List& out) {
        for (Extent extent : list) {
          for (; extent.length > kMost; extent = {extent.offset + kMost, extent.length - kMost}) {
            out.push_back({extent.offset, kMost});
          }
          out.push_back(extent);
        }
      });
  constexpr uint64_t kUnit = kMiB;
  Register(
      "align", [] { return *AlignOutward(Over(list), kUnit); },
      [](List& out) {
        for (const Extent& extent : list) {
          const uint64_t begin = AlignDown(extent.offset, kUnit);
          Append(out, {begin, std::min(AlignUp(extent.end(), kUnit), kCapacity) - begin});
        }
      });
  // Nearly all, so that items are about the input's.
  static constexpr uint64_t kBegin = kCapacity / 1000 + 1;
  static constexpr uint64_t kEnd = kCapacity - kBegin;
  Register(
      "clip", [] { return *Clip(Over(list), kBegin, kEnd); },
      [](List& out) {
        for (const Extent& extent : list) {
          const uint64_t begin = std::max(extent.offset, kBegin);
          const uint64_t end = std::min(extent.end(), kEnd);
          if (begin < end) out.push_back({begin, end - begin});
        }
      });
  const auto overlap = [](List& out) {
    for (size_t i = 0, j = 0; i < list.size() && j < other.size();) {
      const uint64_t begin = std::max(list[i].offset, other[j].offset);
      const uint64_t end = std::min(list[i].end(), other[j].end());
      if (begin < end) Append(out, {begin, end - begin});
      if (list[i].end() < other[j].end()) {
        ++i;
      } else {
        ++j;
      }
    }
  };
  Register(
      "intersect", [] { return *Intersect(Over(list), Over(other)); }, overlap);
}

void RegisterSeek(const std::string& name, const Make& make) {
  benchmark::RegisterBenchmark(("seek/" + name + "/cbt").c_str(), [=](benchmark::State& state) {
    const auto cursor = make();
    ExtentBatch batch(16);
    std::mt19937_64 random(1);
    for (auto _ : state) {
      if (!cursor->Seek(random() % kCapacity).ok() || !cursor->Next(batch).ok()) std::abort();
      benchmark::DoNotOptimize(batch.mutable_offsets());
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations());
  })->UseRealTime();
}

// 2^34 bits, 2 GiB, in 16 MiB of memory: one file, mapped repeatedly.
BitmapView HugeBitmap() {
  constexpr size_t kBytes = size_t{1} << 31;
  constexpr size_t kFile = size_t{1} << 24;
  FILE* const file = std::tmpfile();
  if (file == nullptr) std::abort();
  std::mt19937_64 random(1);
  std::vector<uint8_t> bytes(kFile);
  for (size_t i = 0; i < kFile; i += 1 + random() % 200) bytes[i] = 1;
  if (std::fwrite(bytes.data(), 1, kFile, file) != kFile || std::fflush(file) != 0) std::abort();
  void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t at = 0; at < kBytes; at += kFile) {
    if (mmap(static_cast<uint8_t*>(memory) + at, kFile, PROT_READ,
             MAP_SHARED | MAP_FIXED | MAP_POPULATE, fileno(file), 0) == MAP_FAILED) {
      std::abort();
    }
  }
  std::fclose(file);
  return *BitmapView::Create({static_cast<const uint8_t*>(memory), kBytes}, 0,
                             uint64_t{kBytes} * 8);
}

const bool registered = [] {
  RegisterMerge(2);
  RegisterMerge(16);
  RegisterOthers();
  for (const size_t count : {size_t{1} << 10, size_t{1} << 20, size_t{1} << 24}) {
    RegisterSeek("extents/" + std::to_string(count), [count] { return Over(MakeList(count, 3)); });
  }
  RegisterSeek("bitmap/17179869184", [] {
    static const BitmapView bitmap = HugeBitmap();
    return *MakeBorrowedBitmapCursor(bitmap, {.capacity = kCapacity, .granularity = kBlock});
  });
  return true;
}();

}  // namespace
}  // namespace cbt::bench
