// A client of csi.v1.SnapshotMetadata: a remote stream as a cursor. Part of cbt::rpc.
#ifndef CBT_RPC_CLIENT_H_
#define CBT_RPC_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/wire.h"

namespace cbt::rpc {

// PEM texts; TLS is on when `enabled`. Without a CA the system's roots are used.
struct ClientTlsOptions {
  bool enabled = false;
  std::string ca = {};
  std::string certificate = {};
  std::string private_key = {};
};

struct ListRequest {
  // `unix:///path`, or `host:port`.
  std::string address = {};

  // The target snapshot, and the base for a delta; without a base, what is allocated.
  std::string snapshot_id = {};
  std::optional<std::string> base_snapshot_id = {};

  uint64_t starting_offset = 0;                     // bytes
  int32_t max_results = 0;                          // tuples a message, 0: the server's choice
  std::map<std::string, std::string> secrets = {};  // passed on, never logged

  ClientTlsOptions tls = {};

  // Time for the whole stream with its resumptions; none: no limit.
  std::optional<std::chrono::milliseconds> timeout = {};

  // How often in a row a broken stream (UNAVAILABLE) is resumed without a new tuple in between.
  // Waits 0.1 s, then twice as long each time, up to 5 s.
  int max_resumes = 5;

  // Called before each resumption, with the reason.
  std::function<void(uint64_t offset, const absl::Status& reason)> on_resume = {};
};

// A remote stream: the same interface as every other cursor, so that transforms, maps and printers
// take it.
//
// Messages are decoded and checked against every rule that a receiver may rely on (StreamChecker);
// a server that breaks one fails the cursor with DATA_LOSS. covered() follows the end of the last
// tuple and reaches the capacity only when the server ended the stream with OK. A connection that
// breaks after the first message is resumed at the end of the last tuple: no tuple is repeated,
// none is skipped.
class RemoteCursor : public ExtentCursor {
 public:
  // Connects and waits for the first message. There is no retry before it has come.
  // Errors: those of the server with their code; UNAVAILABLE when it can't be reached.
  static absl::StatusOr<std::unique_ptr<RemoteCursor>> Open(const ListRequest& request);

  virtual BlockMetadataType type() const noexcept = 0;
  // Times that the stream was resumed.
  virtual int resumes() const noexcept = 0;

 protected:
  using ExtentCursor::ExtentCursor;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_H_
