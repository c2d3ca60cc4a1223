#include "bench/rpc/parts.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "bench/support/bitmaps.h"
#include "cbt/bitmap.h"
#include "cbt/transform.h"
#include "rpc/transport/message_builder.h"
#include "tests/net/certificates.h"

namespace cbt::bench {
namespace {

class Volume {
 public:
  static const Volume& Instance() {
    static const Volume volume;
    return volume;
  }

  std::unique_ptr<ExtentCursor> Open(bool blocks) const {
    const auto view = [](const std::vector<uint64_t>& words) {
      return *BitmapView::Create({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8},
                                 0, words.size() * 64);
    };
    auto cursor = MakeBorrowedBitmapCursor(view(base_), view(target_), BitmapOp::kXor,
                                           {.capacity = kCapacity, .granularity = kBlock});
    Check(cursor.ok(), "no cursor");
    return blocks ? *ToBlocks(*std::move(cursor), kBlock) : *std::move(cursor);
  }

 private:
  Volume() : base_(kWords), target_(Differences({"", 0.041, 0}, kWords)) {
    std::mt19937_64 random(7);
    for (size_t i = 0; i < kWords; ++i) target_[i] ^= base_[i] = random();
  }

  std::vector<uint64_t> base_;
  std::vector<uint64_t> target_;
};

struct Certificates {
  static const Certificates& Instance() {
    static const Certificates certificates;
    return certificates;
  }

  test::TestAuthority authority;
  test::PemIdentity identity = authority.Issue();
};

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

std::pair<double, double> UserAndSystem() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return {Seconds(usage.ru_utime), Seconds(usage.ru_stime)};
}

}  // namespace

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rpc_bench: %s\n", what);
  std::abort();
}

std::unique_ptr<ExtentCursor> OpenVolume(bool blocks) { return Volume::Instance().Open(blocks); }

absl::StatusOr<MetadataSource> VolumeProvider::OpenAllocated(std::string_view,
                                                             const StreamContext&) {
  return MetadataSource{
      .cursor = OpenVolume(false),
      .type = blocks_ ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength,
      .block_size = kBlock,
      .never_blocks = true};
}

absl::StatusOr<MetadataSource> VolumeProvider::OpenDelta(std::string_view, std::string_view target,
                                                         const StreamContext& context) {
  return OpenAllocated(target, context);
}

Messages EncodeVolume(bool blocks, uint32_t max_results) {
  const size_t most_bytes = rpc::StreamOptions().message_bytes;
  const std::unique_ptr<ExtentCursor> cursor = OpenVolume(blocks);
  rpc::MessageBuilder builder(
      rpc::SlicePool::Create(most_bytes, 0),
      blocks ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength, kCapacity,
      max_results, most_bytes);
  Messages messages;
  const auto add = [&] {
    messages.encoded.emplace_back(builder.Take());
    messages.bytes += messages.encoded.back().size();
  };
  ExtentBatch batch;
  for (;;) {
    const auto step = cursor->Next(batch);
    Check(step.ok(), "the cursor failed");
    for (size_t at = 0; at < batch.size();) {
      at += builder.Append(batch.offsets().subspan(at), batch.lengths().subspan(at));
      if (builder.full()) add();
    }
    messages.tuples += batch.size();
    if (*step == Step::kComplete) break;
  }
  add();
  return messages;
}

uint64_t TuplesOf(bool blocks, uint32_t max_results) {
  static std::map<std::pair<bool, uint32_t>, uint64_t> known;
  uint64_t& tuples = known[{blocks, max_results}];
  if (tuples == 0) tuples = EncodeVolume(blocks, max_results).tuples;
  return tuples;
}

std::string_view NameOf(Path path) {
  switch (path) {
    case Path::kUnix:
      return "unix";
    case Path::kTcp:
      return "tcp";
    case Path::kUnixTls:
      return "unix-tls";
    case Path::kTcpTls:
      break;
  }
  return "tcp-tls";
}

bool IsTls(Path path) { return path == Path::kUnixTls || path == Path::kTcpTls; }

std::string Listen(Path path) {
  if (path == Path::kTcp || path == Path::kTcpTls) return "127.0.0.1:0";
  static std::atomic<int> number{0};
  return "unix:///tmp/cbt-bench-" + std::to_string(getpid()) + "-" + std::to_string(number++) +
         ".sock";
}

rpc::TlsOptions ServerTls(Path path) {
  if (!IsTls(path)) return {};
  const test::PemIdentity& identity = Certificates::Instance().identity;
  return {.certificate = identity.certificate, .private_key = identity.key};
}

rpc::ClientTlsOptions ClientTls(Path path) {
  if (!IsTls(path)) return {};
  return {.enabled = true, .ca = Certificates::Instance().authority.pem()};
}

CpuClock::CpuClock() { std::tie(user_, system_) = UserAndSystem(); }

void CpuClock::Report(benchmark::State& state, uint64_t items_of_iteration) const {
  const auto [user, system] = UserAndSystem();
  const double iterations = static_cast<double>(state.iterations());
  const double seconds = user - user_ + system - system_;
  state.counters["cpu_ms"] = seconds * 1e3 / iterations;
  state.counters["system_ms"] = (system - system_) * 1e3 / iterations;
  state.counters["per_cpu_s"] = static_cast<double>(items_of_iteration) * iterations / seconds;
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(items_of_iteration));
}

void AddRow(const std::string& name, void (*run)(benchmark::State&, bool, Path, uint32_t),
            bool blocks, Path path, uint32_t max_results) {
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { run(state, blocks, path, max_results); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace cbt::bench
