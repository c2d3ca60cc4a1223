// Shared parts of the rpc benchmarks: a volume, its encoded messages, addresses, and a clock that
// also counts processor time.
#ifndef CBT_BENCH_RPC_PARTS_H_
#define CBT_BENCH_RPC_PARTS_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/cursor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/units.h"

namespace cbt::bench {

inline constexpr uint64_t kBlock = 4096;
inline constexpr size_t kWords = 64 * kMiB / 8;
inline constexpr uint64_t kCapacity = uint64_t{kWords} * 64 * kBlock;
inline constexpr char kPath[] = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";

// Exits the program if a benchmark's result is wrong.
void Check(bool condition, const char* what);

// Two bitmaps of 64 MiB that differ in about 4 % of their bits.
std::unique_ptr<ExtentCursor> OpenVolume(bool blocks);

// Provides that volume for every request.
class VolumeProvider final : public SnapshotProvider {
 public:
  explicit VolumeProvider(bool blocks) : blocks_(blocks) {}
  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view, const StreamContext&) override;
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base, std::string_view target,
                                           const StreamContext& context) override;

 private:
  const bool blocks_;
};

// The volume's messages as our server encodes them.
struct Messages {
  uint64_t tuples = 0;
  uint64_t bytes = 0;
  std::vector<std::string> encoded;
};

Messages EncodeVolume(bool blocks, uint32_t max_results);
// The number of tuples in them; cached.
uint64_t TuplesOf(bool blocks, uint32_t max_results);

enum class Path { kUnix, kTcp, kUnixTls, kTcpTls };

std::string_view NameOf(Path path);
bool IsTls(Path path);
// "127.0.0.1:0", or a path that no other server of this process uses.
std::string Listen(Path path);

// One certificate for all servers; empty without TLS.
rpc::TlsOptions ServerTls(Path path);
rpc::ClientTlsOptions ClientTls(Path path);

// Measures the processor time of this process, both ends of a stream, until Report(): sets the
// counters `cpu_ms` and `system_ms` per iteration and `per_cpu_s`, items per second of it. Also
// sets the items.
class CpuClock {
 public:
  CpuClock();
  void Report(benchmark::State& state, uint64_t items_of_iteration) const;

 private:
  double user_ = 0;
  double system_ = 0;
};

// Registers a row of real time in milliseconds.
void AddRow(const std::string& name, void (*run)(benchmark::State&, bool, Path, uint32_t),
            bool blocks, Path path, uint32_t max_results);

}  // namespace cbt::bench

#endif  // CBT_BENCH_RPC_PARTS_H_
