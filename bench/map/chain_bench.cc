// chain/<pattern>/<snapshots>/<impl>: deltas of random pairs of snapshots of a volume of 16 TiB, of
// which a thousandth changes from each to the next; items are deltas.
//
//   random   in blocks of 1 MiB, anywhere
//   runs     in blocks of 4 KiB, as runs of 1 MiB
//
//   cbt           the chain's cursor, read to its end
//   linear        the maps between the two read from their files and united, in one pass; the
//                 result to its end
//   first         the chain's cursor, from opening it to its first extents
//   first_linear  the same for the union of all
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/batch.h"
#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kCapacity = uint64_t{1} << 44;

void Expect(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
}

// A chain in a temporary directory, and its maps.
class History {
 public:
  History(const std::string& pattern, size_t snapshots) {
    std::string path = (std::filesystem::temp_directory_path() / "cbt-bench-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
    const uint64_t granularity = pattern == "random" ? kMiB : 4096;
    const uint64_t run = pattern == "random" ? 1 : 256;
    const VolumeGeometry geometry{kCapacity, granularity};
    const uint64_t blocks = kCapacity / granularity;
    chain_ = *ChangeChain::Create(path_, "vol", granularity, {"0", kCapacity}, {.sync = false});
    for (size_t i = 1; i < snapshots; ++i) {
      std::mt19937_64 random(i);
      ChangeMapBuilder builder = *ChangeMapBuilder::Create(geometry);
      for (uint64_t n = blocks / 1000 / run; n > 0; --n) {
        const uint64_t begin = random() % (blocks - run);
        Expect(builder.AddBlocks(begin, begin + run));
      }
      ChangeMap map = *builder.Build();
      map.set_identity({"vol", absl::StrCat(i - 1), absl::StrCat(i)});
      Expect(chain_->Append(map));
      Expect(WriteChangeMap(map, Edge(i), {.sync = false}).status());
    }
  }
  ~History() { std::filesystem::remove_all(path_); }
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  static const History& Get(const std::string& pattern, size_t snapshots) {
    static std::map<std::pair<std::string, size_t>, std::unique_ptr<History>> all;
    std::unique_ptr<History>& history = all[{pattern, snapshots}];
    if (history == nullptr) history = std::make_unique<History>(pattern, snapshots);
    return *history;
  }

  std::unique_ptr<ExtentCursor> Delta(size_t base, size_t target) const {
    absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
        chain_->Delta(absl::StrCat(base), absl::StrCat(target));
    Expect(cursor.status());
    return *std::move(cursor);
  }
  std::unique_ptr<ExtentCursor> Linear(size_t base, size_t target) const {
    std::vector<ChangeMap> maps;
    std::vector<ChangeMapView> views;
    for (size_t i = base + 1; i <= target; ++i) {
      maps.push_back(*ReadChangeMap(Edge(i)));
      views.push_back(maps.back());
    }
    return MakeChangeMapCursor(*Union(views));
  }

 private:
  std::string Edge(size_t i) const { return absl::StrCat(path_.string(), "/edge-", i, ".cbm"); }

  std::filesystem::path path_;
  std::unique_ptr<ChangeChain> chain_;
};

void Drain(ExtentCursor& cursor, bool first) {
  ExtentBatch batch;
  uint64_t sum = 0;
  for (;;) {
    const absl::StatusOr<Step> step = cursor.Next(batch);
    Expect(step.status());
    for (size_t i = 0; i < batch.size(); i += 8) sum += batch.offsets()[i];
    if (*step == Step::kComplete || (first && !batch.empty())) break;
  }
  benchmark::DoNotOptimize(sum);
}

void Register(const std::string& pattern, size_t snapshots) {
  for (const std::string impl : {"cbt", "linear", "first", "first_linear"}) {
    const std::string name = absl::StrCat("chain/", pattern, "/", snapshots, "/", impl);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const History& history = History::Get(pattern, snapshots);
      std::mt19937_64 random(7);
      for (auto _ : state) {
        size_t base = random() % snapshots;
        size_t target = random() % snapshots;
        if (base > target) std::swap(base, target);
        if (base == target) continue;
        const bool linear = impl == "linear" || impl == "first_linear";
        Drain(linear ? *history.Linear(base, target) : *history.Delta(base, target),
              impl == "first" || impl == "first_linear");
      }
      state.SetItemsProcessed(state.iterations());
    })->Unit(benchmark::kMillisecond);
  }
}

const bool registered = [] {
  Register("random", 500);
  Register("random", 10000);
  Register("runs", 400);
  return true;
}();

}  // namespace
}  // namespace cbt::bench
