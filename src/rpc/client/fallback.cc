#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/memory.h"
#include "cbt/rpc/client.h"

namespace cbt::rpc {

absl::Status NotFromTheMiddle(Tier tier, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("no ", AbslView(TierName(tier)), " metadata (", why.message(),
                                   "); a lower tier must start from offset 0"));
}

std::string_view TierName(Tier tier) noexcept {
  switch (tier) {
    case Tier::kDelta:
      return "delta";
    case Tier::kAllocated:
      return "allocated";
    case Tier::kWholeVolume:
      break;
  }
  return "whole volume";
}

bool FallsBack(Tier tier, const absl::Status& error) noexcept {
  switch (error.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return tier != Tier::kWholeVolume;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
      return tier == Tier::kDelta;
    default:
      return false;
  }
}

absl::StatusOr<Fallback> OpenBestTier(const ListRequest& request,
                                      std::optional<uint64_t> capacity) {
  Fallback fallback;
  ListRequest asked = request.Copy();
  for (const Tier tier : {Tier::kDelta, Tier::kAllocated}) {
    if (tier == Tier::kDelta && !request.base_snapshot_id.has_value()) continue;
    if (tier == Tier::kAllocated) asked.base_snapshot_id.reset();
    absl::StatusOr<std::unique_ptr<RemoteCursor>> cursor = RemoteCursor::Open(asked);
    if (cursor.ok()) {
      fallback.cursor = *std::move(cursor);
      fallback.tier = tier;
      return fallback;
    }
    if (!FallsBack(tier, cursor.status())) return cursor.status();
    if (request.starting_offset > 0) {
      return NotFromTheMiddle(tier, cursor.status());
    }
    fallback.refused.emplace_back(tier, cursor.status());
  }
  if (!capacity.has_value()) return fallback.refused.back().second;
  std::vector<Extent> whole;
  if (*capacity > 0) whole.push_back({0, *capacity});
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
      MakeExtentCursor(whole, {.capacity = *capacity});
  if (!cursor.ok()) return cursor.status();
  fallback.cursor = *std::move(cursor);
  fallback.tier = Tier::kWholeVolume;
  return fallback;
}

}  // namespace cbt::rpc
