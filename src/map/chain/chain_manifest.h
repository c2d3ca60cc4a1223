// What belongs to a chain: the file CHAIN in its directory, see docs/reference/format.md.
//
// Every snapshot has a slot, a number that is never used again. At the slot of a snapshot stands
// the map from the snapshot before it. A node (level, index) is the union of the maps in the slots
// [index << level, (index + 1) << level).
//
// A slot whose snapshot was removed is empty: its map has become part of the next one. Nodes that
// hold the empty slot and not the next one keep what was in it, which does no harm: a delta that
// takes such a node goes on to a snapshot that is still there, so over the next slot too.
#ifndef CBT_MAP_CHAIN_CHAIN_MANIFEST_H_
#define CBT_MAP_CHAIN_CHAIN_MANIFEST_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "map/folder/manifest_bytes.h"

namespace cbt {

// A map file of the chain.
using ChainFile = ManifestFile;

struct ChainEntry {
  std::string id;
  uint64_t slot = 0;
  uint64_t capacity = 0;  // bytes
  // The least capacity of this snapshot and the removed ones before it: what lies above may have
  // been lost and got back.
  uint64_t floor = 0;
  ChainFile file;  // none for the oldest
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

std::vector<uint8_t> EncodeManifest(const ChainManifest& manifest);

// Errors: INVALID_ARGUMENT for what is no manifest, DATA_LOSS with the offset for a damaged one,
//         UNIMPLEMENTED for a newer version. `name` is for messages.
absl::StatusOr<ChainManifest> DecodeManifest(std::span<const uint8_t> bytes, std::string_view name);

}  // namespace cbt

#endif  // CBT_MAP_CHAIN_CHAIN_MANIFEST_H_
