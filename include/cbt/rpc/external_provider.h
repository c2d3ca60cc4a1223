// A storage plugin in another process as a provider: it serves cbt.provider.v1.SnapshotProvider
// (src/proto/provider.proto) at a Unix socket. Part of cbt::rpc.
#ifndef CBT_RPC_EXTERNAL_PROVIDER_H_
#define CBT_RPC_EXTERNAL_PROVIDER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/provider.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// Files that such a plugin names. The texts are its own: validate them before they reach a system
// call.
struct ExternalFiles {
  std::string path = {};
  std::string base_path = {};  // empty: none
  std::string format = {};
  // Whether the question is what changed.
  bool delta = false;
};

struct ExternalProviderOptions {
  // Opens files; FilesBelow::Open() (cbt/source/files_below.h) is made for it. The result's cursor
  // and version count, `may_change_unseen` is added to the plugin's. Without it, answers that name
  // files are FAILED_PRECONDITION.
  std::function<absl::StatusOr<MetadataSource>(const ExternalFiles& files,
                                               const StreamContext& context)>
      open_files = {};
  // How streams report ranges: empty as the plugin says.
  std::optional<BlockMetadataType> type = {};
  std::optional<uint64_t> block_size = {};  // bytes
  // The longest time that the plugin may send nothing while its next message is waited for; zero:
  // no limit.
  std::chrono::milliseconds silence = std::chrono::minutes(1);
  // Texts of errors that the transport made, which clients don't see; must outlive the provider.
  LogSink* log = nullptr;
};

// Each stream is one call of the plugin, and a further one where the stream is sought back. All
// share one connection, which is made anew after it was lost. Bitmaps and extents are read as they
// come: a stream holds some messages of them. What a plugin sends is checked: the client gets an
// error for everything that the contract does not allow, never a shorter answer.
//
// Errors of streams: the plugin's with its code and message, unless that resembles a secret of the
//         request; UNAVAILABLE if it can't be reached or ends midway, DEADLINE_EXCEEDED after
//         `silence`, DATA_LOSS for an answer without its end, INTERNAL for one that breaks another
//         rule, ABORTED if it changes between two calls of one stream.
// Errors: INVALID_ARGUMENT for an address that is not unix:///PATH.
absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeExternalProvider(
    const std::string& address, const ExternalProviderOptions& options = {});

}  // namespace cbt::rpc

#endif  // CBT_RPC_EXTERNAL_PROVIDER_H_
