#include "map/portable_index.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

// A 32-bit bitmap begins with kCookieNoRuns and the number of containers if none has runs;
// otherwise with kCookieRuns in the low half and that number minus one in the high half.
constexpr uint32_t kCookieNoRuns = 12346;
constexpr uint32_t kCookieRuns = 12347;
// Bitmaps with runs and fewer containers than this have no table of offsets.
constexpr uint32_t kOffsetsFrom = 4;
constexpr uint32_t kMaxContainers = 65536;
constexpr uint64_t kGroupCount = 8;  // bytes
constexpr uint64_t kGroupHigh = 4;

}  // namespace

absl::StatusOr<std::shared_ptr<PortableIndex>> PortableIndex::Parse(
    std::span<const uint8_t> bytes, uint64_t block_count, std::shared_ptr<const ByteGuard> guard,
    std::string where) {
  std::shared_ptr<PortableIndex> index(
      new PortableIndex(bytes, block_count, std::move(guard), std::move(where)));
  if (absl::Status status = index->ParseAll(); !status.ok()) return status;
  return index;
}

absl::Status PortableIndex::Damaged(uint64_t at, const char* why) const {
  return absl::DataLossError(absl::StrCat(where_, "offset ", at, ": ", why));
}

absl::Status PortableIndex::PastTheEnd(uint64_t at) const {
  return absl::InvalidArgumentError(
      absl::StrCat(where_, "offset ", at, ": contains blocks past the last one of ", block_count_));
}

absl::Status PortableIndex::Guard(uint64_t begin, uint64_t end) const {
  return guard_ == nullptr ? absl::OkStatus() : guard_->Check(begin, end);
}

absl::Status PortableIndex::ParseAll() {
  if (bytes_.size() < kGroupCount)
    return Damaged(bytes_.size(), "truncated in the number of groups");
  if (absl::Status status = Guard(0, kGroupCount); !status.ok()) return status;
  const uint64_t groups = LoadU64(bytes_.data());
  uint64_t at = kGroupCount;
  for (uint64_t i = 0; i < groups; ++i) {
    if (bytes_.size() - at < kGroupHigh) return Damaged(at, "truncated before the last group");
    if (absl::Status status = Guard(at, at + kGroupHigh); !status.ok()) return status;
    const uint32_t high = LoadU32(bytes_.data() + at);
    if (!groups_.empty() && high <= groups_.back().high) {
      return Damaged(at, "upper halves are not ascending");
    }
    absl::StatusOr<uint64_t> end = ParseGroup(at + kGroupHigh, high);
    if (!end.ok()) return end.status();
    at = *end;
  }
  if (at != bytes_.size()) return Damaged(at, "trailing bytes after the last group");
  if (guard_ != nullptr) sound_ = std::vector<std::atomic<bool>>(size_);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PortableIndex::ParseGroup(uint64_t at, uint32_t high) {
  const uint64_t room = bytes_.size() - at;
  if (room < 4) return Damaged(at, "truncated in a cookie");
  if (absl::Status status = Guard(at, at + std::min<uint64_t>(room, 8)); !status.ok()) {
    return status;
  }
  Group group{};
  group.begin = at;
  group.first = size_;
  group.before = cardinality_;
  group.high = high;
  const uint8_t* const bitmap = bytes_.data() + at;
  const uint32_t cookie = LoadU32(bitmap);
  uint64_t header = 4;
  if ((cookie & 0xffff) == kCookieRuns) {
    group.count = (cookie >> 16) + 1;
    group.flags = 4;
    header += (group.count + 7) / 8;
  } else if (cookie == kCookieNoRuns) {
    if (room < 8) return Damaged(at + 4, "truncated in the number of containers");
    group.count = LoadU32(bitmap + 4);
    if (group.count > kMaxContainers) return Damaged(at + 4, "more containers than keys");
    header += 4;
  } else {
    return Damaged(at, "unknown cookie");
  }
  group.descriptors = static_cast<uint32_t>(header);
  header += 4 * uint64_t{group.count};
  if (group.flags == 0 || group.count >= kOffsetsFrom) {
    group.offsets = static_cast<uint32_t>(header);
    header += 4 * uint64_t{group.count};
  }
  if (room < header) return Damaged(at + room, "truncated in the container table");
  if (absl::Status status = Guard(at, at + header); !status.ok()) return status;
  if (group.flags != 0 && group.count % 8 != 0 &&
      bitmap[group.descriptors - 1] >> group.count % 8 != 0) {
    return Damaged(at + group.descriptors - 1, "run flags of nonexistent containers");
  }
  // The size if the group has no containers.
  group.size = static_cast<uint32_t>(header);
  if (absl::Status status = ParseContainers(group); !status.ok()) return status;
  size_ += group.count;
  groups_.push_back(group);
  return at + group.size;
}

// Reads the table: keys, offsets, and where the last container ends.
absl::Status PortableIndex::ParseContainers(Group& group) {
  const uint8_t* const bitmap = bytes_.data() + group.begin;
  const uint64_t room = bytes_.size() - group.begin;
  const uint64_t last_key = (block_count_ - 1) >> kContainerShift;
  uint64_t at = group.size;  // where the next container begins
  uint32_t key = 0;
  for (uint32_t i = 0; i < group.count; ++i) {
    const uint8_t* const descriptor = bitmap + group.descriptors + 4 * size_t{i};
    const auto place = [&] { return static_cast<uint64_t>(descriptor - bytes_.data()); };
    const uint32_t next = LoadU16(descriptor);
    if (i > 0 && next <= key) return Damaged(place(), "keys are not ascending");
    key = next;
    const uint32_t cardinality = LoadU16(descriptor + 2) + 1u;
    cardinality_ += cardinality;
    if (group.offsets != 0) {
      if (LoadU32(bitmap + group.offsets + 4 * size_t{i}) != at) {
        return Damaged(group.begin + group.offsets + 4 * size_t{i},
                       "the container does not start where the previous one ends");
      }
    } else {
      group.starts[i] = static_cast<uint32_t>(at);
    }
    if (!IsRun(group, i)) {
      at += PlainBytes(cardinality);
    } else if (group.offsets != 0 && i + 1 < group.count) {
      // The next container's offset gives the size. Load() compares it with the number of runs,
      // which is stored in the container itself.
      const uint64_t end = LoadU32(bitmap + group.offsets + 4 * size_t{i} + 4);
      if (end < at + kRunHeader + 4 || (end - at - kRunHeader) % 4 != 0) {
        return Damaged(group.begin + group.offsets + 4 * size_t{i} + 4,
                       "the offset leaves no room for the runs before it");
      }
      at = end;
    } else {
      if (room < at + kRunHeader) return Damaged(bytes_.size(), "ends in a container");
      if (absl::Status status = Guard(group.begin + at, group.begin + at + kRunHeader);
          !status.ok()) {
        return status;
      }
      const uint32_t runs = LoadU16(bitmap + at);
      if (runs == 0) return Damaged(group.begin + at, "empty list of runs");
      at += kRunHeader + 4 * uint64_t{runs};
    }
    if (at > room) return Damaged(bytes_.size(), "ends in a container");
  }
  if (at > UINT32_MAX) return Damaged(group.begin, "a group of more than 4 GiB");
  group.size = static_cast<uint32_t>(at);
  if (group.count > 0 && (block_count_ == 0 || (uint64_t{group.high} << 16 | key) > last_key)) {
    return PastTheEnd(group.begin + group.descriptors);
  }
  return absl::OkStatus();
}

absl::Status PortableIndex::CheckAll() {
  for (size_t i = 0; i < size_; ++i) {
    if (absl::StatusOr<Container> container = Load(i); !container.ok()) return container.status();
  }
  checked_ = true;
  return absl::OkStatus();
}

size_t PortableIndex::LowerBound(uint64_t key) const noexcept {
  const auto high = static_cast<uint32_t>(key >> 16);
  if (key >> 16 > 0xffffffffu) return size_;
  const auto group = std::lower_bound(
      groups_.begin(), groups_.end(), high,
      [](const Group& candidate, uint32_t value) { return candidate.high < value; });
  if (group == groups_.end()) return size_;
  if (group->high != high) return group->first;
  const auto low = static_cast<uint32_t>(key & 0xffff);
  const uint8_t* const descriptors = bytes_.data() + group->begin + group->descriptors;
  size_t first = 0;
  size_t count = group->count;
  while (count > 0) {
    const size_t half = count / 2;
    if (LoadU16(descriptors + 4 * (first + half)) < low) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return group->first + first;
}

uint64_t PortableIndex::CardinalityBefore(size_t ordinal) const noexcept {
  if (ordinal >= size_) return cardinality_;
  const Group& group = GroupOf(ordinal);
  uint64_t blocks = group.before;
  for (size_t i = 0; i < ordinal - group.first; ++i) blocks += CardinalityAt(group, i);
  return blocks;
}

uint64_t PortableIndex::Key(size_t ordinal) const noexcept {
  const Group& group = GroupOf(ordinal);
  const uint8_t* const descriptor =
      bytes_.data() + group.begin + group.descriptors + 4 * (ordinal - group.first);
  return uint64_t{group.high} << 16 | LoadU16(descriptor);
}

absl::StatusOr<Container> PortableIndex::Load(size_t ordinal) const {
  if (checked_) return Get(ordinal);
  if (!sound_.empty() && sound_[ordinal].load(std::memory_order_relaxed)) return Get(ordinal);
  const Group& group = GroupOf(ordinal);
  const size_t index = ordinal - group.first;
  const uint64_t begin = group.begin + Start(group, index);
  const uint64_t end = group.begin + End(group, index);
  if (absl::Status status = Guard(begin, end); !status.ok()) return status;
  const Container container = At(group, index);
  const uint64_t data = static_cast<uint64_t>(container.data - bytes_.data());
  if (container.kind == ContainerKind::kRun && data + 4 * uint64_t{container.count} != end) {
    return Damaged(begin, "the number of runs does not match their size");
  }
  if (const char* const wrong = CheckContainer(container); wrong != nullptr) {
    return Damaged(begin, wrong);
  }
  if (container.key == (block_count_ - 1) >> kContainerShift &&
      LastValue(container) > ((block_count_ - 1) & (kContainerBlocks - 1))) {
    return PastTheEnd(begin);
  }
  if (!sound_.empty()) sound_[ordinal].store(true, std::memory_order_relaxed);
  return container;
}

Container PortableIndex::Get(size_t ordinal) const noexcept {
  const Group& group = GroupOf(ordinal);
  return At(group, ordinal - group.first);
}

std::span<const uint8_t> PortableIndex::FirstGroup() const noexcept {
  if (groups_.empty() || groups_.front().high != 0) return {};
  return bytes_.subspan(groups_.front().begin, groups_.front().size);
}

const PortableIndex::Group& PortableIndex::FindGroup(size_t ordinal) const noexcept {
  // Groups without containers have the same `first` as the next group: take the last of them.
  const auto after = std::upper_bound(
      groups_.begin(), groups_.end(), ordinal,
      [](size_t value, const Group& candidate) { return value < candidate.first; });
  return *(after - 1);
}

bool PortableIndex::IsRun(const Group& group, size_t index) const noexcept {
  if (group.flags == 0) return false;
  return (bytes_[group.begin + group.flags + index / 8] >> index % 8 & 1) != 0;
}

uint32_t PortableIndex::Start(const Group& group, size_t index) const noexcept {
  return group.offsets == 0 ? group.starts[index]
                            : LoadU32(bytes_.data() + group.begin + group.offsets + 4 * index);
}

uint32_t PortableIndex::End(const Group& group, size_t index) const noexcept {
  return index + 1 < group.count ? Start(group, index + 1) : group.size;
}

uint32_t PortableIndex::CardinalityAt(const Group& group, size_t index) const noexcept {
  return LoadU16(bytes_.data() + group.begin + group.descriptors + 4 * index + 2) + 1u;
}

Container PortableIndex::At(const Group& group, size_t index) const noexcept {
  Container container;
  const uint8_t* const descriptor = bytes_.data() + group.begin + group.descriptors + 4 * index;
  container.key = uint64_t{group.high} << 16 | LoadU16(descriptor);
  container.cardinality = LoadU16(descriptor + 2) + 1u;
  container.data = bytes_.data() + group.begin + Start(group, index);
  if (IsRun(group, index)) {
    container.kind = ContainerKind::kRun;
    container.count = LoadU16(container.data);
    container.data += kRunHeader;
  } else if (container.cardinality > kMaxArrayCardinality) {
    container.kind = ContainerKind::kBitset;
  } else {
    container.kind = ContainerKind::kArray;
    container.count = container.cardinality;
  }
  return container;
}

}  // namespace cbt
