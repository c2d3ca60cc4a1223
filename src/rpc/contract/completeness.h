// Metadata of a stream: a summary before the first message, a proof of completeness after the last.
// docs/reference/completeness.md specifies both for other implementations.
#ifndef CBT_RPC_CONTRACT_COMPLETENESS_H_
#define CBT_RPC_CONTRACT_COMPLETENESS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/provider.h"
#include "cbt/wire/digest.h"
#include "rpc/contract/metadata.h"

namespace cbt::rpc {

// Keys of trailing metadata.
inline constexpr std::string_view kTupleCountKey = "cbt-tuple-count";
inline constexpr std::string_view kReportedBytesKey = "cbt-reported-bytes";
inline constexpr std::string_view kStartingOffsetKey = "cbt-starting-offset";
inline constexpr std::string_view kDigestKey = "cbt-digest";  // xxh3-64:<16 hexadecimal digits>
// Older servers send only the four above, not these two.
inline constexpr std::string_view kCapacityKey = "cbt-volume-capacity-bytes";
inline constexpr std::string_view kTypeKey = "cbt-block-metadata-type";  // name in the contracts
// How far the proof reaches if not to a state of the source: kPlaceScope or kRelayScope. Other
// values are treated as the latter.
inline constexpr std::string_view kScopeKey = "cbt-proof-scope";
inline constexpr std::string_view kPlaceScope = "place";
inline constexpr std::string_view kRelayScope = "relay";

// Keys of initial metadata.
inline constexpr std::string_view kBytesToComeKey = "cbt-bytes-to-come";
inline constexpr std::string_view kTuplesToComeKey = "cbt-tuples-to-come";

// What every message of a stream repeats.
struct StreamHeader {
  BlockMetadataType type = BlockMetadataType::kUnknown;
  uint64_t capacity = 0;  // bytes
};

// How far back a proof reaches.
enum class ProofScope {
  kSource,  // to the server that knows the volume
  kPlace,   // to the server that knows where the volume is, and not whether it has changed
  kRelay,   // to a relay that forwarded a stream without a proof
};

// `header` is empty if there was no message.
Metadata ProofMetadata(const StreamDigest& digest, uint64_t starting_offset,
                       const std::optional<StreamHeader>& header,
                       ProofScope scope = ProofScope::kSource);
Metadata SummaryMetadata(const StreamSummary& summary);

// Looks up one value of a call's metadata.
using MetadataLookup = std::function<std::optional<std::string_view>(std::string_view key)>;

enum class ProofVerdict {
  kAbsent,          // the server sent none: it does not support proofs
  kHolds,           // complete, and equal to what was received
  kHoldsForPlace,   // the same, of data that may have changed between two calls
  kHoldsFromRelay,  // the same, but it does not reach back to the source
  kDiffers,         // present, but different from what was received
};

// Whether a text about a proof quotes the server's values. For clients that did not call that
// server themselves it does not: the values may be anything.
enum class ProofText { kQuoting, kNotQuoting };

// Compares the server's proof with what was received. A proof that is partial, repeated or
// malformed differs; `what` then names the first key. Only capacity and type may be missing, from
// the proof and from what was received.
ProofVerdict CheckProof(const MetadataLookup& trailing, const StreamDigest& received,
                        uint64_t starting_offset, const std::optional<StreamHeader>& header,
                        std::string& what, ProofText text = ProofText::kQuoting);

// The proof of a stream that is forwarded without being decoded; empty if the server sent none.
// Errors: INVALID_ARGUMENT that names the first key that is missing or malformed.
absl::StatusOr<Metadata> CopyProof(const MetadataLookup& trailing);

// Ignores numbers that can't be parsed.
StreamSummary ReadSummary(const MetadataLookup& initial);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_COMPLETENESS_H_
