// border/<pattern>/<size>/<impl>: what a call across the C interface costs, through libcbt.so.1.
//
//   call     the smallest call that checks its handle: items are calls
//   next     an eighth of the bits of a bitmap set at random, in batches of 1,024: items are
//   extents batches  the same in batches of 65,536 stream   the same as messages of 8,192 tuples
//
//   c        cbt/c/cbt.h
//   cpp      the C++ interface, linked statically
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/c/cbt.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr size_t kBytes = size_t{16} << 20;
constexpr VolumeGeometry kVolume = {.capacity = kBytes * 8 * kBlock, .granularity = kBlock};

void Require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "border_bench: %s failed\n", what);
  std::exit(1);
}

const std::vector<uint64_t>& Bits() {
  static const std::vector<uint64_t> bits = [] {
    std::mt19937_64 random(7);
    std::vector<uint64_t> words(kBytes / sizeof(uint64_t));
    for (uint64_t& word : words) word = random() & random() & random();
    return words;
  }();
  return bits;
}

cbt_cursor* NewCursor() {
  cbt_bytes* bytes = nullptr;
  cbt_cursor* cursor = nullptr;
  const cbt_geometry volume = {kVolume.capacity, kVolume.granularity};
  Require(cbt_bytes_borrowed(Bits().data(), kBytes, &bytes, nullptr) == CBT_OK, "bytes");
  Require(cbt_cursor_from_bitmap(bytes, nullptr, &volume, &cursor, nullptr) == CBT_OK, "cursor");
  cbt_bytes_free(bytes);
  return cursor;
}

void Call(benchmark::State& state) {
  cbt_cursor* const cursor = NewCursor();
  for (auto _ : state) benchmark::DoNotOptimize(cbt_cursor_covered(cursor));
  state.SetItemsProcessed(state.iterations());
  cbt_cursor_free(cursor);
}

void NextC(benchmark::State& state, uint64_t batch_size) {
  uint64_t extents = 0, sum = 0;
  for (auto _ : state) {
    cbt_cursor* const cursor = NewCursor();
    Require(cbt_cursor_set_batch(cursor, batch_size, nullptr) == CBT_OK, "set_batch");
    cbt_batch batch;
    do {
      Require(cbt_cursor_next(cursor, &batch, nullptr) == CBT_OK, "next");
      for (uint64_t i = 0; i < batch.count; ++i) sum += batch.lengths[i];
      extents += batch.count;
    } while (batch.complete == 0);
    cbt_cursor_free(cursor);
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<int64_t>(extents));
}

void NextCpp(benchmark::State& state, uint64_t batch_size) {
  uint64_t extents = 0, sum = 0;
  const auto bytes = reinterpret_cast<const uint8_t*>(Bits().data());
  const auto view = BitmapView::Create({bytes, kBytes}, 0, kBytes * 8);
  for (auto _ : state) {
    auto cursor = MakeBorrowedBitmapCursor(*view, kVolume);
    ExtentBatch batch(batch_size);
    for (;;) {
      const auto step = (*cursor)->Next(batch);
      Require(step.ok(), "Next");
      for (size_t i = 0; i < batch.size(); ++i) sum += batch[i].length;
      extents += batch.size();
      if (*step == Step::kComplete) break;
    }
  }
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<int64_t>(extents));
}

cbt_code Open(void*, const cbt_request*, cbt_answer* answer, cbt_error** error) {
  return cbt_answer_set_cursor(answer, NewCursor(), error);
}

void Stream(benchmark::State& state) {
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.open = Open;
  cbt_service* service = nullptr;
  Require(cbt_service_new(&provider, nullptr, &service, nullptr) == CBT_OK, "service");
  // snapshot_id "a", max_results 8192
  static const char kRequest[] =
      "\x0a\x01"
      "a\x18\x80\x40";
  uint64_t tuples = 0;
  for (auto _ : state) {
    cbt_stream* stream = nullptr;
    Require(cbt_stream_open(service, "/csi.v1.SnapshotMetadata/GetMetadataAllocated", kRequest,
                            sizeof(kRequest) - 1, nullptr, &stream, nullptr) == CBT_OK,
            "stream");
    cbt_message message;
    do {
      Require(cbt_stream_next(stream, &message, nullptr) == CBT_OK, "message");
      tuples += message.tuples;
    } while (message.state != CBT_STREAM_END);
    cbt_stream_free(stream);
  }
  cbt_service_free(service);
  state.SetItemsProcessed(static_cast<int64_t>(tuples));
}

BENCHMARK(Call)->Name("border/call/1/c");
BENCHMARK_CAPTURE(NextC, 1024, 1024)->Name("border/next/16MiB/c");
BENCHMARK_CAPTURE(NextCpp, 1024, 1024)->Name("border/next/16MiB/cpp");
BENCHMARK_CAPTURE(NextC, 65536, 65536)->Name("border/batches/16MiB/c");
BENCHMARK_CAPTURE(NextCpp, 65536, 65536)->Name("border/batches/16MiB/cpp");
BENCHMARK(Stream)->Name("border/stream/16MiB/c");

}  // namespace
}  // namespace cbt::bench
