#include "rpc/contract/completeness.h"

#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::rpc {
namespace {

constexpr std::string_view kDigestScheme = "xxh3-64:";

constexpr std::array kProofKeys = {kTupleCountKey, kReportedBytesKey, kStartingOffsetKey,
                                   kDigestKey,     kCapacityKey,      kTypeKey,
                                   kScopeKey};

std::optional<uint64_t> ReadNumber(const std::optional<std::string_view>& text) {
  uint64_t value = 0;
  // SimpleAtoi accepts signs and spaces; our own values have neither.
  if (!text.has_value() || text->empty() ||
      text->find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(*text), &value)) {
    return std::nullopt;
  }
  return value;
}

bool IsDigest(std::string_view text) {
  constexpr size_t kDigits = 16;
  return text.size() == kDigestScheme.size() + kDigits &&
         text.substr(0, kDigestScheme.size()) == kDigestScheme &&
         text.find_first_not_of("0123456789abcdef", kDigestScheme.size()) == std::string_view::npos;
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
  if (scope == ProofScope::kPlace) metadata.emplace_back(kScopeKey, kPlaceScope);
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
                        std::string& what, ProofText text) {
  const Metadata expected = ProofMetadata(received, starting_offset, header);
  const std::optional<std::string_view> scope = trailing(kScopeKey);
  bool any = scope.has_value();
  what.clear();
  // Including keys for which there is no received value to compare with.
  for (const std::string_view key : kProofKeys) {
    if (trailing(key) != kGivenTwice) continue;
    what = absl::StrCat(AbslView(key), " is ", AbslView(kGivenTwice));
    return ProofVerdict::kDiffers;
  }
  for (const auto& [key, value] : expected) {
    const std::optional<std::string_view> found = trailing(key);
    any = any || found.has_value();
    if (found == value || !what.empty()) continue;
    if (!found.has_value() && (key == kCapacityKey || key == kTypeKey)) continue;
    std::string_view is = found.value_or("missing");
    if (found.has_value() && text == ProofText::kNotQuoting) is = "different";
    what = absl::StrCat(key, " is ", AbslView(is), ", received ", value);
  }
  if (!any) return ProofVerdict::kAbsent;
  if (!what.empty()) return ProofVerdict::kDiffers;
  if (!scope.has_value()) return ProofVerdict::kHolds;
  return *scope == kPlaceScope ? ProofVerdict::kHoldsForPlace : ProofVerdict::kHoldsFromRelay;
}

absl::StatusOr<Metadata> CopyProof(const MetadataLookup& trailing) {
  Metadata proof;
  absl::string_view wrong;
  bool any = false;
  for (const std::string_view key : kProofKeys) {
    const std::optional<std::string_view> value = trailing(key);
    const bool may_miss = key == kCapacityKey || key == kTypeKey || key == kScopeKey;
    any = any || value.has_value();
    bool good = value.has_value() || may_miss;
    if (key == kDigestKey) {
      good = good && IsDigest(*value);
    } else if (value.has_value() && key == kTypeKey) {
      good = *value == BlockMetadataTypeName(BlockMetadataType::kFixedLength) ||
             *value == BlockMetadataTypeName(BlockMetadataType::kVariableLength);
    } else if (value.has_value() && key != kScopeKey) {
      good = ReadNumber(value).has_value();
    }
    if (value == kGivenTwice) good = false;
    if (!good && wrong.empty()) wrong = AbslView(key);
    if (!value.has_value()) continue;
    // A scope that is unknown is treated as a relay's.
    const bool other_scope = key == kScopeKey && *value != kPlaceScope;
    proof.emplace_back(key, other_scope ? kRelayScope : *value);
  }
  if (!any) return Metadata();
  if (wrong.empty()) return proof;
  return absl::InvalidArgumentError(absl::StrCat(wrong, " is missing or malformed"));
}

StreamSummary ReadSummary(const MetadataLookup& initial) {
  return {.bytes = ReadNumber(initial(kBytesToComeKey)),
          .tuples = ReadNumber(initial(kTuplesToComeKey))};
}

}  // namespace cbt::rpc
