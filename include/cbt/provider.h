// What a storage plugin implements so that its snapshots can be served: snapshot ids to cursors.
// Everything else that the contracts ask for (argument checks, resuming, message sizes, errors,
// cancellation) is the service's work, see cbt/rpc/server.h.
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
#include "cbt/metadata_type.h"
#include "cbt/secrets.h"

namespace cbt {

// What a provider learns about the stream it opens. Valid while the call runs; copy the stop token
// to keep it.
struct StreamContext {
  // Stops when the client has gone, its deadline has passed or the server shuts down. Cursors need
  // not look at it: the service does between two calls of Next().
  std::stop_token stop;
  const Secrets& secrets;
  // When the client stops waiting, if it said so.
  std::optional<std::chrono::system_clock::time_point> deadline = {};
};

// What is known of a stream before it has been read: bytes and tuples from its starting offset on.
struct StreamSummary {
  std::optional<uint64_t> bytes = {};
  std::optional<uint64_t> tuples = {};
};

// What a provider returns for a stream.
struct MetadataSource {
  // Stands at 0; the service seeks it to the starting offset. capacity() is the size of the target
  // snapshot (not the volume's present size) and what the stream will say it is.
  std::unique_ptr<ExtentCursor> cursor = {};

  // How the answer is told. For kFixedLength the service cuts the extents into blocks of
  // `block_size` bytes, rounding outward, whatever the cursor's granularity is.
  BlockMetadataType type = BlockMetadataType::kVariableLength;
  uint64_t block_size = 0;

  // Tells what is to come from an offset (bytes) on, where that can be known quickly; sent ahead of
  // the stream for progress bars and estimates. May be left empty.
  std::function<StreamSummary(uint64_t starting_offset)> summary = {};

  // Which state of the data the cursor reads, in any form: another text whenever the answer may be
  // another one. A client that goes on at an offset compares a digest of it with that of the stream
  // before, and so finds a snapshot that was replaced in between. Kept over restarts of the
  // provider, or every resumption after one is refused. Empty: nothing but the ids is known.
  std::string version = {};

  // Asked when the cursor is complete, while it lives: false where the cursor hands on the answer
  // of another server that gave no proof of its completeness. The proof that the service sends then
  // says that it begins here. Leave it empty where the provider knows the volume itself.
  std::function<bool()> proven = {};
};

// Snapshot ids to cursors. Calls come from the service's executor, several at once, and may block.
// Errors go to the client with their code and message, so messages must not hold secrets:
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
