// diff/<pattern>/<bytes of a bitmap>/<impl>: the changed extents between two bitmaps, batch by
// batch, through a consumer that touches every cache line of them.
//
//   cbt             the cursor, with the kernel in use
//   sse42, ...      each kernel that runs here, into the same batches
//   ctz             the obvious loop
//   croaring        both bitmaps in CRoaring, its XOR, its iterator
//   limit           reads both bitmaps, returns nothing
//
// Bytes are those read, both bitmaps together.
#include <benchmark/benchmark.h>
#include <roaring/roaring.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/bitmaps.h"
#include "bench/support/huge_memory.h"
#include "bench/support/limit.h"
#include "bench/support/roaring_iterator.h"
#include "bench/support/variants.h"
#include "cbt/bitmap.h"
#include "cbt/units.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kGranularity = 4096;
constexpr unsigned kShift = 12;

using Words = HugeVector<uint64_t>;

// The two bitmaps of a benchmark. The base is random, so that neither is compressible; longer ones
// repeat the first MiB.
class Inputs {
 public:
  Inputs(const Pattern& pattern, size_t bytes) : base_(bytes / 8), target_(bytes / 8) {
    std::mt19937_64 random(3);
    const std::vector<uint64_t> differences = Differences(pattern, base_.size());
    constexpr size_t kPeriod = kMiB / 8;
    for (size_t i = 0; i < base_.size(); ++i) {
      base_[i] = i < kPeriod ? random() : base_[i - kPeriod];
      target_[i] = base_[i] ^ differences[i];
    }
  }

  const Words& base() const { return base_; }
  const Words& target() const { return target_; }

  // Created on first use and kept: repetitions run in any order.
  static const Inputs& Get(const Pattern& pattern, size_t bytes) {
    static std::map<std::pair<std::string, size_t>, std::unique_ptr<Inputs>> all;
    auto& inputs = all[{pattern.name, bytes}];
    if (inputs == nullptr) inputs = std::make_unique<Inputs>(pattern, bytes);
    return *inputs;
  }

 private:
  Words base_;
  Words target_;
};

// The consumer of every implementation's batches.
class Consumer {
 public:
  void operator()(const ExtentBatch& batch) noexcept {
    for (size_t i = 0; i < batch.size(); i += 8) {
      sum_ += batch.offsets()[i] ^ batch.lengths()[i];
    }
    runs_ += batch.size();
    benchmark::DoNotOptimize(sum_);
  }
  uint64_t runs() const { return runs_; }

 private:
  uint64_t sum_ = 0;
  uint64_t runs_ = 0;
};

using Job = std::function<void(const Inputs&, Consumer&)>;

void Cursor(const Inputs& inputs, Consumer& consume) {
  const auto view = [](const Words& words) {
    return *BitmapView::Create({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8},
                               0, words.size() * 64);
  };
  auto cursor = *MakeBorrowedBitmapCursor(
      view(inputs.base()), view(inputs.target()), BitmapOp::kXor,
      {.capacity = inputs.base().size() * 64 * kGranularity, .granularity = kGranularity});
  ExtentBatch batch;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = *cursor->Next(batch);
    consume(batch);
  }
}

void Kernel(simd::ExtractRunsFn* scan, const Inputs& inputs, Consumer& consume) {
  const auto* base = reinterpret_cast<const uint8_t*>(inputs.base().data());
  const auto* target = reinterpret_cast<const uint8_t*>(inputs.target().data());
  const size_t words = inputs.base().size();
  ExtentBatch batch;
  uint64_t open = 0;
  for (size_t done = 0; done < words;) {
    uint64_t* const offsets = batch.mutable_offsets();
    // The last word's surplus would go to the next batch; dropping it here does not affect the
    // time.
    const simd::RunScan scanned =
        scan(base + done * 8, target + done * 8, words - done, uint64_t{done} * 64 * kGranularity,
             kShift, open, offsets, batch.mutable_lengths(), batch.capacity() - 32);
    done += scanned.words;
    open = scanned.open;
    const uint64_t open_start = offsets[scanned.runs];
    batch.set_size(scanned.runs);
    consume(batch);
    offsets[0] = open_start;
  }
}

// The obvious loop: word by word, edge by edge.
void Ctz(const Inputs& inputs, Consumer& consume) {
  const uint64_t* const base = inputs.base().data();
  const uint64_t* const target = inputs.target().data();
  const size_t words = inputs.base().size();
  ExtentBatch batch;
  uint64_t carry = 0;
  uint64_t start = 0;
  uint64_t* offsets = batch.mutable_offsets();
  uint64_t* lengths = batch.mutable_lengths();
  size_t runs = 0;
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = base[i] ^ target[i];
    uint64_t edges = word ^ (word << 1 | carry);
    uint64_t open = carry;
    carry = word >> 63;
    while (edges != 0) {
      const uint64_t offset = (i * 64 + static_cast<uint64_t>(__builtin_ctzll(edges))) << kShift;
      if (open != 0) {
        offsets[runs] = start;
        lengths[runs] = offset - start;
        ++runs;
      } else {
        start = offset;
      }
      open ^= 1;
      edges &= edges - 1;
    }
    if (runs >= batch.capacity() - 32) {
      batch.set_size(runs);
      consume(batch);
      runs = 0;
    }
  }
  if (carry != 0) {
    offsets[runs] = start;
    lengths[runs] = (uint64_t{words} * 64 << kShift) - start;
    ++runs;
  }
  batch.set_size(runs);
  consume(batch);
}

// A CRoaring bitmap of dense words, made through its portable bytes, which is fast.
class Roaring {
 public:
  explicit Roaring(const Words& words) {
    constexpr size_t kContainer = 1024;  // words
    std::string head;
    std::string body;
    std::vector<uint32_t> sizes;
    std::string keys;
    for (size_t at = 0; at < words.size(); at += kContainer) {
      uint64_t count = 0;
      for (size_t i = 0; i < kContainer; ++i) {
        count += static_cast<uint64_t>(__builtin_popcountll(words[at + i]));
      }
      if (count == 0) continue;
      Append(keys, static_cast<uint16_t>(at / kContainer));
      Append(keys, static_cast<uint16_t>(count - 1));
      sizes.push_back(static_cast<uint32_t>(body.size()));
      if (count > 4096) {
        body.append(reinterpret_cast<const char*>(&words[at]), kContainer * 8);
        continue;
      }
      for (size_t i = 0; i < kContainer; ++i) {
        for (uint64_t word = words[at + i]; word != 0; word &= word - 1) {
          Append(body,
                 static_cast<uint16_t>(i * 64 + static_cast<unsigned>(__builtin_ctzll(word))));
        }
      }
    }
    Append(head, uint32_t{12346});
    Append(head, static_cast<uint32_t>(sizes.size()));
    head += keys;
    const auto start = static_cast<uint32_t>(head.size() + sizes.size() * 4);
    for (const uint32_t size : sizes) Append(head, start + size);
    head += body;
    bitmap_ = roaring_bitmap_portable_deserialize_safe(head.data(), head.size());
    if (bitmap_ == nullptr) std::abort();
    roaring_bitmap_run_optimize(bitmap_);
  }
  ~Roaring() { roaring_bitmap_free(bitmap_); }
  Roaring(const Roaring&) = delete;
  Roaring& operator=(const Roaring&) = delete;

  const roaring_bitmap_t* get() const { return bitmap_; }

 private:
  template <typename T>
  static void Append(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  roaring_bitmap_t* bitmap_;
};

void Croaring(const Roaring& base, const Roaring& target, Consumer& consume) {
  roaring_bitmap_t* const changed = roaring_bitmap_xor(base.get(), target.get());
  roaring_uint32_iterator_t iterator;
  StartRoaring(changed, &iterator);
  ExtentBatch batch;
  uint32_t values[1024];
  Extent extent;
  for (;;) {
    const uint32_t count = ReadRoaring(&iterator, values, 1024);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t offset = uint64_t{values[i]} << kShift;
      if (offset == extent.end() && extent.length != 0) {
        extent.length += kGranularity;
        continue;
      }
      if (extent.length != 0) batch.push_back(extent);
      if (batch.full()) {
        consume(batch);
        batch.clear();
      }
      extent = {offset, kGranularity};
    }
    if (count < 1024) break;
  }
  if (extent.length != 0) batch.push_back(extent);
  consume(batch);
  roaring_bitmap_free(changed);
}

void Limit(const Inputs& inputs, Consumer&) {
  uint64_t any = ReadBoth(inputs.base().data(), inputs.target().data(), inputs.base().size() * 8);
  benchmark::DoNotOptimize(any);
}

void Run(benchmark::State& state, const Inputs& inputs, const Job& job) {
  Consumer consumer;
  for (auto _ : state) job(inputs, consumer);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(inputs.base().size() * 16));
  state.counters["runs_per_second"] =
      benchmark::Counter(static_cast<double>(consumer.runs()), benchmark::Counter::kIsRate);
}

void Register(const Pattern& pattern, size_t bytes) {
  const std::string name = "diff/" + pattern.name + "/" + std::to_string(bytes) + "/";
  const auto add = [&](const std::string& impl, Job job) {
    benchmark::RegisterBenchmark((name + impl).c_str(), [=](benchmark::State& state) {
      Run(state, Inputs::Get(pattern, bytes), job);
    })->UseRealTime();
  };
  add("cbt", &Cursor);
  for (const auto& variant : simd::ExtractRunsVariants()) {
    if (!simd::IsRunnable(variant.level)) continue;
    add(SimdLevelName(variant.level),
        [scan = variant.kernels->exclusive](const Inputs& inputs, Consumer& consumer) {
          Kernel(scan, inputs, consumer);
        });
  }
  add("ctz", &Ctz);
  add("limit", &Limit);
  benchmark::RegisterBenchmark((name + "croaring").c_str(), [=](benchmark::State& state) {
    const Inputs& inputs = Inputs::Get(pattern, bytes);
    const Roaring base(inputs.base());
    const Roaring target(inputs.target());
    Run(state, inputs,
        [&](const Inputs&, Consumer& consumer) { Croaring(base, target, consumer); });
  })->UseRealTime();
}

const bool registered = [] {
  for (const size_t bytes : {kMiB, 256 * kMiB}) {
    for (const Pattern& pattern : DiffPatterns()) Register(pattern, bytes);
  }
  return true;
}();

}  // namespace
}  // namespace cbt::bench
