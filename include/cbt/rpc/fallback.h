// The ladder of backup applications: ask for what changed; where that can't be had, for what is
// allocated; where that can't be had either, read the whole volume.
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

// What an error of a tier means for the next.
//
//   FAILED_PRECONDITION, UNIMPLEMENTED   this tier is not to be had: the next
//   NOT_FOUND of a delta                 the base may be gone: what is allocated in the target
//   INVALID_ARGUMENT of a delta          the two are no pair: what is allocated in the target
//   everything else                      no: a later attempt, or another request, is what helps
bool FallsBack(Tier tier, const absl::Status& error) noexcept;

struct Fallback {
  std::unique_ptr<ExtentCursor> cursor;
  Tier tier = Tier::kDelta;
  // The tiers before it, and why each could not be had: never silent.
  std::vector<std::pair<Tier, absl::Status>> refused;
};

// Opens the best tier that can be had: from kDelta on if the request has a base, else from
// kAllocated on. `capacity`: bytes of the volume, for the whole of it; without one that tier is
// not tried and the last error is returned. Blocks while streams are opened; a stream that fails
// later fails as any cursor does.
//
// From a starting_offset above 0 only the first tier answers. To go on where a lower tier was read,
// ask for that one: without a base for kAllocated; of kWholeVolume there is nothing to ask.
// Errors: those that don't fall back; with a starting_offset above 0 NotFromTheMiddle().
absl::StatusOr<Fallback> OpenBestTier(const ListRequest& request, std::optional<uint64_t> capacity);

// What it is that `tier` was refused because of `why`, and no lower one will do since not the whole
// volume is wanted: the code of `why`, and that a lower tier has to start from 0. A delta up to
// some offset and what is allocated from there on are together neither of the two: what the base
// has and the target has not is in neither half.
absl::Status NotFromTheMiddle(Tier tier, const absl::Status& why);

}  // namespace cbt::rpc

#endif  // CBT_RPC_FALLBACK_H_
