// parallel/<what>/<bytes of a side>/<threads>: one cursor on several threads.
//
//   diff-<pattern>   extents between two bitmaps, as family diff
//   memory           blocks of 4096 bytes that differ in memory, 1 % of them
//   images           the same in two files in the page cache
//   limit            as many threads that only read both bitmaps, a half each
//
// Bytes are those of both sides together.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/bitmaps.h"
#include "bench/support/huge_memory.h"
#include "bench/support/limit.h"
#include "cbt/bitmap.h"
#include "cbt/memory.h"
#include "cbt/source/image.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

constexpr size_t kBytes = 256 * kMiB;

// The consumer touches every cache line of its input.
void Drain(ExtentCursor& cursor) {
  ExtentBatch batch;
  uint64_t sum = 0;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = *cursor.Next(batch);
    for (size_t i = 0; i < batch.size(); i += 8) sum += batch.offsets()[i] ^ batch.lengths()[i];
    benchmark::DoNotOptimize(sum);
  }
}

struct Sides {
  explicit Sides(const Pattern& pattern) : base(kBytes / 8), target(kBytes / 8) {
    std::mt19937_64 random(3);
    const std::vector<uint64_t> differences = Differences(pattern, base.size());
    constexpr size_t kPeriod = kMiB / 8;
    for (size_t i = 0; i < base.size(); ++i) {
      base[i] = i < kPeriod ? random() : base[i - kPeriod];
      target[i] = base[i] ^ differences[i];
    }
  }
  static const Sides& Get(const Pattern& pattern) {
    static std::map<std::string, std::unique_ptr<Sides>> all;
    auto& sides = all[pattern.name];
    if (sides == nullptr) sides = std::make_unique<Sides>(pattern);
    return *sides;
  }
  static std::span<const uint8_t> Bytes(const HugeVector<uint64_t>& words) {
    return {reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8};
  }
  HugeVector<uint64_t> base;
  HugeVector<uint64_t> target;
};

// Changes a byte in one of a hundred blocks of 4096 bytes.
const Pattern kBlocks{"blocks", 1.0 / (4096 * 8 * 100), 0};

// A file in the page cache, removed at the end of the program.
std::shared_ptr<const Image> File(std::span<const uint8_t> bytes) {
  const char* directory = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): before threads
  std::string name = std::string(directory != nullptr ? directory : "/tmp") + "/cbt-bench-XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) std::abort();
  unlink(name.c_str());
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (count <= 0) std::abort();
    done += static_cast<size_t>(count);
  }
  return *Image::FromDescriptor(descriptor, name);
}

using Make = std::function<std::unique_ptr<ExtentCursor>(Executor* executor, size_t threads)>;

void Register(const std::string& what, const Make& make) {
  for (const size_t threads : {size_t{1}, size_t{2}}) {
    const std::string name = "parallel/" + what + "/" + std::to_string(kBytes) + "/" +
                             std::to_string(threads) + (threads == 1 ? "thread" : "threads");
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      ThreadPool pool(2);
      make(nullptr, 1);  // the inputs
      for (auto _ : state) Drain(*make(&pool, threads));
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes * 2));
    })->UseRealTime();
  }
}

void RegisterLimit() {
  for (const size_t threads : {size_t{1}, size_t{2}}) {
    const std::string name = "parallel/limit/" + std::to_string(kBytes) + "/" +
                             std::to_string(threads) + (threads == 1 ? "thread" : "threads");
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const Pattern identical = {"identical", 0, 0};
      const Sides& sides = Sides::Get(identical);
      const auto read = [&](size_t part) {
        const size_t words = sides.base.size() / threads;
        uint64_t any = ReadBoth(&sides.base[part * words], &sides.target[part * words], words * 8);
        benchmark::DoNotOptimize(any);
      };
      for (auto _ : state) {
        // No thread pool: its threads would add waits.
        std::vector<std::thread> others;
        for (size_t part = 1; part < threads; ++part) others.emplace_back(read, part);
        read(0);
        for (std::thread& other : others) other.join();
      }
      state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes * 2));
    })->UseRealTime();
  }
}

const bool registered = [] {
  for (const Pattern& pattern : DiffPatterns()) {
    Register("diff-" + pattern.name, [=](Executor* executor, size_t threads) {
      const Sides& sides = Sides::Get(pattern);
      BitmapOptions options;
      options.executor = executor;
      options.parallel = threads;
      const uint64_t bits = kBytes * 8;
      return *MakeBorrowedBitmapCursor(*BitmapView::Create(Sides::Bytes(sides.base), 0, bits),
                                       *BitmapView::Create(Sides::Bytes(sides.target), 0, bits),
                                       BitmapOp::kXor,
                                       {.capacity = bits * 4096, .granularity = 4096}, options);
    });
  }
  Register("memory", [](Executor* executor, size_t threads) {
    const Sides& sides = Sides::Get(kBlocks);
    MemoryOptions options;
    options.executor = executor;
    options.parallel = threads;
    return *MakeBorrowedMemoryDeltaCursor(Sides::Bytes(sides.base), Sides::Bytes(sides.target),
                                          options);
  });
  Register("images", [](Executor* executor, size_t threads) {
    const Sides& sides = Sides::Get(kBlocks);
    static const std::shared_ptr<const Image> base = File(Sides::Bytes(sides.base));
    static const std::shared_ptr<const Image> target = File(Sides::Bytes(sides.target));
    ImageOptions options;
    if (threads > 1) options.executor = executor;
    return *MakeImageDeltaCursor(base, target, options);
  });
  RegisterLimit();
  return true;
}();

}  // namespace
}  // namespace cbt::bench
