#include "source/qcow2/qcow2_tables.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

constexpr uint64_t kSingleReference = uint64_t{1} << 63;
constexpr uint64_t kCompressedFlag = uint64_t{1} << 62;
constexpr uint64_t kZeroEntry = 1;
// Reserved bits of a standard entry and of a first-level entry.
constexpr uint64_t kReserved = 0x3f000000000001fe;
constexpr uint64_t kFirstLevelReserved = 0x7f000000000001ff;

// The cost of reading a table, in the unit of work().
constexpr uint64_t kReadWork = 1000;
constexpr uint64_t kFindDataWork = 500;

constexpr unsigned kSubclusters = 32;
constexpr uint64_t kAllSubclusters = 0xffffffff;

// Consecutive subclusters of one entry with the same placement.
struct Piece {
  Placement placement;
  unsigned count;
};

Piece PieceAt(uint64_t descriptor, uint64_t bitmap, unsigned subcluster) noexcept {
  const unsigned rest = kSubclusters - subcluster;
  if ((descriptor & kCompressedFlag) != 0) return {Placement::kCompressed, rest};
  const auto allocated = static_cast<uint32_t>(bitmap) >> subcluster;
  const auto zero = static_cast<uint32_t>(bitmap >> 32) >> subcluster;
  if ((allocated & 1) != 0) {
    return {Placement::kData, static_cast<unsigned>(std::countr_one(allocated))};
  }
  if ((zero & 1) != 0) return {Placement::kZero, static_cast<unsigned>(std::countr_one(zero))};
  return {Placement::kAbsent,
          std::min(static_cast<unsigned>(std::countr_zero(allocated | zero)), rest)};
}

}  // namespace

TableWalk::TableWalk(const Qcow2Layer& layer, const Qcow2Tables& tables, SegmentRule rule,
                     CountedUnits counted)
    : file_(*layer.file),
      layer_(layer),
      header_(layer.header),
      tables_(tables),
      rule_(rule),
      counted_(counted),
      slice_entries_(layer.raw ? 0
                               : std::min(header_.cluster_size(), kMaxSliceBytes) >>
                                     header_.entry_bits()) {}

absl::Status TableWalk::Find(uint64_t offset, Segment& segment) {
  ++work_;
  if (layer_.raw) return FindRaw(offset, segment);
  // In tables without long runs, most steps stay in the slice.
  if (slice_table_ != 0 && SliceBegin(offset) == slice_begin_) {
    Scan(offset, segment);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> table = FirstLevel(offset);
  if (!table.ok()) return table.status();
  if (*table == 0) {
    segment.placement = Placement::kAbsent;
    segment.end = AbsentUntil(offset);
    return absl::OkStatus();
  }
  if (absl::Status status = LoadSlice(*table, offset); !status.ok()) return status;
  Scan(offset, segment);
  return absl::OkStatus();
}

uint64_t TableWalk::AbsentUntil(uint64_t offset) const noexcept {
  auto next = static_cast<size_t>((offset >> header_.table_bits()) - window_begin_);
  while (next < window_.size() && window_[next] == 0) ++next;
  return std::min((window_begin_ + next) << header_.table_bits(), tables_.size);
}

absl::Status TableWalk::FindUnits(uint64_t offset, UnitBits& units) {
  ++work_;
  absl::StatusOr<uint64_t> table = FirstLevel(offset);
  if (!table.ok()) return table.status();
  const uint64_t begin = SliceBegin(offset);
  units = {begin >> header_.unit_bits(), nullptr, 0};
  if (*table == 0) {
    units.end = AbsentUntil(offset);
    return absl::OkStatus();
  }
  if (absl::Status status = LoadSlice(*table, offset); !status.ok()) return status;
  units.words = bits_.data();
  units.end = std::min(begin + (slice_entries_ << header_.cluster_bits), tables_.size);
  return absl::OkStatus();
}

void TableWalk::Scan(uint64_t offset, Segment& segment) noexcept {
  // The scan returns the first different unit, counted from the first of the slice.
  const unsigned unit_bits = header_.unit_bits();
  const uint64_t begin = SliceBegin(offset);
  const auto unit = static_cast<size_t>((offset - begin) >> unit_bits);
  const size_t stop = header_.extended ? ScanExtended(unit, segment) : ScanStandard(unit, segment);
  work_ += (stop - unit) / 4;
  if (segment.placement == Placement::kData) {
    segment.host += offset & ((uint64_t{1} << unit_bits) - 1);
  }
  segment.end = std::min(begin + (uint64_t{stop} << unit_bits), tables_.size);
}

absl::Status TableWalk::FindRaw(uint64_t offset, Segment& segment) {
  if (!data_known_ || offset < data_from_ || offset >= data_.end) {
    work_ += kFindDataWork;
    absl::StatusOr<Image::Range> range = file_.FindData(offset);
    if (!range.ok()) return range.status();
    data_ = *range;
    data_from_ = offset;
    data_known_ = true;
  }
  if (offset < data_.begin) {
    segment = {Placement::kZero, data_.begin, 0};
  } else {
    segment = {Placement::kData, data_.end, offset};
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> TableWalk::FirstLevel(uint64_t offset) {
  const uint64_t index = offset >> header_.table_bits();
  if (index >= window_begin_ && index - window_begin_ < window_.size()) {
    return window_[static_cast<size_t>(index - window_begin_)];
  }
  const uint64_t needed = BlockCount(tables_.size, uint64_t{1} << header_.table_bits());
  const uint64_t count = std::min(needed - index, kWindowBytes / 8);
  uint8_t bytes[kWindowBytes];
  const uint64_t position = tables_.l1_offset + index * 8;
  window_.clear();
  absl::Status status = file_.Read(position, static_cast<size_t>(count * 8), bytes);
  if (!status.ok()) return status;
  std::vector<uint64_t> window(static_cast<size_t>(count));
  for (size_t i = 0; i < window.size(); ++i) {
    const uint64_t entry = LoadBig64(bytes + 8 * i);
    if ((entry & kFirstLevelReserved) != 0) {
      return Qcow2Broken(file_, position + 8 * i,
                         absl::StrCat("entry 0x", absl::Hex(entry),
                                      " of the first-level table has reserved bits set"));
    }
    window[i] = entry & kQcow2OffsetMask;
    if (window[i] == 0) {
      if (entry == 0) continue;
      return Qcow2Broken(file_, position + 8 * i, "a flag without a table");
    }
    status = CheckQcow2Area(file_, header_.cluster_bits, position + 8 * i, window[i],
                            header_.cluster_size(), "a second-level table");
    if (!status.ok()) return status;
  }
  window_ = std::move(window);
  window_begin_ = index;
  work_ += kReadWork;
  return window_[0];
}

size_t TableWalk::IndexOf(uint64_t offset) const noexcept {
  const uint64_t entries = header_.cluster_size() >> header_.entry_bits();
  return static_cast<size_t>((offset >> header_.cluster_bits) & (entries - 1));
}

uint64_t TableWalk::SliceBegin(uint64_t offset) const noexcept {
  return offset & ~((slice_entries_ << header_.cluster_bits) - 1);
}

absl::Status TableWalk::LoadSlice(uint64_t table, uint64_t offset) {
  const uint64_t first = IndexOf(offset) & ~(slice_entries_ - 1);
  if (slice_table_ == table && slice_first_ == first) {
    if (slice_begin_ == SliceBegin(offset)) return absl::OkStatus();
    // Several parts of the volume may share a table.
    slice_begin_ = SliceBegin(offset);
    if (counted_ != CountedUnits::kNone) CountUnits();
    return absl::OkStatus();
  }
  const auto words = static_cast<size_t>(slice_entries_ << (header_.entry_bits() - 3));
  slice_.resize(words);
  slice_table_ = 0;
  const uint64_t position = table + (first << header_.entry_bits());
  absl::Status status = file_.Read(position, words * 8, reinterpret_cast<uint8_t*>(slice_.data()));
  if (!status.ok()) return status;
  if (status = Decode(position); !status.ok()) return status;
  slice_table_ = table;
  slice_first_ = first;
  slice_begin_ = SliceBegin(offset);
  if (counted_ != CountedUnits::kNone) CountUnits();
  work_ += kReadWork + words;
  return absl::OkStatus();
}

absl::Status TableWalk::Decode(uint64_t position) {
  // The other loop decides which entry is broken.
  if (!header_.extended && DecodeStandard()) return absl::OkStatus();
  return DecodeEach(position);
}

// As DecodeEach(), without branches: clusters may lie in any order. Returns false, and leaves the
// slice as it was, if an entry is not sound.
bool TableWalk::DecodeStandard() noexcept {
  const uint64_t unaligned = (header_.cluster_size() - 1) & kQcow2OffsetMask;
  const bool flag_means_zero = header_.version >= 3;
  const uint64_t reserved = kReserved | unaligned | (flag_means_zero ? 0 : kZeroEntry);
  const unsigned offset_bits = 62 - (header_.cluster_bits - 8);
  // The mask for compressed entries, as what differs from that for the others.
  const uint64_t other_mask = kQcow2OffsetMask ^ ((uint64_t{1} << offset_bits) - 1);
  const uint64_t file_size = file_.size();
  uint64_t wrong = 0;
  decoded_.resize(slice_.size());
  const uint64_t* const from = slice_.data();
  uint64_t* const to = decoded_.data();
  for (size_t i = 0; i < slice_.size(); ++i) {
    const uint64_t entry = __builtin_bswap64(from[i]);
    const uint64_t compressed = entry >> 62 & 1;
    const uint64_t zero = entry & ~compressed & kZeroEntry;
    const uint64_t host = entry & (kQcow2OffsetMask ^ (other_mask & (0 - compressed)));
    const uint64_t past = host >= file_size ? 1 : 0;
    const uint64_t nowhere = host == 0 ? 1 : 0;
    const uint64_t odd = (entry & reserved) != 0 ? 1 : 0;
    wrong |= (odd & ~compressed) | (past & ~zero) | (nowhere & (compressed | entry >> 63)) |
             (host >> 56 & (0 - compressed));
    to[i] = zero != 0 ? kZeroEntry : entry & ~kSingleReference;
  }
  if (wrong != 0) return false;
  slice_.swap(decoded_);
  return true;
}

void TableWalk::CountUnits() noexcept {
  const uint64_t least = counted_ == CountedUnits::kPresent ? kZeroEntry : kZeroEntry + 1;
  const size_t step = header_.extended ? 2 : 1;
  const size_t units = slice_.size() / step * (header_.extended ? kSubclusters : 1);
  bits_.assign(BlockCount(units, 64), 0);
  if (header_.extended) {
    for (size_t i = 0; i < slice_.size(); i += 2) {
      const uint64_t bitmap = slice_[i + 1];
      uint64_t set = bitmap & kAllSubclusters;
      if (counted_ == CountedUnits::kPresent) set |= bitmap >> 32;
      if ((slice_[i] & kCompressedFlag) != 0) set = kAllSubclusters;
      bits_[i / 4] |= set << (i / 2 % 2 * kSubclusters);
    }
  } else {
    for (size_t i = 0; i < bits_.size(); ++i) {
      const size_t count = std::min<size_t>(64, slice_.size() - 64 * i);
      uint64_t word = 0;
      for (size_t k = 0; k < count; ++k) {
        word |= uint64_t{slice_[64 * i + k] >= least ? 1u : 0u} << k;
      }
      bits_[i] = word;
    }
  }
  // Entries past the volume's end are not part of it.
  const uint64_t end = BlockCount(tables_.size, uint64_t{1} << header_.unit_bits());
  const uint64_t first = slice_begin_ >> header_.unit_bits();
  if (end - first >= units) return;
  const auto left = static_cast<size_t>(end - first);
  bits_[left / 64] &= (uint64_t{1} << left % 64) - 1;
  std::fill(bits_.begin() + static_cast<std::ptrdiff_t>(left / 64) + 1, bits_.end(), 0);
}

absl::Status TableWalk::DecodeEach(uint64_t position) {
  const unsigned cluster_bits = header_.cluster_bits;
  const uint64_t unaligned = (header_.cluster_size() - 1) & kQcow2OffsetMask;
  // Version 2 has no zero clusters, and extended entries mark zeros in their bitmaps.
  const bool flag_means_zero = header_.version >= 3 && !header_.extended;
  const uint64_t reserved = kReserved | unaligned | (flag_means_zero ? 0 : kZeroEntry);
  // The number of bits of the offset in a compressed cluster's entry; those above 55 are clear.
  const unsigned offset_bits = 62 - (cluster_bits - 8);
  const uint64_t compressed_mask = (uint64_t{1} << offset_bits) - 1;
  const uint64_t file_size = file_.size();
  const size_t step = header_.extended ? 2 : 1;
  for (size_t i = 0; i < slice_.size(); i += step) {
    const uint64_t entry = LoadBig64(reinterpret_cast<const uint8_t*>(&slice_[i]));
    uint64_t bitmap = 0;
    if (step == 2) bitmap = LoadBig64(reinterpret_cast<const uint8_t*>(&slice_[i + 1]));
    uint64_t decoded = entry & ~kSingleReference;
    bool sound = true;
    if ((entry & kCompressedFlag) != 0) {
      const uint64_t host = entry & compressed_mask;
      sound = host < file_size && host >> 56 == 0 && host != 0;
      bitmap = 0;
    } else {
      const uint64_t host = entry & kQcow2OffsetMask;
      // Offset 0 refers to the header, which only an external data file lacks. If nothing is read
      // from the cluster, it is preallocated space.
      sound = (entry & reserved) == 0 && (host != 0 || decoded == entry);
      if (step == 2) {
        const auto allocated = static_cast<uint32_t>(bitmap);
        const auto zero = static_cast<uint32_t>(bitmap >> 32);
        sound = sound && (allocated & zero) == 0;
        if (allocated == 0) {
          decoded = 0;
        } else {
          sound = sound && host != 0 && host < file_size;
        }
      } else if ((entry & kZeroEntry) != 0) {
        decoded = kZeroEntry;
      } else {
        sound = sound && host < file_size;
      }
    }
    if (!sound) return BrokenEntry(position, i);
    slice_[i] = decoded;
    if (step == 2) slice_[i + 1] = bitmap;
  }
  return absl::OkStatus();
}

absl::Status TableWalk::BrokenEntry(uint64_t position, size_t index) const {
  const uint64_t entry = LoadBig64(reinterpret_cast<const uint8_t*>(&slice_[index]));
  std::string text = absl::StrCat("entry 0x", absl::Hex(entry));
  if (header_.extended) {
    const uint64_t bitmap = LoadBig64(reinterpret_cast<const uint8_t*>(&slice_[index + 1]));
    absl::StrAppend(&text, " with subclusters 0x", absl::Hex(bitmap));
  }
  return Qcow2Broken(file_, position + 8 * index,
                     absl::StrCat(text,
                                  " of a second-level table has reserved bits set, is not "
                                  "aligned or points past the end of the file, which has ",
                                  file_.size(), " bytes"));
}

size_t TableWalk::ScanStandard(size_t index, Segment& segment) const noexcept {
  const uint64_t* const entries = slice_.data();
  const size_t count = slice_.size();
  const uint64_t first = entries[index];
  size_t i = index + 1;
  if (first == 0) {
    segment.placement = Placement::kAbsent;
    while (i < count && entries[i] == 0) ++i;
    return i;
  }
  if (first == kZeroEntry) {
    segment.placement = Placement::kZero;
    while (i < count && entries[i] == kZeroEntry) ++i;
    return i;
  }
  segment.placement = (first & kCompressedFlag) != 0 ? Placement::kCompressed : Placement::kData;
  segment.host = first;
  if (rule_ == SegmentRule::kKind) {
    segment.placement = Placement::kData;
    while (i < count && entries[i] > kZeroEntry) ++i;
  } else if (segment.placement == Placement::kData) {
    uint64_t next = first + header_.cluster_size();
    while (i < count && entries[i] == next) {
      ++i;
      next += header_.cluster_size();
    }
  }
  return i;
}

size_t TableWalk::ScanExtended(size_t unit, Segment& segment) const noexcept {
  const size_t units = slice_.size() / 2 * kSubclusters;
  const unsigned unit_bits = header_.unit_bits();
  size_t at = unit;
  bool any = false;
  uint64_t next = 0;  // where contiguous data would continue
  while (at < units) {
    const size_t entry = at / kSubclusters;
    const auto subcluster = static_cast<unsigned>(at % kSubclusters);
    const uint64_t descriptor = slice_[2 * entry];
    Piece piece = PieceAt(descriptor, slice_[2 * entry + 1], subcluster);
    uint64_t host = descriptor;
    if (piece.placement == Placement::kData) host += uint64_t{subcluster} << unit_bits;
    if (rule_ == SegmentRule::kKind && piece.placement == Placement::kCompressed) {
      piece.placement = Placement::kData;
    }
    if (!any) {
      segment.placement = piece.placement;
      segment.host = host;
      any = true;
    } else {
      const bool jumps = piece.placement == Placement::kCompressed ||
                         (piece.placement == Placement::kData && host != next);
      if (piece.placement != segment.placement) break;
      if (jumps && rule_ == SegmentRule::kContiguous) break;
    }
    at += piece.count;
    next = host + (uint64_t{piece.count} << unit_bits);
  }
  return at;
}

absl::StatusOr<uint64_t> TableWalk::EqualUpTo(TableWalk& other, uint64_t offset) {
  absl::StatusOr<uint64_t> table = FirstLevel(offset);
  if (!table.ok()) return table.status();
  absl::StatusOr<uint64_t> other_table = other.FirstLevel(offset);
  if (!other_table.ok()) return other_table.status();
  const uint64_t limit = std::min(tables_.size, other.tables_.size);
  const unsigned table_bits = header_.table_bits();
  if (*table == *other_table) {
    // Follows equal tables, or none, as far as both windows reach.
    const uint64_t first = offset >> table_bits;
    const uint64_t end =
        std::min(window_begin_ + window_.size(), other.window_begin_ + other.window_.size());
    uint64_t next = first + 1;
    while (next < end && window_[static_cast<size_t>(next - window_begin_)] ==
                             other.window_[static_cast<size_t>(next - other.window_begin_)]) {
      ++next;
    }
    work_ += next - first;
    return std::min(next << table_bits, limit) - offset;
  }
  if (*table == 0 || *other_table == 0) return 0;
  if (absl::Status status = LoadSlice(*table, offset); !status.ok()) return status;
  if (absl::Status status = other.LoadSlice(*other_table, offset); !status.ok()) return status;
  const uint64_t begin = SliceBegin(offset);
  const size_t step = header_.extended ? 2 : 1;
  const size_t entry = static_cast<size_t>((offset - begin) >> header_.cluster_bits);
  size_t word = entry * step;
  while (word < slice_.size() && slice_[word] == other.slice_[word]) ++word;
  const size_t stop = word / step;
  work_ += 1 + (stop - entry);
  if (stop == entry) return 0;
  return std::min(begin + (uint64_t{stop} << header_.cluster_bits), limit) - offset;
}

}  // namespace cbt
