#include "rpc/completeness.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/absl_view.h"

namespace cbt::rpc {
namespace {

constexpr std::string_view kDigestScheme = "xxh3-64:";

std::optional<uint64_t> ReadNumber(const std::optional<std::string_view>& text) {
  uint64_t value = 0;
  // SimpleAtoi takes signs and spaces; what we write has neither.
  if (!text.has_value() || text->empty() ||
      text->find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(*text), &value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

Metadata ProofMetadata(const StreamDigest& digest, uint64_t starting_offset,
                       const std::optional<StreamHeader>& header, ProofScope scope) {
  Metadata metadata = {{std::string(kTupleCountKey), absl::StrCat(digest.tuples())},
                       {std::string(kReportedBytesKey), absl::StrCat(digest.bytes())},
                       {std::string(kStartingOffsetKey), absl::StrCat(starting_offset)},
                       {std::string(kDigestKey), std::string(kDigestScheme) + digest.DigestText()}};
  if (header.has_value()) {
    metadata.emplace_back(kCapacityKey, absl::StrCat(header->capacity));
    metadata.emplace_back(kTypeKey, BlockMetadataTypeName(header->type));
  }
  if (scope == ProofScope::kRelay) metadata.emplace_back(kScopeKey, kRelayScope);
  return metadata;
}

Metadata SummaryMetadata(const StreamSummary& summary) {
  Metadata metadata;
  if (summary.bytes.has_value()) {
    metadata.emplace_back(kBytesToComeKey, absl::StrCat(*summary.bytes));
  }
  if (summary.tuples.has_value()) {
    metadata.emplace_back(kTuplesToComeKey, absl::StrCat(*summary.tuples));
  }
  return metadata;
}

ProofVerdict CheckProof(const MetadataLookup& trailing, const StreamDigest& received,
                        uint64_t starting_offset, const std::optional<StreamHeader>& header,
                        std::string& what) {
  const Metadata expected = ProofMetadata(received, starting_offset, header);
  const bool from_relay = trailing(kScopeKey).has_value();
  bool any = from_relay;
  what.clear();
  for (const auto& [key, value] : expected) {
    const std::optional<std::string_view> found = trailing(key);
    any = any || found.has_value();
    if (found == value || !what.empty()) continue;
    if (!found.has_value() && (key == kCapacityKey || key == kTypeKey)) continue;
    what = absl::StrCat(key, " is ", found.has_value() ? AbslView(*found) : "missing",
                        ", received was ", value);
  }
  if (!any) return ProofVerdict::kAbsent;
  if (!what.empty()) return ProofVerdict::kDiffers;
  return from_relay ? ProofVerdict::kHoldsFromRelay : ProofVerdict::kHolds;
}

StreamSummary ReadSummary(const MetadataLookup& initial) {
  return {.bytes = ReadNumber(initial(kBytesToComeKey)),
          .tuples = ReadNumber(initial(kTuplesToComeKey))};
}

}  // namespace cbt::rpc
