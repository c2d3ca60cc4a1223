#include "map/chain/manifest_edit.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cbt {

size_t PlaceOf(const ChainManifest& manifest, uint64_t slot) noexcept {
  const auto place = std::lower_bound(
      manifest.entries.begin(), manifest.entries.end(), slot,
      [](const ChainEntry& candidate, uint64_t wanted) { return candidate.slot < wanted; });
  return static_cast<size_t>(place - manifest.entries.begin());
}

// For one more step, so that nothing throws between a change and its record.
void ManifestEdit::MakeRoom() {
  if (steps_.size() == steps_.capacity()) steps_.reserve(2 * steps_.size() + 8);
  if (dropped_.size() == dropped_.capacity()) dropped_.reserve(2 * dropped_.size() + 8);
}

void ManifestEdit::Append(ChainEntry entry) {
  MakeRoom();
  manifest_.entries.push_back(std::move(entry));
  steps_.push_back({.kind = Step::Kind::kAppend});
}

void ManifestEdit::Erase(size_t at) {
  MakeRoom();
  const auto place = std::next(manifest_.entries.begin(), static_cast<std::ptrdiff_t>(at));
  if (place->file.number != 0) dropped_.push_back(place->file);
  steps_.push_back({.kind = Step::Kind::kErase, .at = at, .entry = std::move(*place)});
  manifest_.entries.erase(place);
}

void ManifestEdit::Replace(size_t at, ChainEntry entry) {
  MakeRoom();
  std::swap(manifest_.entries[at], entry);
  if (entry.file.number != 0 && entry.file != manifest_.entries[at].file) {
    dropped_.push_back(entry.file);
  }
  steps_.push_back({.kind = Step::Kind::kReplace, .at = at, .entry = std::move(entry)});
}

void ManifestEdit::AddNode(ChainNode node, const ChainFile& file) {
  MakeRoom();
  manifest_.nodes.emplace(node, file);
  steps_.push_back({.kind = Step::Kind::kAddNode, .node = node});
}

void ManifestEdit::EraseNode(ChainNode node) {
  const auto place = manifest_.nodes.find(node);
  if (place == manifest_.nodes.end()) return;
  MakeRoom();
  dropped_.push_back(place->second);
  steps_.push_back({.kind = Step::Kind::kEraseNode, .erased = manifest_.nodes.extract(place)});
}

void ManifestEdit::Undo() noexcept {
  if (kept_) return;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    switch (step->kind) {
      case Step::Kind::kAppend:
        manifest_.entries.pop_back();
        break;
      case Step::Kind::kErase:
        // There is room: the vector had one more.
        manifest_.entries.insert(
            std::next(manifest_.entries.begin(), static_cast<std::ptrdiff_t>(step->at)),
            std::move(step->entry));
        break;
      case Step::Kind::kReplace:
        manifest_.entries[step->at] = std::move(step->entry);
        break;
      case Step::Kind::kAddNode:
        manifest_.nodes.erase(step->node);
        break;
      case Step::Kind::kEraseNode:
        manifest_.nodes.insert(std::move(step->erased));
        break;
    }
  }
  manifest_.next_slot = next_slot_;
  manifest_.next_file = next_file_;
}

}  // namespace cbt
