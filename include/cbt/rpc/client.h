// A client of the contracts of cbt/rpc/api.h: a remote stream as a cursor. Part of cbt::rpc.
#ifndef CBT_RPC_CLIENT_H_
#define CBT_RPC_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/metadata_type.h"
#include "cbt/provider.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/options.h"

namespace cbt::rpc {

// How far a stream has come; bytes of the volume.
struct StreamProgress {
  uint64_t covered = 0;         // everything below was handed on
  uint64_t capacity = 0;        // of the volume
  uint64_t tuples = 0;          // received so far
  uint64_t reported_bytes = 0;  // by them
  double tuples_per_second = 0;
};

struct ListRequest {
  // `unix:///path`, or `host:port`.
  std::string address = {};
  Api api = Api::kCsi;

  // The target snapshot, and the base for a delta; without a base, what is allocated. Handles, or
  // names where the contract has names.
  std::string snapshot_id = {};
  std::optional<std::string> base_snapshot_id = {};

  // Where the contract has them: the security or session token, which is never logged, the
  // namespace, and the volume.
  std::string token = {};
  std::string name_space = {};
  std::string volume_id = {};

  uint64_t starting_offset = 0;  // bytes
  // RemoteCursor::source_version() of the stream that this one goes on with: where the server now
  // reads other data, or doesn't say, the stream fails with ABORTED. Empty: not compared.
  std::string source_version = {};
  int32_t max_results = 0;                          // tuples a message, 0: the server's choice
  std::map<std::string, std::string> secrets = {};  // passed on, never logged

  ClientTlsOptions tls = {};

  // Time for the whole stream with its resumptions; none: no limit.
  std::optional<std::chrono::milliseconds> timeout = {};

  // A server that sends nothing for this long, while there is room for more, fails the stream with
  // DEADLINE_EXCEEDED; none: no limit. A server may be silent while it searches.
  std::optional<std::chrono::milliseconds> stall_timeout = {};

  // A stream that ends without a proof of its completeness, or with one that begins at a relay and
  // not at the server that knows the volume, fails with FAILED_PRECONDITION.
  bool require_proof = false;

  // How often in a row a broken stream (UNAVAILABLE, or CANCELLED by the server) is resumed without
  // a new tuple in between. Waits 0.1 s, then twice as long each time, up to 5 s.
  int max_resumes = 5;

  // Called before each resumption, with the reason.
  std::function<void(uint64_t offset, const absl::Status& reason)> on_resume = {};

  // Called when messages have come, at most ten times a second, and at the end.
  std::function<void(const StreamProgress& progress)> on_progress = {};

  // Stops the stream from another thread: Next() returns CANCELLED soon.
  std::stop_token stop = {};
};

// What is known of a stream's completeness (docs/reference/completeness.md).
enum class Completeness {
  kUnderWay,         // not at its end, or broken: then Next() has failed
  kEnded,            // the server ended it with OK, and sent no proof
  kProvenFromRelay,  // a relay's count, bytes and digest are those of what was received; the server
                     // behind the relay gave it no proof, so what that one left out is not known
  kProven,           // the same of a proof that reaches back to the source
};

// "under way", "ended", "proven from the relay on" or "proven".
std::string_view CompletenessName(Completeness completeness) noexcept;

// A remote stream: the same interface as every other cursor, so that transforms, maps and printers
// take it.
//
// Messages are decoded and checked against every rule that a receiver may rely on (StreamChecker);
// a server that breaks one fails the cursor with DATA_LOSS. covered() follows the end of the last
// tuple and reaches the capacity only when the server ended the stream with OK. A connection that
// breaks after the first message is resumed at the end of the last tuple: no tuple is repeated,
// none is skipped. A server that says which state of its data it reads
// (docs/reference/completeness.md) and then reads another one, because the snapshot was replaced in
// between, fails the cursor with ABORTED: what was received and what would follow are of two
// snapshots.
//
// A server's proof of completeness is checked where it comes, and one that differs is DATA_LOSS. It
// covers the call that reached the end; what came before a resumption was checked for order and for
// gaps between its tuples and the next call's starting offset, which are one and the same.
class RemoteCursor : public ExtentCursor {
 public:
  // Connects and waits for the first message. There is no retry before it has come.
  // Errors: those of the server with their code; UNAVAILABLE when it can't be reached.
  static absl::StatusOr<std::unique_ptr<RemoteCursor>> Open(const ListRequest& request);

  virtual BlockMetadataType type() const noexcept = 0;
  // Times that the stream was resumed.
  virtual int resumes() const noexcept = 0;
  virtual Completeness completeness() const noexcept = 0;
  // What the server said of the stream ahead of it, from the starting offset on; often nothing.
  virtual const StreamSummary& summary() const noexcept = 0;
  // Which state of its data the server reads, as it says; empty when it doesn't.
  virtual const std::string& source_version() const noexcept = 0;

 protected:
  using ExtentCursor::ExtentCursor;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_H_
