#include "map/container_merge.h"

#include <algorithm>
#include <utility>

namespace cbt {
namespace {

constexpr uint64_t kNoKey = UINT64_MAX;

}  // namespace

ContainerMerge::ContainerMerge(std::vector<std::shared_ptr<const PortableIndex>> maps,
                               uint64_t block_count)
    : maps_(std::move(maps)),
      block_count_(block_count),
      end_key_(block_count == 0 ? 0 : ((block_count - 1) >> kContainerShift) + 1),
      ordinals_(maps_.size()),
      keys_(maps_.size()) {
  Seek(0);
}

void ContainerMerge::Seek(uint64_t key) {
  for (size_t i = 0; i < maps_.size(); ++i) {
    ordinals_[i] = maps_[i]->LowerBound(key);
    keys_[i] = ordinals_[i] < maps_[i]->size() ? maps_[i]->Key(ordinals_[i]) : kNoKey;
  }
  FindNext();
}

void ContainerMerge::Advance(size_t map) {
  const size_t ordinal = ++ordinals_[map];
  keys_[map] = ordinal < maps_[map]->size() ? maps_[map]->Key(ordinal) : kNoKey;
}

void ContainerMerge::FindNext() noexcept {
  next_key_ = kNoKey;
  for (const uint64_t key : keys_) next_key_ = std::min(next_key_, key);
  next_key_ = std::min(next_key_, end_key_);
}

absl::StatusOr<const Container*> ContainerMerge::Next() {
  const uint64_t key = next_key_;
  if (key >= end_key_) return nullptr;
  const uint64_t end = block_count_ - (key << kContainerShift);
  if (words_ == nullptr && (maps_.size() > 1 || end < kContainerBlocks)) {
    words_ = std::make_unique_for_overwrite<ContainerWords>();
  }
  united_ = false;
  size_t found = 0;
  for (size_t i = 0; i < maps_.size(); ++i) {
    if (keys_[i] != key) continue;
    const PortableIndex& map = *maps_[i];
    Container container;
    if (map.checked()) {
      container = map.Get(ordinals_[i]);
    } else {
      absl::StatusOr<Container> loaded = map.Load(ordinals_[i]);
      if (!loaded.ok()) return loaded.status();
      container = *loaded;
    }
    Advance(i);
    // A full container can't grow.
    if (found > 0 && !united_ && container_.full()) continue;
    if (found == 0 || container.full()) {
      container_ = container;
      united_ = false;
    } else {
      if (!united_) CopyInto(container_, *words_);
      UniteInto(container, *words_);
      united_ = true;
    }
    ++found;
  }
  FindNext();
  if (end < kContainerBlocks && (united_ || LastValue(container_) >= end)) {
    // In the map of a larger volume, the last container may extend past the end.
    if (!united_) CopyInto(container_, *words_);
    united_ = true;
    for (size_t i = 0; i < kBitsetWords; ++i) {
      if (i * 64 >= end) {
        (*words_)[i] = 0;
      } else if (end - i * 64 < 64) {
        (*words_)[i] &= (uint64_t{1} << (end - i * 64)) - 1;
      }
    }
  }
  if (united_) {
    container_ = {key, reinterpret_cast<const uint8_t*>(words_->data()), 0, 0,
                  ContainerKind::kBitset};
  }
  return &container_;
}

}  // namespace cbt
