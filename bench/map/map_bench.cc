// Change maps against CRoaring and dense bitmaps.
//
//   map_to_runs/<kind>/<blocks>/<impl>      the extents of a map, batch by batch: 16 bytes each
//   map_coarser/<kind>/<blocks>/<impl>      a map of blocks of 4 KiB in blocks of 64 KiB
//   map_from_bitmap/<pattern>/<blocks>/...  a map of a dense bitmap: bytes are those of the bitmap
//   union/<pattern>/<blocks>/...            30 daily maps united: items are maps
//   size/<pattern>/<blocks>/...             bytes per extent (a counter; ignore the time)
//
//   cbt            the public interface
//   croaring       its iterator and a loop that unites; pairwise in-place unions
//   add_many, add_range   CRoaring from the positions, or the runs, of set bits
//   dense          bitmaps, OR of words
//   extents        the map made anew from its extents
//   limit          writes as many extents from two vectors
#include <benchmark/benchmark.h>
#include <roaring/roaring.h>
#include <zstd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/bitmaps.h"
#include "bench/support/huge_memory.h"
#include "bench/support/roaring_iterator.h"
#include "cbt/batch.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kGranularity = 4096;

using Words = HugeVector<uint64_t>;

VolumeGeometry GeometryOf(uint64_t blocks) { return {blocks * kGranularity, kGranularity}; }

BitmapView ViewOf(const Words& words) {
  return *BitmapView::Create({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8}, 0,
                             words.size() * 64);
}

struct Free {
  void operator()(roaring_bitmap_t* bitmap) const { roaring_bitmap_free(bitmap); }
};
using Roaring = std::unique_ptr<roaring_bitmap_t, Free>;

Roaring RoaringOf(const ChangeMap& map) {
  const std::vector<uint8_t> bytes = *map.ToPortable32();
  Roaring bitmap(roaring_bitmap_portable_deserialize_safe(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (bitmap == nullptr) std::abort();
  return bitmap;
}

// All inputs are created once, before the first repetition that needs them.
template <typename T>
const T& Once(const std::string& name, const std::function<T()>& make) {
  static std::map<std::string, std::unique_ptr<T>> all;
  std::unique_ptr<T>& one = all[name];
  if (one == nullptr) one = std::make_unique<T>(make());
  return *one;
}

Words BitsOf(const std::string& name, uint64_t blocks) {
  const size_t words = blocks / 64;
  Words bits(words);
  for (const Pattern& pattern : DiffPatterns()) {
    if (pattern.name != name) continue;
    const std::vector<uint64_t> differences = Differences(pattern, words);
    std::copy(differences.begin(), differences.end(), bits.begin());
  }
  return bits;
}

void Touch(const ExtentBatch& batch, uint64_t& sum) noexcept {
  for (size_t i = 0; i < batch.size(); i += 8) sum += batch.offsets()[i] ^ batch.lengths()[i];
}

uint64_t Drain(ExtentCursor& cursor) {
  ExtentBatch batch;
  uint64_t sum = 0;
  uint64_t extents = 0;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = *cursor.Next(batch);
    Touch(batch, sum);
    extents += batch.size();
  }
  benchmark::DoNotOptimize(sum);
  return extents;
}

// ---- map_to_runs

constexpr uint64_t kRunBlocks = uint64_t{1} << 24;

// Containers of one kind, or of all kinds in turn.
ChangeMap MapOfKind(const std::string& kind) {
  Words bits(kRunBlocks / 64);
  const Words sparse = BitsOf("random1e-2", kRunBlocks);
  const Words dense = BitsOf("random5e-1", kRunBlocks);
  const std::vector<uint64_t> runs = Runs(bits.size(), 40, 60, 5);
  for (size_t i = 0; i < bits.size(); ++i) {
    const size_t turn = i / 1024 % 3;
    const std::string now = kind != "mixed" ? kind
                            : turn == 0     ? "array"
                            : turn == 1     ? "bitset"
                                            : "run";
    bits[i] = now == "array" ? sparse[i] : now == "bitset" ? dense[i] : runs[i];
  }
  return *ChangeMap::FromBitmap(ViewOf(bits), GeometryOf(kRunBlocks));
}

const ChangeMap& Kind(const std::string& kind) {
  return Once<ChangeMap>("kind " + kind, [kind] { return MapOfKind(kind); });
}

// The obvious loop with an iterator: values one by one into extents.
uint64_t DrainRoaring(const Roaring& bitmap) {
  roaring_uint32_iterator_t iterator;
  StartRoaring(bitmap.get(), &iterator);
  ExtentBatch batch;
  uint64_t sum = 0;
  uint64_t extents = 0;
  uint32_t values[1024];
  Extent open;
  for (;;) {
    const uint32_t count = ReadRoaring(&iterator, values, 1024);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t offset = uint64_t{values[i]} * kGranularity;
      if (open.length != 0 && open.end() == offset) {
        open.length += kGranularity;
        continue;
      }
      if (open.length != 0) batch.push_back(open);
      open = {offset, kGranularity};
      if (batch.full()) {
        Touch(batch, sum);
        extents += batch.size();
        batch.clear();
      }
    }
    if (count < 1024) break;
  }
  benchmark::DoNotOptimize(sum);
  return extents + batch.size() + (open.length != 0 ? 1 : 0);
}

// Only the stores.
uint64_t WriteExtents(uint64_t extents) {
  ExtentBatch batch;
  uint64_t sum = 0;
  for (uint64_t done = 0; done < extents; done += batch.size()) {
    const uint64_t size = std::min<uint64_t>(extents - done, batch.capacity());
    uint64_t* const offsets = batch.mutable_offsets();
    uint64_t* const lengths = batch.mutable_lengths();
    for (uint64_t i = 0; i < size; ++i) {
      offsets[i] = (done + i) << 13;
      lengths[i] = kGranularity;
    }
    batch.set_size(size);
    Touch(batch, sum);
  }
  benchmark::DoNotOptimize(sum);
  return extents;
}

void RegisterToRuns(const std::string& kind) {
  const auto add = [&kind](const char* impl, const std::function<uint64_t()>& work) {
    const std::string name = "map_to_runs/" + kind + "/" + std::to_string(kRunBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [work](benchmark::State& state) {
      uint64_t extents = work();  // makes the inputs
      for (auto _ : state) extents = work();
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(16 * extents));
    });
  };
  add("cbt", [kind] { return Drain(*MakeChangeMapCursor(Kind(kind))); });
  add("croaring",
      [kind] { return DrainRoaring(Once<Roaring>(kind, [&] { return RoaringOf(Kind(kind)); })); });
  add("limit", [kind] {
    return WriteExtents(Once<uint64_t>(kind, [&] { return Kind(kind)->Statistics().runs; }));
  });
}

// ---- map_coarser

void RegisterCoarser(const std::string& kind) {
  constexpr uint64_t kCoarse = 16 * kGranularity;
  const auto add = [&kind](const char* impl,
                           const std::function<absl::StatusOr<ChangeMap>()>& work) {
    const std::string name = "map_coarser/" + kind + "/" + std::to_string(kRunBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [work](benchmark::State& state) {
      if (!work().ok()) std::abort();  // makes the inputs
      for (auto _ : state) benchmark::DoNotOptimize(work());
      state.SetItemsProcessed(state.iterations());
    });
  };
  add("cbt", [kind] { return WithGranularity(Kind(kind), kCoarse); });
  add("extents",
      [kind] { return ChangeMap::FromCursor(*MakeChangeMapCursor(Kind(kind)), kCoarse); });
}

// ---- map_from_bitmap

Roaring AddMany(const Words& words) {
  Roaring bitmap(roaring_bitmap_create());
  std::vector<uint32_t> values;
  values.reserve(8192);
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint64_t word = words[i]; word != 0; word &= word - 1) {
      values.push_back(static_cast<uint32_t>(i * 64 + unsigned(__builtin_ctzll(word))));
    }
    if (values.size() > 8192 - 64 || i + 1 == words.size()) {
      roaring_bitmap_add_many(bitmap.get(), values.size(), values.data());
      values.clear();
    }
  }
  return bitmap;
}

// Edge by edge, the obvious way to find runs.
Roaring AddRange(const Words& words) {
  Roaring bitmap(roaring_bitmap_create());
  uint64_t carry = 0;
  uint64_t start = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    uint64_t edges = words[i] ^ (words[i] << 1 | carry);
    uint64_t open = carry;
    carry = words[i] >> 63;
    for (; edges != 0; edges &= edges - 1, open ^= 1) {
      const uint64_t edge = i * 64 + static_cast<uint64_t>(__builtin_ctzll(edges));
      if (open != 0) roaring_bitmap_add_range(bitmap.get(), start, edge);
      start = edge;
    }
  }
  if (carry != 0) roaring_bitmap_add_range(bitmap.get(), start, words.size() * 64);
  return bitmap;
}

void RegisterFromBitmap(const std::string& pattern) {
  const auto bits = [pattern]() -> const Words& {
    return Once<Words>("bits " + pattern, [pattern] { return BitsOf(pattern, kRunBlocks); });
  };
  const auto add = [&](const char* impl, const std::function<void(const Words&)>& work) {
    const std::string name =
        "map_from_bitmap/" + pattern + "/" + std::to_string(kRunBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [bits, work](benchmark::State& state) {
      const Words& words = bits();
      for (auto _ : state) work(words);
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(8 * words.size()));
    });
  };
  add("cbt", [](const Words& words) {
    benchmark::DoNotOptimize(ChangeMap::FromBitmap(ViewOf(words), GeometryOf(words.size() * 64)));
  });
  add("add_many", [](const Words& words) { benchmark::DoNotOptimize(AddMany(words)); });
  add("add_range", [](const Words& words) { benchmark::DoNotOptimize(AddRange(words)); });
}

// ---- union

constexpr uint64_t kUnionBlocks = uint64_t{1} << 26;  // 256 GiB
constexpr size_t kDays = 30;

// A thousandth of the volume a day, as single blocks or as runs of 64.
struct Days {
  explicit Days(const std::string& pattern) {
    for (size_t day = 0; day < kDays; ++day) {
      Words bits(kUnionBlocks / 64);
      std::mt19937_64 random(day);
      const uint64_t run = pattern == "random" ? 1 : 64;
      for (uint64_t n = kUnionBlocks / 1000 / run; n > 0; --n) {
        const uint64_t begin = random() % (kUnionBlocks - run);
        for (uint64_t b = begin; b < begin + run; ++b) bits[b / 64] |= uint64_t{1} << b % 64;
      }
      maps.push_back(*ChangeMap::FromBitmap(ViewOf(bits), GeometryOf(kUnionBlocks)));
      views.push_back(maps.back());
      bitmaps.push_back(RoaringOf(maps.back()));
      dense.push_back(std::move(bits));
    }
  }
  std::vector<ChangeMap> maps;
  std::vector<ChangeMapView> views;
  std::vector<Roaring> bitmaps;
  std::vector<Words> dense;
};

void RegisterUnion(const std::string& pattern) {
  const auto add = [&](const char* impl, const std::function<void(const Days&)>& work) {
    const std::string name = "union/" + pattern + "/" + std::to_string(kUnionBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [pattern, work](benchmark::State& state) {
      const std::function<Days()> make = [&pattern] { return Days(pattern); };
      const Days& days = Once<Days>(pattern, make);
      for (auto _ : state) work(days);
      state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kDays));
    });
  };
  add("cbt", [](const Days& days) { benchmark::DoNotOptimize(Union(days.views)); });
  add("croaring", [](const Days& days) {
    const Roaring all(roaring_bitmap_copy(days.bitmaps.front().get()));
    for (size_t i = 1; i < kDays; ++i) {
      roaring_bitmap_or_inplace(all.get(), days.bitmaps[i].get());
    }
    benchmark::DoNotOptimize(all.get());
  });
  add("croaring_many", [](const Days& days) {
    const roaring_bitmap_t* all[kDays];
    for (size_t i = 0; i < kDays; ++i) all[i] = days.bitmaps[i].get();
    const Roaring united(roaring_bitmap_or_many(kDays, all));
    benchmark::DoNotOptimize(united.get());
  });
  add("dense", [](const Days& days) {
    Words all(days.dense.front());
    for (size_t i = 1; i < kDays; ++i) {
      const uint64_t* const other = days.dense[i].data();
      for (size_t k = 0; k < all.size(); ++k) all[k] |= other[k];
    }
    benchmark::DoNotOptimize(all.data());
  });
}

// ---- size

// No longer than the period of the patterns, which zstd would exploit.
constexpr uint64_t kSizeBlocks = uint64_t{1} << 23;

void RegisterSize(const std::string& pattern) {
  const auto bytes_of = [pattern](const std::string& impl) {
    const Words bits = BitsOf(pattern, kSizeBlocks);
    const ChangeMap map = *ChangeMap::FromBitmap(ViewOf(bits), GeometryOf(kSizeBlocks));
    const double runs = static_cast<double>(map->Statistics().runs);
    double bytes = static_cast<double>(map->portable().size());
    if (impl == "bitmap") bytes = static_cast<double>(bits.size() * 8);
    if (impl == "extents") bytes = 16 * runs;
    if (impl == "zstd") {
      std::vector<char> out(ZSTD_compressBound(bits.size() * 8));
      bytes = static_cast<double>(
          ZSTD_compress(out.data(), out.size(), bits.data(), bits.size() * 8, 3));
    }
    return bytes / runs;
  };
  for (const std::string impl : {"cbt", "bitmap", "extents", "zstd"}) {
    const std::string name = "size/" + pattern + "/" + std::to_string(kSizeBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      double bytes = Once<double>(name, [=] { return bytes_of(impl); });
      for (auto _ : state) benchmark::DoNotOptimize(bytes);
      state.SetItemsProcessed(state.iterations());
      state.counters["bytes_per_extent"] = bytes;
    });
  }
}

const bool registered = [] {
  for (const char* kind : {"array", "bitset", "run", "mixed"}) {
    RegisterToRuns(kind);
    RegisterCoarser(kind);
  }
  for (const char* pattern :
       {"random1e-4", "random1e-3", "random1e-2", "random1e-1", "random5e-1", "clustered"}) {
    RegisterFromBitmap(pattern);
    RegisterSize(pattern);
  }
  for (const char* pattern : {"random", "clustered"}) RegisterUnion(pattern);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
