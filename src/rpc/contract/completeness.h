// What travels beside the messages of a stream: ahead of it what is to come, behind it the proof
// that it is complete. docs/reference/completeness.md has it for others to implement.
#ifndef CBT_RPC_CONTRACT_COMPLETENESS_H_
#define CBT_RPC_CONTRACT_COMPLETENESS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/metadata_type.h"
#include "cbt/provider.h"
#include "cbt/wire/digest.h"
#include "rpc/contract/metadata.h"

namespace cbt::rpc {

// Keys of trailing metadata.
inline constexpr std::string_view kTupleCountKey = "cbt-tuple-count";
inline constexpr std::string_view kReportedBytesKey = "cbt-reported-bytes";
inline constexpr std::string_view kStartingOffsetKey = "cbt-starting-offset";
inline constexpr std::string_view kDigestKey = "cbt-digest";  // xxh3-64:<16 hexadecimal digits>
// Servers before these two send the four above alone.
inline constexpr std::string_view kCapacityKey = "cbt-volume-capacity-bytes";
inline constexpr std::string_view kTypeKey = "cbt-block-metadata-type";  // the contracts' name
// Where the proof begins, if not at the source: kRelayScope. Any other value is taken for it.
inline constexpr std::string_view kScopeKey = "cbt-proof-scope";
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
  kSource,  // back to the server that knows the volume
  kRelay,   // to somebody who passed on what came without a proof
};

// `header` has no value when no message told it.
Metadata ProofMetadata(const StreamDigest& digest, uint64_t starting_offset,
                       const std::optional<StreamHeader>& header,
                       ProofScope scope = ProofScope::kSource);
Metadata SummaryMetadata(const StreamSummary& summary);

// Looks up one value of a call's metadata.
using MetadataLookup = std::function<std::optional<std::string_view>(std::string_view key)>;

enum class ProofVerdict {
  kAbsent,          // the server sent none: a peer that does not know it
  kHolds,           // all there and equal to what was received
  kHoldsFromRelay,  // the same, and it does not reach back to the source
  kDiffers,         // there, and something else than was received
};

// Whether a text about a proof repeats what the server said. For clients that did not ask that
// server itself it doesn't: anything can stand there.
enum class ProofText { kQuoting, kNotQuoting };

// Compares what a server says of a stream with what was received of it. A proof that is there in
// part, twice, or in a form that is not ours, differs; `what` then names the first key. Only
// capacity and type may be missing from it, from the server's side and from ours.
ProofVerdict CheckProof(const MetadataLookup& trailing, const StreamDigest& received,
                        uint64_t starting_offset, const std::optional<StreamHeader>& header,
                        std::string& what, ProofText text = ProofText::kQuoting);

// The proof of a stream that was not looked at, to be passed on: its lines, or none where the
// server sent no proof. Errors: INVALID_ARGUMENT that names the first key that is missing or whose
// value is not of its form.
absl::StatusOr<Metadata> CopyProof(const MetadataLookup& trailing);

// Numbers that can't be read are left out.
StreamSummary ReadSummary(const MetadataLookup& initial);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_COMPLETENESS_H_
