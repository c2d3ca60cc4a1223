// Compressed clusters of qcow2, of the kind zstd.
#ifndef CBT_SOURCE_OVERLAY_CLUSTER_CODEC_H_
#define CBT_SOURCE_OVERLAY_CLUSTER_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt {

// OK where clusters can be compressed and read.
// Errors: FAILED_PRECONDITION that names libzstd's package; UNIMPLEMENTED in a build without zstd.
absl::Status LoadClusterCodec();

// Compresses clusters. One thread at a time. Requires: LoadClusterCodec() was OK.
class ClusterCompressor {
 public:
  explicit ClusterCompressor(int level);
  ~ClusterCompressor();
  ClusterCompressor(const ClusterCompressor&) = delete;
  ClusterCompressor& operator=(const ClusterCompressor&) = delete;

  // Appends the compressed cluster to `out`. Returns its size in bytes, or 0 and leaves `out` alone
  // if it would not be smaller by a sector of 512 bytes at least.
  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<size_t> Compress(std::span<const uint8_t> cluster, std::vector<uint8_t>& out);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Fills `cluster` from the frame at the beginning of `bytes`, which come from a file and may be
// anything. What follows the frame is ignored: sizes in tables are rounded up to sectors.
// Requires: LoadClusterCodec() was OK. Memory: 8 MiB at most.
// Errors: DATA_LOSS, without a place; RESOURCE_EXHAUSTED.
absl::Status DecompressCluster(std::span<const uint8_t> bytes, std::span<uint8_t> cluster);

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_CLUSTER_CODEC_H_
