// Set algebra on maps, container by container.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/transform.h"
#include "map/container_merge.h"
#include "map/map_access.h"
#include "map/portable_writer.h"
#include "map/range_writer.h"

namespace cbt {
namespace {

const uint8_t* Bytes(const ContainerWords& words) noexcept {
  return reinterpret_cast<const uint8_t*>(words.data());
}

// Converts `maps` to one granularity, the finest. Returns the maps that the converted views refer
// to.
absl::StatusOr<std::vector<ChangeMap>> AtOneGranularity(std::vector<ChangeMapView>& maps) {
  uint64_t finest = maps.front().granularity();
  for (const ChangeMapView& map : maps) finest = std::min(finest, map.granularity());
  std::vector<ChangeMap> refined;
  for (ChangeMapView& map : maps) {
    if (map.granularity() == finest) continue;
    if (map.granularity() % finest != 0) {
      return absl::InvalidArgumentError(absl::StrCat("maps of granularities ", finest, " and ",
                                                     map.granularity(),
                                                     " don't combine: one must divide the other"));
    }
    absl::StatusOr<ChangeMap> fine = WithGranularity(map, finest);
    if (!fine.ok()) return fine.status();
    refined.push_back(*std::move(fine));
    map = refined.back();
  }
  return refined;
}

absl::StatusOr<ChangeMap> WholeRange(uint64_t begin, const VolumeGeometry& geometry) {
  RangeWriter writer;
  if (begin < Blocks(geometry)) {
    if (absl::Status status = writer.Add(begin, Blocks(geometry)); !status.ok()) return status;
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

// ORs the blocks of a container, `1 << fold` at a time, into those of the coarser container that it
// is a part of.
void FoldInto(const Container& container, unsigned fold, ContainerWords& words) {
  const auto first =
      static_cast<uint32_t>((container.first_block() >> fold) & (kContainerBlocks - 1));
  switch (container.kind) {
    case ContainerKind::kArray:
      for (uint32_t i = 0; i < container.count; ++i) {
        const uint32_t block = first + (LoadU16(container.data + 2 * size_t{i}) >> fold);
        words[block / 64] |= uint64_t{1} << block % 64;
      }
      return;
    case ContainerKind::kRun:
      for (uint32_t i = 0; i < container.count; ++i) {
        const uint8_t* const pair = container.data + 4 * size_t{i};
        const uint32_t value = LoadU16(pair);
        const uint32_t last = value + LoadU16(pair + 2);
        SetRange(words, first + (value >> fold), first + (last >> fold) + 1);
      }
      return;
    case ContainerKind::kBitset:
      break;
  }
  // A part has words of its own.
  FoldBits(container.data, fold, words.data() + first / 64);
}

// The map in blocks of `1 << fold` of its own.
absl::StatusOr<ChangeMap> Folded(const ChangeMapView& map, unsigned fold) {
  const PortableIndex& index = *ChangeMapAccess::Index(map);
  PortableWriter writer;
  ContainerWords words;
  for (size_t i = 0; i < index.size() && !writer.too_large();) {
    const uint64_t key = index.Key(i) >> fold;
    words.fill(0);
    for (; i < index.size() && index.Key(i) >> fold == key; ++i) {
      FoldInto(index.Get(i), fold, words);
    }
    writer.AddWords(key, Bytes(words));
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), {map.capacity(), map.granularity() << fold});
}

enum class Pairwise { kIntersection, kDifference, kSymmetricDifference };

// Applies `op` to two containers of the same key.
void Combine(Pairwise op, const Container& a, const Container& b, PortableWriter& writer) {
  ContainerWords words_a;
  ContainerWords words_b;
  CopyInto(a, words_a);
  CopyInto(b, words_b);
  for (size_t i = 0; i < kBitsetWords; ++i) {
    switch (op) {
      case Pairwise::kIntersection:
        words_a[i] &= words_b[i];
        break;
      case Pairwise::kDifference:
        words_a[i] &= ~words_b[i];
        break;
      case Pairwise::kSymmetricDifference:
        words_a[i] ^= words_b[i];
        break;
    }
  }
  writer.AddWords(a.key, Bytes(words_a));
}

absl::StatusOr<ChangeMap> CombineTwo(Pairwise op, const ChangeMapView& first,
                                     const ChangeMapView& second) {
  if (first.capacity() != second.capacity()) {
    return absl::InvalidArgumentError(
        absl::StrCat("maps of volumes of ", first.capacity(), " and ", second.capacity(),
                     " bytes don't combine; change one to the other's capacity"));
  }
  std::vector<ChangeMapView> maps = {first, second};
  absl::StatusOr<std::vector<ChangeMap>> refined = AtOneGranularity(maps);
  if (!refined.ok()) return refined.status();
  const PortableIndex& a = *ChangeMapAccess::Index(maps[0]);
  const PortableIndex& b = *ChangeMapAccess::Index(maps[1]);
  PortableWriter writer;
  size_t at_a = 0;
  size_t at_b = 0;
  while (at_a < a.size() && !writer.too_large()) {
    const Container left = a.Get(at_a);
    while (at_b < b.size() && b.Key(at_b) < left.key) {
      if (op == Pairwise::kSymmetricDifference) writer.AddContainer(b.Get(at_b));
      ++at_b;
    }
    if (at_b < b.size() && b.Key(at_b) == left.key) {
      Combine(op, left, b.Get(at_b), writer);
      ++at_b;
    } else if (op != Pairwise::kIntersection) {
      writer.AddContainer(left);
    }
    ++at_a;
  }
  for (; op == Pairwise::kSymmetricDifference && at_b < b.size(); ++at_b) {
    writer.AddContainer(b.Get(at_b));
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), maps[0].geometry());
}

}  // namespace

absl::StatusOr<ChangeMap> UniteBlocks(std::span<const ChangeMapView> maps,
                                      const VolumeGeometry& geometry) {
  std::vector<std::shared_ptr<const PortableIndex>> indexes;
  for (const ChangeMapView& map : maps) indexes.push_back(ChangeMapAccess::Index(map));
  return UniteBlocks(std::move(indexes), geometry);
}

absl::StatusOr<ChangeMap> UniteBlocks(std::vector<std::shared_ptr<const PortableIndex>> maps,
                                      const VolumeGeometry& geometry, uint64_t most) {
  uint64_t bytes = 0;
  for (const std::shared_ptr<const PortableIndex>& map : maps) bytes += map->bytes().size();
  ContainerMerge merge(std::move(maps), Blocks(geometry));
  PortableWriter writer(bytes, most);
  for (;;) {
    absl::StatusOr<const Container*> next = merge.Next();
    if (!next.ok()) return next.status();
    if (*next == nullptr || writer.too_large()) break;
    if (merge.united()) {
      writer.AddWords((*next)->key, (*next)->data);
    } else {
      writer.AddContainer(**next);
    }
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

absl::StatusOr<ChangeMap> Union(std::span<const ChangeMapView> maps) {
  if (maps.empty()) return absl::InvalidArgumentError("union: no maps");
  std::vector<ChangeMapView> inputs(maps.begin(), maps.end());
  absl::StatusOr<std::vector<ChangeMap>> refined = AtOneGranularity(inputs);
  if (!refined.ok()) return refined.status();
  VolumeGeometry geometry = inputs.front().geometry();
  uint64_t smallest = geometry.capacity;
  for (const ChangeMapView& map : inputs) {
    geometry.capacity = std::max(geometry.capacity, map.capacity());
    smallest = std::min(smallest, map.capacity());
  }
  // The range past the smallest map includes those past the others.
  ChangeMap unknown;
  if (smallest < geometry.capacity) {
    absl::StatusOr<ChangeMap> rest = WholeRange(smallest / geometry.granularity, geometry);
    if (!rest.ok()) return rest.status();
    unknown = *std::move(rest);
    inputs.push_back(unknown);
  }
  return UniteBlocks(inputs, geometry);
}

absl::StatusOr<ChangeMap> Union(std::span<const ChangeMap> maps) {
  return Union(std::vector<ChangeMapView>(maps.begin(), maps.end()));
}

absl::StatusOr<ChangeMap> Union(const ChangeMapView& a, const ChangeMapView& b) {
  const ChangeMapView both[] = {a, b};
  return Union(both);
}

absl::StatusOr<ChangeMap> Intersection(const ChangeMapView& a, const ChangeMapView& b) {
  return CombineTwo(Pairwise::kIntersection, a, b);
}

absl::StatusOr<ChangeMap> Difference(const ChangeMapView& a, const ChangeMapView& b) {
  return CombineTwo(Pairwise::kDifference, a, b);
}

absl::StatusOr<ChangeMap> SymmetricDifference(const ChangeMapView& a, const ChangeMapView& b) {
  return CombineTwo(Pairwise::kSymmetricDifference, a, b);
}

absl::StatusOr<ChangeMap> WithGranularity(const ChangeMapView& map, uint64_t granularity) {
  const uint64_t blocks = granularity / map.granularity();
  if (granularity % map.granularity() == 0 && IsPowerOfTwo(blocks) && blocks >> kMaxFolds <= 1) {
    const VolumeGeometry geometry{map.capacity(), granularity};
    if (absl::Status status = CheckGeometry(geometry); !status.ok()) return status;
    return Folded(map, static_cast<unsigned>(std::countr_zero(blocks)));
  }
  const std::unique_ptr<ExtentCursor> cursor = MakeBorrowedChangeMapCursor(map);
  return ChangeMap::FromCursor(*cursor, granularity);
}

absl::StatusOr<ChangeMap> WithCapacity(const ChangeMapView& map, uint64_t capacity) {
  const VolumeGeometry geometry{capacity, map.granularity()};
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  std::vector<ChangeMapView> inputs = {map};
  ChangeMap unknown;
  if (capacity > map.capacity()) {
    absl::StatusOr<ChangeMap> rest = WholeRange(map.capacity() / map.granularity(), geometry);
    if (!rest.ok()) return rest.status();
    unknown = *std::move(rest);
    inputs.push_back(unknown);
  }
  return UniteBlocks(inputs, geometry);
}

absl::Status ChangeMap::UniteWith(const ChangeMapView& other) {
  return Replace(Union(view_, other));
}

absl::Status ChangeMap::IntersectWith(const ChangeMapView& other) {
  return Replace(Intersection(view_, other));
}

absl::Status ChangeMap::Subtract(const ChangeMapView& other) {
  return Replace(Difference(view_, other));
}

absl::Status ChangeMap::Toggle(const ChangeMapView& other) {
  return Replace(SymmetricDifference(view_, other));
}

absl::Status ChangeMap::Replace(absl::StatusOr<ChangeMap> result) {
  if (!result.ok()) return result.status();
  view_ = std::move(result->view_);
  return absl::OkStatus();
}

absl::StatusOr<bool> ChangeMap::Optimize() {
  const size_t before = view_.portable().size();
  const ChangeMapView self[] = {view_};
  absl::StatusOr<ChangeMap> optimal = UniteBlocks(self, view_.geometry());
  if (!optimal.ok()) return optimal.status();
  if (absl::Status status = Replace(std::move(optimal)); !status.ok()) return status;
  return view_.portable().size() < before;
}

}  // namespace cbt
