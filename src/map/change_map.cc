// Views and maps: construction, and queries that need no full pass.
#include "cbt/change_map.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/map_access.h"
#include "map/portable_index.h"
#include "map/range_writer.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

constexpr uint64_t kNoGroups = 0;

std::span<const uint8_t> EmptyBitmap() noexcept {
  return {reinterpret_cast<const uint8_t*>(&kNoGroups), sizeof(kNoGroups)};
}

absl::StatusOr<std::shared_ptr<PortableIndex>> CheckedIndex(std::span<const uint8_t> bytes,
                                                            const VolumeGeometry& geometry) {
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<PortableIndex>> index =
      PortableIndex::Parse(bytes, Blocks(geometry));
  if (!index.ok()) return index.status();
  if (status = (*index)->CheckAll(); !status.ok()) return status;
  return index;
}

// Calls use(container) for every container; stops when it returns false.
template <typename Use>
void ForEach(const PortableIndex& index, size_t first, Use use) {
  for (size_t i = first; i < index.size(); ++i) {
    if (!use(index.Get(i))) return;
  }
}

bool SameBlocks(const Container& a, const Container& b) noexcept {
  if (a.key != b.key || a.cardinality != b.cardinality) return false;
  ContainerWords words_a;
  ContainerWords words_b;
  CopyInto(a, words_a);
  CopyInto(b, words_b);
  return words_a == words_b;
}

}  // namespace

absl::StatusOr<ChangeMap> ChangeMapAccess::FromBytes(std::shared_ptr<const void> owner,
                                                     std::span<const uint8_t> bytes,
                                                     const VolumeGeometry& geometry) {
  absl::StatusOr<std::shared_ptr<PortableIndex>> index = CheckedIndex(bytes, geometry);
  if (!index.ok()) return index.status();
  (*index)->Keep(std::move(owner));
  ChangeMap map;
  map.view_ = ChangeMapView(*std::move(index), geometry);
  return map;
}

absl::StatusOr<ChangeMap> ChangeMapAccess::FromWriter(absl::StatusOr<std::vector<uint8_t>> bytes,
                                                      const VolumeGeometry& geometry) {
  if (!bytes.ok()) return bytes.status();
  auto storage = std::make_shared<const std::vector<uint8_t>>(*std::move(bytes));
  const std::span<const uint8_t> written = *storage;
  absl::StatusOr<ChangeMap> map = FromBytes(std::move(storage), written, geometry);
  if (!map.ok() && map.status().code() == absl::StatusCode::kDataLoss) {
    return absl::InternalError(
        absl::StrCat("built an invalid change map: ", map.status().message()));
  }
  return map;
}

ChangeMapView::ChangeMapView() : index_(*PortableIndex::Parse(EmptyBitmap(), 0)) {}

ChangeMapView::ChangeMapView(std::shared_ptr<const PortableIndex> index,
                             const VolumeGeometry& geometry)
    : index_(std::move(index)), geometry_(geometry) {}

absl::StatusOr<ChangeMapView> ChangeMapView::Create(std::span<const uint8_t> portable,
                                                    const VolumeGeometry& geometry) {
  absl::StatusOr<std::shared_ptr<PortableIndex>> index = CheckedIndex(portable, geometry);
  if (!index.ok()) return index.status();
  return ChangeMapView(*std::move(index), geometry);
}

std::span<const uint8_t> ChangeMapView::portable() const noexcept { return index_->bytes(); }

uint64_t ChangeMapView::cardinality() const noexcept { return index_->cardinality(); }

uint64_t ChangeMapView::changed_bytes() const noexcept {
  const uint64_t rest = capacity() % granularity();
  const uint64_t missing =
      rest != 0 && Contains(capacity() / granularity()) ? granularity() - rest : 0;
  return cardinality() * granularity() - missing;
}

bool ChangeMapView::Contains(uint64_t block) const noexcept {
  const uint64_t key = block >> kContainerShift;
  const size_t at = index_->LowerBound(key);
  return at < index_->size() && index_->Key(at) == key &&
         ContainsValue(index_->Get(at), static_cast<uint32_t>(block & (kContainerBlocks - 1)));
}

bool ChangeMapView::ContainsRange(uint64_t begin, uint64_t end) const noexcept {
  if (begin >= end) return true;
  const uint64_t last_key = (end - 1) >> kContainerShift;
  uint64_t key = begin >> kContainerShift;
  for (size_t at = index_->LowerBound(key);; ++at, ++key) {
    // A missing container holds no block of the range.
    if (at >= index_->size() || index_->Key(at) != key) return false;
    const Container container = index_->Get(at);
    const uint64_t first = container.first_block();
    const auto from = static_cast<uint32_t>(std::max(begin, first) - first);
    const auto to = static_cast<uint32_t>(std::min<uint64_t>(end - first, kContainerBlocks));
    if (!container.full() && CountBelow(container, to) - CountBelow(container, from) != to - from) {
      return false;
    }
    if (key == last_key) return true;
  }
}

uint64_t ChangeMapView::Rank(uint64_t block) const noexcept {
  const uint64_t key = block >> kContainerShift;
  const size_t at = index_->LowerBound(key);
  uint64_t below = index_->CardinalityBefore(at);
  if (at < index_->size() && index_->Key(at) == key) {
    below += CountBelow(index_->Get(at), static_cast<uint32_t>(block & (kContainerBlocks - 1)));
  }
  return below;
}

uint64_t ChangeMapView::ChangedBytesBelow(uint64_t offset) const noexcept {
  const uint64_t end = std::min(offset, capacity());
  const uint64_t block = end / granularity();
  const uint64_t rest = end % granularity();
  return Rank(block) * granularity() + (rest != 0 && Contains(block) ? rest : 0);
}

ChangeMapStatistics ChangeMapView::Statistics() const {
  ChangeMapStatistics statistics;
  statistics.blocks = cardinality();
  statistics.bytes = changed_bytes();
  uint64_t next = UINT64_MAX;  // the block after the last run
  ForEach(*index_, 0, [&](const Container& container) {
    statistics.arrays += container.kind == ContainerKind::kArray ? 1 : 0;
    statistics.bitsets += container.kind == ContainerKind::kBitset ? 1 : 0;
    statistics.run_containers += container.kind == ContainerKind::kRun ? 1 : 0;
    statistics.runs += CountRuns(container);
    if (container.first_block() == next && ContainsValue(container, 0)) --statistics.runs;
    next = container.first_block() + LastValue(container) + 1;
    return true;
  });
  return statistics;
}

bool operator==(const ChangeMapView& a, const ChangeMapView& b) noexcept {
  if (a.geometry_ != b.geometry_ || a.cardinality() != b.cardinality() ||
      a.index_->size() != b.index_->size()) {
    return false;
  }
  if (a.portable().size() == b.portable().size() &&
      std::memcmp(a.portable().data(), b.portable().data(), a.portable().size()) == 0) {
    return true;
  }
  for (size_t i = 0; i < a.index_->size(); ++i) {
    if (!SameBlocks(a.index_->Get(i), b.index_->Get(i))) return false;
  }
  return true;
}

absl::StatusOr<ChangeMap> ChangeMap::Empty(const VolumeGeometry& geometry) {
  return ChangeMapAccess::FromWriter(RangeWriter().Finish(), geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::Full(const VolumeGeometry& geometry) {
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  RangeWriter writer;
  if (geometry.capacity > 0) status = writer.Add(0, Blocks(geometry));
  if (!status.ok()) return status;
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::FromCursor(ExtentCursor& cursor, uint64_t granularity) {
  const VolumeGeometry geometry{cursor.capacity(),
                                granularity == 0 ? cursor.granularity() : granularity};
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  // A cursor that has not moved is at 0: don't open a remote stream twice.
  if (cursor.covered() != 0) status = cursor.Seek(0);
  if (!status.ok()) return status;
  RangeWriter writer;
  // A block of a fixed-block cursor may extend past the capacity.
  const uint64_t blocks = Blocks(geometry);
  status = ForEachBatch(cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      const uint64_t end = std::min(blocks, BlockCount(extent.end(), geometry.granularity));
      if (absl::Status added = writer.Add(extent.offset / geometry.granularity, end); !added.ok()) {
        return added;
      }
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::FromBitmap(const BitmapView& bitmap,
                                                const VolumeGeometry& geometry) {
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  if (bitmap.bit_count() != Blocks(geometry)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bitmap has ", bitmap.bit_count(), " bits, the volume has ", Blocks(geometry), " blocks"));
  }
  PortableWriter writer(bitmap.bit_count() / 8 + kBitsetBytes);
  for (uint64_t at = 0; at < bitmap.bit_count() && !writer.too_large(); at += kContainerBlocks) {
    if (const uint8_t* const words = bitmap.InPlace(at, kBitsetWords); words != nullptr) {
      writer.AddWords(at >> kContainerShift, words);
      continue;
    }
    // Other formats, and the last container. Bits past the end are 0.
    ContainerWords words{};
    const uint64_t bits = std::min<uint64_t>(bitmap.bit_count() - at, kContainerBlocks);
    bitmap.CopyWords(at, words.data(), static_cast<size_t>((bits + 63) / 64));
    writer.AddWords(at >> kContainerShift, reinterpret_cast<const uint8_t*>(words.data()));
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::FromPortable64(std::span<const uint8_t> bytes,
                                                    const VolumeGeometry& geometry) {
  auto storage = std::make_shared<const std::vector<uint8_t>>(bytes.begin(), bytes.end());
  const std::span<const uint8_t> copy = *storage;
  return ChangeMapAccess::FromBytes(std::move(storage), copy, geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::KeepPortable64(SharedBytes bytes,
                                                    const VolumeGeometry& geometry) {
  return ChangeMapAccess::FromBytes(bytes.owner(), bytes.bytes(), geometry);
}

absl::StatusOr<ChangeMap> ChangeMap::FromPortable32(std::span<const uint8_t> bytes,
                                                    const VolumeGeometry& geometry) {
  // One group, whose upper half is 0.
  constexpr size_t kFront = 12;
  auto storage = std::make_shared<std::vector<uint8_t>>(kFront + bytes.size());
  (*storage)[0] = 1;
  std::copy(bytes.begin(), bytes.end(), storage->begin() + kFront);
  const std::span<const uint8_t> copy = *storage;
  absl::StatusOr<ChangeMap> map = ChangeMapAccess::FromBytes(std::move(storage), copy, geometry);
  if (!map.ok() && map.status().code() == absl::StatusCode::kDataLoss) {
    return absl::DataLossError(absl::StrCat("(offsets count from ", kFront,
                                            " bytes before the bitmap) ", map.status().message()));
  }
  return map;
}

absl::StatusOr<std::vector<uint8_t>> ChangeMap::ToPortable32() const {
  const PortableIndex& index = *ChangeMapAccess::Index(view_);
  if (index.HasMoreGroups()) {
    return absl::OutOfRangeError("blocks from 2^32 on don't fit into a 32-bit bitmap");
  }
  const std::span<const uint8_t> group = index.FirstGroup();
  if (!group.empty()) return std::vector<uint8_t>(group.begin(), group.end());
  return std::vector<uint8_t>{0x3a, 0x30, 0, 0, 0, 0, 0, 0};  // no containers
}

}  // namespace cbt
