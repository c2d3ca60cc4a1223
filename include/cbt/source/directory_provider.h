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
  // Where images are read; must outlive the provider and its cursors, and must not be the executor
  // that the service runs on (see ImageOptions). Without one, reads happen inside Next().
  Executor* executor = nullptr;
  // What files `*.source` may name outside of the root: absolute paths of files, folders and NBD
  // sockets (folders with all that is below them), and NBD addresses, each with all addresses that
  // continue it with '/' or '?'. Key files of NBD sources have to be listed as well.
  std::vector<std::string> allowed_sources = {};
  // How long opening such a source may take, and then all of its answers to one stream together.
  std::chrono::milliseconds source_time = std::chrono::minutes(10);
};

// A snapshot's id is the path of its image below the root without the last extension
// (`vol1/monday` for `ROOT/vol1/monday.img`), the folder above it is the volume. A file with the
// extension `.partial` is a snapshot that exists but is not ready. Files whose name begins with a
// dot are no snapshots.
//
// Change maps (`*.cbm`) and chains (folders `*.chain`) beside the images tell deltas without
// reading data, also of snapshots whose images are gone; see cbt/change_map_file.h and
// cbt/change_chain.h. They count for the snapshots that they name, alone (`monday`) or as whole ids
// (`vol1/monday`), and for the volume that they name, if any: the folder's name or path (of the
// root: as `root` says it, or as links lead to it). A map or chain that would answer and is
// damaged, of another capacity than the target's image, or contradicted by another one is
// FAILED_PRECONDITION. Where several would answer they are compared, which takes a pass over each
// before the stream begins: a map may lie beside the chain that it was appended to. They are known
// by names alone, and answer before the images do: never give a snapshot the name of an earlier one
// while a map of that one lies there. One that is written over where it lies ends the streams that
// read it with ABORTED (and cut short it can end the process): put new ones beside and rename them,
// as WriteChangeMap() does.
//
// An image with the extension `.qcow2` is read as one: its capacity is the virtual size, its
// backing files lie below the root as well, and a delta of two of them is told by where their data
// lies.
//
// A file `*.source` beside the images says where else something about a snapshot is to be had: a
// list that a storage system's tool printed, a bitmap, an NBD export
// (docs/guides/reading-sources.md). Of a delta it counts before the images, after maps and chains;
// of what is allocated before the image, and a map without a base counts where there is neither.
// The files that it names lie in the volume's folder, and should have names that begin with a dot,
// or they count as snapshots themselves; they are regular files or block devices. What lies
// elsewhere has to be in `allowed_sources`, and what takes longer than `source_time` is
// DEADLINE_EXCEEDED.
//
// Ids can't lead out of the root: empty ones, absolute ones, `.` and `..` as components, doubled
// slashes and NUL are INVALID_ARGUMENT, symbolic links that point out of the root are NOT_FOUND.
// Two files that have the same id are refused with FAILED_PRECONDITION rather than guessed at;
// where one of them is not ready, or can't be opened, with UNAVAILABLE.
//
// Errors: NOT_FOUND, INVALID_ARGUMENT, PERMISSION_DENIED when `root` can't be used or an option is
//         out of range.
absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeDirectoryProvider(
    const std::string& root, const DirectoryProviderOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_PROVIDER_H_
