// The interface that a storage plugin implements to serve its snapshots: it maps snapshot ids to
// cursors. The service does everything else that the contracts require (argument checks, resuming,
// message sizes, errors, cancellation), see cbt/rpc/server.h.
#ifndef CBT_PROVIDER_H_
#define CBT_PROVIDER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/secrets.h"

namespace cbt {

// The stream that a provider opens. Valid during the call; copy the stop token to keep it.
struct StreamContext {
  // Stops when the client disconnects, its deadline passes or the server shuts down. Cursors need
  // not check it: the service does, between calls of Next().
  std::stop_token stop;
  const Secrets& secrets;
  // The client's deadline, if it set one.
  std::optional<std::chrono::system_clock::time_point> deadline = {};
};

// The size of a stream, known before it is read: bytes and tuples from its starting offset on.
struct StreamSummary {
  std::optional<uint64_t> bytes = {};
  std::optional<uint64_t> tuples = {};
};

// What a provider returns for a stream.
struct MetadataSource {
  // Destroyed after everything else here. For a cursor, or a function below, that borrows what the
  // provider fetched for this stream.
  std::shared_ptr<const void> keep_alive = {};

  // Positioned at 0; the service seeks it to the starting offset. capacity() is the size of the
  // target snapshot (not the volume's current size); the stream reports it.
  std::unique_ptr<ExtentCursor> cursor = {};

  // How the stream reports ranges. For kFixedLength the service cuts the extents into blocks of
  // `block_size` bytes, rounding outward, whatever the cursor's granularity is.
  BlockMetadataType type = BlockMetadataType::kVariableLength;
  uint64_t block_size = 0;

  // Returns the size of the stream from an offset (bytes) on, if it can be determined quickly; sent
  // before the stream for progress bars and estimates. Optional.
  std::function<StreamSummary(uint64_t starting_offset)> summary = {};

  // Identifies the state of the data that the cursor reads, as any text that differs whenever the
  // answer may differ. A client that resumes compares its digest with that of the earlier stream,
  // and so detects a snapshot that was replaced in between. Must be the same after a restart of the
  // provider, or every resumption across a restart is refused. Empty: only the ids identify the
  // data.
  std::string version = {};

  // `version` says where the data is and not which state it has: it may change, or be replaced,
  // while `version` stays the same. So it is with block devices and NBD exports. Streams of such a
  // source are not proven (docs/reference/completeness.md), and not continued by other processes.
  bool may_change_unseen = false;

  // Called after the cursor completes and before it is destroyed: false if the cursor relays
  // another server's answer that came without a proof of completeness. The service's own proof then
  // states that it starts here. Leave it empty if the provider knows the volume itself.
  std::function<bool()> proven = {};

  // The cursor only computes: neither its Next() nor `proven` waits, for a file, another process or
  // a lock that is held long, and Next() returns within a millisecond. Streams are then made on the
  // transport's threads, which saves a hand-over between threads for each message: a quarter to a
  // third of a stream's processor time. The first messages, and searches that take longer, stay on
  // the executor. Wrong for what is read from files, mapped ones too: other streams would wait.
  bool never_blocks = false;
};

// Maps snapshot ids to cursors. Called from the service's executor, concurrently; calls may block.
// Cursors are read and destroyed there too, but see MetadataSource::never_blocks.
// Errors reach the client with their code and message, so messages must not contain secrets:
//   INVALID_ARGUMENT     the snapshots are of different volumes, an id can't be one
//   NOT_FOUND            no such snapshot
//   FAILED_PRECONDITION  the storage has no change tracking for them
//   UNAVAILABLE          a snapshot exists but is not ready; try again later
//   UNIMPLEMENTED        not offered at all
class SnapshotProvider {
 public:
  virtual ~SnapshotProvider() = default;

  // The allocated extents of a snapshot. The id is not empty.
  virtual absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                                       const StreamContext& context) = 0;

  // The extents that changed from the base to the target snapshot. The ids are not empty.
  virtual absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                                   std::string_view target_snapshot_id,
                                                   const StreamContext& context) = 0;
};

}  // namespace cbt

#endif  // CBT_PROVIDER_H_
