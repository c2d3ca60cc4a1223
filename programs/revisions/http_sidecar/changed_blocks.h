// The changed blocks of a snapshot, from some place on, as a plugin reports them.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_CHANGED_BLOCKS_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_CHANGED_BLOCKS_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/secrets.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/http_sidecar/page_tokens.h"
#include "rpc/transport/client_call.h"

namespace cbt::kube::http_sidecar {

struct ChangedExtent {
  Extent extent = {};
  std::optional<aggregated::DataToken> token = {};
};

// A position in the answer. Belongs to one thread, which waits for the plugin.
class ChangedBlocks {
 public:
  virtual ~ChangedBlocks() = default;
  ChangedBlocks(const ChangedBlocks&) = delete;
  ChangedBlocks& operator=(const ChangedBlocks&) = delete;

  // Bytes; unset if the plugin reports nothing, and not how large the volume is.
  std::optional<uint64_t> capacity() const noexcept { return capacity_; }
  const std::string& version() const noexcept { return version_; }

  // False: the plugin says that there are no more. Extents ascend and do not overlap; the last may
  // reach past the capacity.
  // Errors: the plugin's, DATA_LOSS if its answer makes no sense.
  virtual absl::StatusOr<bool> Next(ChangedExtent& extent) = 0;
  // There may be more: false is certain, true is not.
  virtual absl::StatusOr<bool> MayHaveMore() = 0;

 protected:
  ChangedBlocks() = default;
  std::optional<uint64_t> capacity_;
  std::string version_;
};

// What is asked for. `from`: bytes; extents that end at or before it may be left out.
struct ChangedBlocksQuery {
  std::optional<std::string> base = {};
  std::string target = {};
  uint64_t from = 0;
  uint64_t most_extents = 0;  // that the caller will take, as a rule
  Secrets secrets = {};
  std::chrono::system_clock::time_point deadline = {};
};

// By the unary RPC ListSnapshotDeltas. It has page tokens and no offsets: those that were seen are
// remembered in `tokens` with the place where their page begins, so that a page does not read what
// lies before it. Without a token that fits, it begins at the volume's start.
// Errors: UNIMPLEMENTED if the plugin does not have the RPC; the plugin's.
absl::StatusOr<std::unique_ptr<ChangedBlocks>> ListChangedBlocks(
    const std::shared_ptr<rpc::Channel>& channel, const ChangedBlocksQuery& query,
    PageTokens& tokens);

// By the streams GetMetadataAllocated and GetMetadataDelta, of which as much is read as is needed.
absl::StatusOr<std::unique_ptr<ChangedBlocks>> StreamChangedBlocks(const std::string& address,
                                                                   const ChangedBlocksQuery& query);

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_CHANGED_BLOCKS_H_
