// The manifest of a chain: the file CHAIN in its directory, see docs/reference/format.md.
//
// Every snapshot has a slot, a number that is never reused. The slot holds the map from the
// previous snapshot to this one. A node (level, index) is the union of the maps in the slots [index
// << level, (index + 1) << level).
//
// A slot whose snapshot was removed is empty: its map has become part of the next one. Nodes that
// include the empty slot but not the next one keep its contents. This is harmless: a delta that
// uses such a node continues to an existing snapshot, and so includes the next slot too.
#ifndef CBT_MAP_CHAIN_CHAIN_MANIFEST_H_
#define CBT_MAP_CHAIN_CHAIN_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/directory.h"
#include "base/manifest_bytes.h"

namespace cbt {

// A map file of the chain.
using ChainFile = ManifestFile;

struct ChainEntry {
  std::string id;
  uint64_t slot = 0;
  uint64_t capacity = 0;  // bytes
  // The smallest capacity of this snapshot and the removed ones before it: data above it may have
  // been lost by shrinking and regained by growing.
  uint64_t floor = 0;
  ChainFile file;  // none for the oldest snapshot
  // When it was taken: nanoseconds since 1970. Nothing: not known, as in every manifest of
  // version 1.
  std::optional<int64_t> time = {};
};

// (level, index)
using ChainNode = std::pair<unsigned, uint64_t>;

struct ChainManifest {
  std::string volume;
  uint64_t granularity = 1;
  uint64_t next_slot = 0;
  uint64_t next_file = 1;
  std::vector<ChainEntry> entries;  // ascending slots
  std::map<ChainNode, ChainFile> nodes;
};

inline constexpr unsigned kMaxChainLevel = 40;
inline constexpr char kChainManifestName[] = "CHAIN";

std::vector<uint8_t> EncodeManifest(const ChainManifest& manifest);

// Errors: INVALID_ARGUMENT for anything but a manifest, DATA_LOSS with the offset for a damaged
//         one, UNIMPLEMENTED for a newer version. `name` is for messages.
absl::StatusOr<ChainManifest> DecodeManifest(std::span<const uint8_t> bytes, std::string_view name);

// The manifest in a chain's directory. Errors: those of DecodeManifest(), file errors.
absl::StatusOr<ChainManifest> ReadChainManifest(const Directory& directory);

}  // namespace cbt

#endif  // CBT_MAP_CHAIN_CHAIN_MANIFEST_H_
