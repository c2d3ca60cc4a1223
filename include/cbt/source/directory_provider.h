// Serves images, change maps and other sources in a directory tree as snapshots. Part of
// cbt::source; no gRPC.
#ifndef CBT_SOURCE_DIRECTORY_PROVIDER_H_
#define CBT_SOURCE_DIRECTORY_PROVIDER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "cbt/provider.h"

namespace cbt {

struct DirectoryProviderOptions {
  BlockMetadataType type = BlockMetadataType::kVariableLength;
  // Granularity (bytes), a power of two from 512 to 64 MiB.
  uint64_t block_size = 4096;
  // Reads images; must outlive the provider and its cursors, and must not be the executor that the
  // service runs on (see ImageOptions). Without one, Next() reads.
  Executor* executor = nullptr;
  // What `*.source` files may name outside of the root: absolute paths of files, directories and
  // NBD sockets (directories with everything below them), and NBD addresses, each with all
  // addresses that continue it with '/' or '?'. Key files of NBD sources must be listed as well.
  std::vector<std::string> allowed_sources = {};
  // Time limit for opening such a source, and then for all of its answers to one stream together.
  std::chrono::milliseconds source_time = std::chrono::minutes(10);
};

// A snapshot's id is the path of its image below the root without the last extension (`vol1/monday`
// for `ROOT/vol1/monday.img`); the directory that holds it is the volume. A file with the extension
// `.partial` is a snapshot that exists but is not ready. Files whose name begins with a dot are not
// snapshots.
//
// Change maps (`*.cbm`) and chains (directories `*.chain`) next to the images answer deltas without
// reading data, even for snapshots whose images are gone; see cbt/change_map_file.h and
// cbt/change_chain.h. They apply to the snapshots that they name, by name (`monday`) or by full id
// (`vol1/monday`), and to the volume that they name, if any: the directory's name or path (for the
// root: as `root` says it, or with symbolic links resolved). If a map or chain that would answer is
// damaged, has another capacity than the target's image, or contradicts another one, the delta is
// FAILED_PRECONDITION. If several would answer they are compared, which takes a pass over each
// before the stream begins: a map may lie next to the chain that it was appended to. They are
// identified by names alone, and take precedence over the images: never reuse the name of a
// snapshot while a map of the earlier one lies there. Overwriting one in place ends the streams
// that read it with ABORTED (and truncating it can end the process): write new ones to another file
// and rename it, as WriteChangeMap() does.
//
// An image with the extension `.qcow2` is read as qcow2: its capacity is the virtual size, its
// backing files must lie below the root as well, and a delta of two of them is determined by where
// their data lies.
//
// A `*.source` file next to the images names another source of change metadata for a snapshot: a
// list that a storage system's tool printed, a bitmap, an NBD export (see
// docs/reference/sources.md). For a delta it takes precedence over the images, but not over maps
// and chains; for allocation, over the image, and a map without a base is used only if there is
// neither. The files that it names lie in the volume's directory, and should have names that begin
// with a dot, or they count as snapshots themselves; they must be regular files or block devices.
// Anything elsewhere must be in `allowed_sources`, and a source that takes longer than
// `source_time` is DEADLINE_EXCEEDED.
//
// Ids can't lead out of the root: empty ones, absolute ones, `.` and `..` as components, doubled
// slashes and NUL are INVALID_ARGUMENT, symbolic links that point out of the root are NOT_FOUND.
// Two files with the same id are FAILED_PRECONDITION; if one of them is not ready, or can't be
// opened, UNAVAILABLE.
//
// Errors: NOT_FOUND, INVALID_ARGUMENT, PERMISSION_DENIED if `root` can't be used or an option is
//         out of range.
absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeDirectoryProvider(
    const std::string& root, const DirectoryProviderOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_PROVIDER_H_
