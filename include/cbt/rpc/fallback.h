// The fallback order of backup applications: changed blocks; if unavailable, allocated blocks; if
// those are unavailable too, the whole volume.
#ifndef CBT_RPC_FALLBACK_H_
#define CBT_RPC_FALLBACK_H_

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/rpc/client.h"

namespace cbt::rpc {

enum class Tier {
  kDelta,        // what changed since the base
  kAllocated,    // what is allocated in the target
  kWholeVolume,  // everything
};

// "delta", "allocated" or "whole volume".
std::string_view TierName(Tier tier) noexcept;

// Whether `error` of `tier` means that the next tier should be tried.
//
//   FAILED_PRECONDITION, UNIMPLEMENTED   yes: this tier is not available
//   NOT_FOUND of a delta                 yes: the base may be gone
//   INVALID_ARGUMENT of a delta          yes: the snapshots may not be a pair
//   everything else                      no: retry later or change the request
bool FallsBack(Tier tier, const absl::Status& error) noexcept;

struct Fallback {
  std::unique_ptr<ExtentCursor> cursor;
  Tier tier = Tier::kDelta;
  // The higher tiers, and why each was unavailable.
  std::vector<std::pair<Tier, absl::Status>> refused;
};

// Opens the best tier available, starting with kDelta if the request has a base, else with
// kAllocated. `capacity` is the volume's in bytes, for kWholeVolume; without it that tier is not
// tried and the last error is returned. Blocks while streams are opened. There is no fallback once
// a stream is open: a later error is returned by the cursor.
//
// With a starting_offset above 0, only the first tier is tried. To continue where a lower tier was
// being read, request that tier: without a base for kAllocated; kWholeVolume needs no request.
// Errors: those for which FallsBack() is false; with a starting_offset above 0, NotFromTheMiddle().
absl::StatusOr<Fallback> OpenBestTier(const ListRequest& request, std::optional<uint64_t> capacity);

// The error when `tier` failed with `why` in the middle of a volume: the code of `why`, and a text
// that a lower tier has to start from 0. A delta up to some offset followed by allocated blocks is
// neither: blocks that only the base has are in neither half.
absl::Status NotFromTheMiddle(Tier tier, const absl::Status& why);

}  // namespace cbt::rpc

#endif  // CBT_RPC_FALLBACK_H_
