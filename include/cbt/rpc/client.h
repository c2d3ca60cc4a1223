// A client of the contracts (Api): a remote stream as a cursor, a server as a provider, and what a
// backup application falls back on. Part of cbt::rpc.
#ifndef CBT_RPC_CLIENT_H_
#define CBT_RPC_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

class LogSink;

// Progress of a stream, in bytes of the volume.
struct StreamProgress {
  uint64_t covered = 0;         // everything below this offset was returned
  uint64_t capacity = 0;        // of the volume
  uint64_t tuples = 0;          // received so far
  uint64_t reported_bytes = 0;  // in these tuples
  double tuples_per_second = 0;
};

// What an answer means that the server ends with OK without a message: it has nothing to report,
// and does not say how large the volume is. Plugins that send a message only for blocks end so, the
// reference driver of CSI for one (docs/reference/completeness.md).
enum class NoMessage {
  kNeedsCapacity,  // an empty answer if ListRequest::capacity is set, otherwise DATA_LOSS
  kAccepted,  // an empty answer, perhaps of unknown capacity: see RemoteCursor::capacity_known()
  kRefused,   // DATA_LOSS
};

struct ListRequest {
  // `unix:///path`, or `host:port`.
  std::string address = {};
  Api api = Api::kCsi;

  // The target snapshot, and for a delta its base; without a base, allocated blocks are listed.
  // Handles, or names where the contract uses names.
  std::string snapshot_id = {};
  std::optional<std::string> base_snapshot_id = {};

  // For contracts that have them: the security or session token, the namespace, and the volume.
  Secret token = {};
  // Called for each call to the server, also when a stream is resumed, for the token to use instead
  // of `token`; in the thread that reads the stream. Its error counts as the server's. For tokens
  // that expire sooner than streams end.
  std::function<absl::StatusOr<Secret>()> token_source = {};
  std::string name_space = {};
  std::string volume_id = {};

  uint64_t starting_offset = 0;  // bytes
  // RemoteCursor::source_version() of the stream that this one continues. If the server now reads
  // other data, or sends no version, the stream fails with ABORTED; with FAILED_PRECONDITION if the
  // data may change while its version stays the same. Empty: not compared.
  std::string source_version = {};
  int32_t max_results = 0;  // tuples per message; 0: server's choice
  NoMessage no_message = NoMessage::kNeedsCapacity;
  // The volume's size in bytes as known from elsewhere, for an answer without a message. What
  // messages say is not compared with it. Unset or 0: unknown.
  std::optional<uint64_t> capacity = {};
  Secrets secrets = {};  // passed on

  ClientTlsOptions tls = {};

  // Time limit for the whole stream with its resumptions; unset: no limit.
  std::optional<std::chrono::milliseconds> timeout = {};

  // If the server sends nothing for this long although the client can take more, the stream fails
  // with DEADLINE_EXCEEDED; unset: no limit. A server may be silent while it searches.
  std::optional<std::chrono::milliseconds> stall_timeout = {};

  // Fail with FAILED_PRECONDITION if the stream ends without a proof of its completeness, with one
  // that starts at a relay and not at the server that knows the volume, or if its data may have
  // changed between two parts (Completeness::kProvenForPlace).
  bool require_proof = false;

  // How long a client tries again without progress: from the first failure on, until a new tuple
  // arrives. Before the first message it tries again after UNAVAILABLE; later, when the stream
  // breaks (UNAVAILABLE, or CANCELLED by the server), and when a stream that brought tuples reaches
  // the server's own time limit (DEADLINE_EXCEEDED, not that of `timeout` or `stall_timeout`).
  // Waits 0.1 s first and doubles the wait up to 5 s, less a random part of at most half. Before
  // the first message, what time seldom mends is tried for 5 s at most: a host without an address,
  // TLS that is refused on either side, a peer that answers in another protocol. Zero: the first
  // failure is final.
  std::chrono::milliseconds retry_for = std::chrono::minutes(5);

  // Returns the tuples as they were received: the last block of a FIXED_LENGTH stream keeps its
  // size even where it extends past the capacity. By default it is cut at the capacity, so that a
  // consumer can copy exactly what it gets. Checks, progress and the proof always count the tuples
  // as received.
  bool wire_tuples = false;

  // Called before each further attempt, with the reason for it and the offset where the stream will
  // be opened.
  std::function<void(uint64_t offset, const absl::Status& reason)> on_resume = {};

  // Called as messages arrive, at most ten times a second, and at the end.
  std::function<void(const StreamProgress& progress)> on_progress = {};

  // Stops the stream from another thread: Next() returns CANCELLED soon.
  std::stop_token stop = {};

  // With copies of its secrets, which is why it has no constructor for that.
  ListRequest Copy() const;
};

// What is known about a stream's completeness (docs/reference/completeness.md).
enum class Completeness {
  kUnderWay,         // not finished, or broken: then Next() has failed
  kEnded,            // the server ended it with OK, but sent no proof
  kProvenFromRelay,  // what was received matches a relay's count, bytes and digest; the relay had
                     // no proof from its server, so what that server left out is unknown
  kProvenForPlace,   // what was received matches the proof of a source that knows where its data is
                     // and not which state it has, such as a block device or an NBD export; or it
                     // was resumed without a version to compare: parts may be of two states
  kProven,           // what was received matches a proof that reaches back to the source
};

// "under way", "ended", "proven from the relay on", "proven for its place" or "proven".
std::string_view CompletenessName(Completeness completeness) noexcept;

// A remote stream as a cursor, so that transforms, maps and printers accept it.
//
// Messages are decoded and checked against every rule that a receiver may rely on (StreamChecker);
// if the server breaks one, the cursor fails with DATA_LOSS. covered() follows the end of the last
// tuple and reaches the capacity only when the server ended the stream with OK. If the connection
// breaks or the server's time for a stream is over, the stream resumes at the end of the last tuple
// (ListRequest::retry_for): no tuple is repeated or skipped. If the server reports the version of
// its data (docs/reference/completeness.md) and it changes in between, because the snapshot was
// replaced, the cursor fails with ABORTED: the tuples before and after would belong to two
// snapshots.
//
// A stream that ends with OK without a message is an empty answer, see NoMessage; when a stream
// resumes, the rest is empty, because the capacity is known by then.
//
// A proof of completeness from the server is checked; a mismatch is DATA_LOSS. The proof covers the
// call that reached the end. The calls before it were checked for order, and each resumed exactly
// where the last tuple of the previous call ended.
class RemoteCursor : public ExtentCursor {
 public:
  // Connects and waits for the first message; tries again as ListRequest::retry_for says while the
  // server is UNAVAILABLE.
  // Errors: those of the server with their code; UNAVAILABLE if it can't be reached.
  static absl::StatusOr<std::unique_ptr<RemoteCursor>> Open(const ListRequest& request);

  virtual BlockMetadataType type() const noexcept = 0;
  // How many times the client tried to resume the stream.
  virtual int resumes() const noexcept = 0;
  virtual Completeness completeness() const noexcept = 0;
  // The server's announcement of what the stream holds from the starting offset on; often empty.
  virtual const StreamSummary& summary() const noexcept = 0;
  // The version of its data that the server reports; empty if it reports none.
  virtual const std::string& source_version() const noexcept = 0;
  // False if the volume's size is unknown (NoMessage::kAccepted): the answer is empty, and
  // capacity() is the starting offset. Nothing may be cut to that size.
  virtual bool capacity_known() const noexcept = 0;
  // Whether the data may change while its version stays the same: such a stream can't be continued
  // by another one.
  virtual bool may_change_unseen() const noexcept = 0;

 protected:
  using ExtentCursor::ExtentCursor;
};

// --- A server as a provider.

// A provider that queries a server of any contract, to serve, check or reshape its data. Each
// cursor is a RemoteCursor with its checks; it resumes a broken stream for three seconds without
// progress, and leaves longer waits to its own clients. All share one connection. An invalid
// address is an error of every call. Error texts are written here and safe for clients; the
// server's own texts go to `log`, which must outlive the provider.
std::unique_ptr<SnapshotProvider> MakeRemoteProvider(const std::string& address, Api api,
                                                     const ClientTlsOptions& tls = {},
                                                     LogSink* log = nullptr);

// --- The fallback order of backup applications: changed blocks; if unavailable, allocated blocks; if
// those are unavailable too, the whole volume.

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

#endif  // CBT_RPC_CLIENT_H_
