// A change of a chain's manifest in place, which costs what it changes and not a copy of the whole.
#ifndef CBT_MAP_CHAIN_MANIFEST_EDIT_H_
#define CBT_MAP_CHAIN_MANIFEST_EDIT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "map/chain/chain_manifest.h"

namespace cbt {

// The index of the entry with this slot, or of the next one.
size_t PlaceOf(const ChainManifest& manifest, uint64_t slot) noexcept;

// Whatever is not kept is undone by the destructor, also after an exception. Nothing else may change
// the manifest meanwhile.
class ManifestEdit {
 public:
  explicit ManifestEdit(ChainManifest& manifest) noexcept
      : manifest_(manifest), next_slot_(manifest.next_slot), next_file_(manifest.next_file) {}
  ~ManifestEdit() { Undo(); }
  ManifestEdit(const ManifestEdit&) = delete;
  ManifestEdit& operator=(const ManifestEdit&) = delete;

  const ChainManifest& manifest() const noexcept { return manifest_; }
  uint64_t NewSlot() noexcept { return manifest_.next_slot++; }
  uint64_t NewFile() noexcept { return manifest_.next_file++; }

  void Append(ChainEntry entry);
  void Erase(size_t at);
  void Replace(size_t at, ChainEntry entry);
  // Requires: the node is not there.
  void AddNode(ChainNode node, const ChainFile& file);
  // Nothing happens unless it is there.
  void EraseNode(ChainNode node);

  // The files that are not needed any more.
  const std::vector<ChainFile>& dropped() const noexcept { return dropped_; }

  bool kept() const noexcept { return kept_; }
  void Keep() noexcept { kept_ = true; }

 private:
  using Nodes = std::map<ChainNode, ChainFile>;
  struct Step {
    enum class Kind { kAppend, kErase, kReplace, kAddNode, kEraseNode } kind;
    size_t at = 0;
    ChainEntry entry = {};  // what was there
    ChainNode node = {};
    Nodes::node_type erased = {};
  };

  void MakeRoom();
  void Undo() noexcept;

  ChainManifest& manifest_;
  const uint64_t next_slot_;
  const uint64_t next_file_;
  std::vector<Step> steps_;
  std::vector<ChainFile> dropped_;
  bool kept_ = false;
};

}  // namespace cbt

#endif  // CBT_MAP_CHAIN_MANIFEST_EDIT_H_
