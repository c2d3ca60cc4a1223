// Persistent dirty bitmaps: the directory, and a cursor over the bits of one.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {
namespace {

constexpr uint64_t kEntryBytes = 24;
constexpr uint32_t kInUse = 1;
constexpr uint32_t kAuto = 2;
constexpr uint32_t kExtraCompatible = 4;
constexpr uint32_t kDirtyTracking = 1;
constexpr uint32_t kMaxGranularityBits = 62;

constexpr uint64_t kAllOnes = 1;  // a table entry without an offset

// Bytes of a bitmap in memory at a time, and entries of its table.
constexpr uint64_t kChunkBytes = 64 * kKiB;
constexpr uint64_t kWindowEntries = 512;

// The maximum of bitmap bytes and table entries per Next().
constexpr uint64_t kBytesPerCall = 4 * kMiB;
constexpr uint64_t kTableEntryCost = 64;  // in bytes of bitmap

absl::StatusOr<Qcow2BitmapEntry> ReadEntry(const Image& file, const std::vector<uint8_t>& directory,
                                           uint64_t begin, uint64_t& at) {
  const uint64_t position = begin + at;
  const uint64_t left = directory.size() - at;
  if (left < kEntryBytes) return Qcow2Broken(file, position, "the bitmap directory ends here");
  const uint8_t* const bytes = directory.data() + at;
  Qcow2BitmapEntry entry;
  entry.position = position;
  entry.table_offset = LoadBig64(bytes);
  entry.table_entries = LoadBig32(bytes + 8);
  entry.flags = LoadBig32(bytes + 12);
  entry.type = bytes[16];
  entry.granularity_bits = bytes[17];
  const uint64_t name_bytes = LoadBig16(bytes + 18);
  entry.extra_bytes = LoadBig32(bytes + 20);
  if (entry.granularity_bits > kMaxGranularityBits) {
    return Qcow2Broken(file, position + 17,
                       absl::StrCat("a granularity of 2^", entry.granularity_bits, " bytes"));
  }
  if (name_bytes == 0) return Qcow2Broken(file, position + 18, "a bitmap without a name");
  const uint64_t size = kEntryBytes + entry.extra_bytes + name_bytes;
  if (size > left) {
    return Qcow2Broken(file, position,
                       absl::StrCat("an entry of ", size, " bytes where the bitmap directory has ",
                                    left, " left"));
  }
  const char* const name = reinterpret_cast<const char*>(bytes + kEntryBytes + entry.extra_bytes);
  entry.bitmap.name.assign(name, name_bytes);
  entry.bitmap.granularity = uint64_t{1} << entry.granularity_bits;
  entry.bitmap.in_use = (entry.flags & kInUse) != 0;
  entry.bitmap.enabled = (entry.flags & kAuto) != 0;
  at += std::min((size + 7) / 8 * 8, left);
  return entry;
}

class Qcow2BitmapCursor final : public ExtentCursor {
 public:
  Qcow2BitmapCursor(std::shared_ptr<const Qcow2Image> image, const Qcow2BitmapEntry& entry)
      : ExtentCursor({.capacity = image->virtual_size(), .granularity = entry.bitmap.granularity}),
        image_(std::move(image)),
        file_(*image_->parts().layers.front().file),
        cluster_bits_(image_->parts().layers.front().header.cluster_bits),
        table_offset_(entry.table_offset),
        table_entries_(entry.table_entries),
        bits_(BlockCount(capacity(), granularity())),
        bytes_(BlockCount(bits_, 8)),
        runs_(capacity(), granularity()) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    runs_.Reset();
    const uint64_t bit = offset / granularity();
    // Scans start at words; bits of the first word below the offset are cleared.
    begin_ = bit / 64 * 8;
    skip_bits_ = static_cast<unsigned>(bit % 64);
    words_ = next_word_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    uint64_t budget = kBytesPerCall;
    while (!batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (next_word_ < words_) {
        const uint64_t at = begin_ + next_word_ * 8;
        const auto* words = reinterpret_cast<const uint8_t*>(chunk_.data() + next_word_);
        next_word_ += runs_.Scan(simd::ExtractRuns().single, words, words, words_ - next_word_,
                                 at * 8, batch);
      } else if (begin_ + words_ * 8 >= bytes_) {
        runs_.CloseAtCapacity(batch);
        break;
      } else if (budget == 0) {
        break;
      } else {
        begin_ += words_ * 8;
        words_ = next_word_ = 0;
        absl::StatusOr<uint64_t> cost = Load(batch);
        if (!cost.ok()) return cost.status();
        budget -= std::min(budget, *cost);
      }
    }
    const uint64_t scanned = std::min((begin_ + next_word_ * 8) * 8 + skip_bits_, bits_);
    if (pieces_allowed()) runs_.ClosePiece(scanned, batch);
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    if (scanned < bits_) return scanned * granularity();
    // Checked last: the answer is valid only if the file did not change.
    if (absl::Status status = file_.CheckUnchanged(); !status.ok()) return status;
    return capacity();
  }

  // Reads bits from begin_ into chunk_, or skips those that the table marks as clear.
  // Returns: the cost.
  absl::StatusOr<uint64_t> Load(ExtentBatch& batch) {
    const uint64_t index = begin_ >> cluster_bits_;
    absl::StatusOr<uint64_t> entry = TableEntry(index);
    if (!entry.ok()) return entry.status();
    const uint64_t in_cluster = begin_ & (cluster_size() - 1);
    const uint64_t end = std::min(bytes_, (index + 1) << cluster_bits_);
    if (*entry == 0) {
      runs_.Close(begin_ * 8, batch);
      // The end of the bitmap is rounded up to a whole word here as well.
      begin_ = AlignUp(end, 8);
      skip_bits_ = 0;
      return kTableEntryCost;
    }
    const uint64_t length = std::min(end - begin_, kChunkBytes);
    const auto words = static_cast<size_t>(BlockCount(length, 8));
    chunk_.assign(words, *entry == kAllOnes ? ~uint64_t{0} : 0);
    if (*entry != kAllOnes) {
      absl::Status status = file_.Read(*entry + in_cluster, static_cast<size_t>(length),
                                       reinterpret_cast<uint8_t*>(chunk_.data()));
      if (!status.ok()) return status;
    }
    ClearBits(0, skip_bits_);
    skip_bits_ = 0;
    const uint64_t valid = bits_ - begin_ * 8;
    if (valid < words * 64) ClearBits(valid, words * 64);
    words_ = words;
    return length;
  }

  // Clears bits [from, to) of the chunk; byte k / 8 holds bit k on every machine.
  void ClearBits(uint64_t from, uint64_t to) noexcept {
    auto* const bytes = reinterpret_cast<uint8_t*>(chunk_.data());
    for (uint64_t bit = from; bit < to; ++bit) {
      bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] & ~(1U << bit % 8));
    }
  }

  // The table's entry: 0, kAllOnes, or the offset of a cluster.
  absl::StatusOr<uint64_t> TableEntry(uint64_t index) {
    if (index < window_begin_ || index - window_begin_ >= window_.size()) {
      const uint64_t count = std::min(table_entries_ - index, kWindowEntries);
      window_.clear();
      std::vector<uint64_t> window(static_cast<size_t>(count));
      absl::Status status = file_.Read(table_offset_ + index * 8, window.size() * 8,
                                       reinterpret_cast<uint8_t*>(window.data()));
      if (!status.ok()) return status;
      for (size_t i = 0; i < window.size(); ++i) {
        status = CheckEntry(index + i, window[i]);
        if (!status.ok()) return status;
      }
      window_ = std::move(window);
      window_begin_ = index;
    }
    return window_[static_cast<size_t>(index - window_begin_)];
  }

  // Converts an entry of the file to the form of TableEntry().
  absl::Status CheckEntry(uint64_t index, uint64_t& entry) const {
    const uint64_t position = table_offset_ + index * 8;
    entry = LoadBig64(reinterpret_cast<const uint8_t*>(&entry));
    const uint64_t offset = entry & kQcow2OffsetMask;
    if ((entry & ~(kQcow2OffsetMask | kAllOnes)) != 0 || (offset != 0 && entry != offset)) {
      return Qcow2Broken(
          file_, position,
          absl::StrCat("entry 0x", absl::Hex(entry), " of a bitmap table has reserved bits set"));
    }
    if (offset == 0) return absl::OkStatus();
    const uint64_t bytes = std::min(cluster_size(), bytes_ - (index << cluster_bits_));
    return CheckQcow2Area(file_, cluster_bits_, position, offset, bytes, "a cluster of a bitmap");
  }

  uint64_t cluster_size() const noexcept { return uint64_t{1} << cluster_bits_; }

  const std::shared_ptr<const Qcow2Image> image_;
  const Image& file_;
  const unsigned cluster_bits_;
  const uint64_t table_offset_;
  const uint64_t table_entries_;
  const uint64_t bits_;
  const uint64_t bytes_;
  RunAssembler runs_;

  std::vector<uint64_t> window_;
  uint64_t window_begin_ = 0;

  uint64_t begin_ = 0;  // first byte of the chunk in the bitmap, a multiple of 8
  unsigned skip_bits_ = 0;
  std::vector<uint64_t> chunk_;
  size_t words_ = 0;  // of the chunk, and scanned ones
  size_t next_word_ = 0;
};

// OK if the bits of `entry` can be read and trusted.
absl::Status CheckUsable(const Image& file, const Qcow2Header& header,
                         const Qcow2BitmapEntry& entry) {
  const std::string name =
      absl::StrCat("qcow2: ", file.label(), ": bitmap ", Qcow2Quoted(entry.bitmap.name));
  if (entry.bitmap.in_use) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " was not saved when the image was last written to"));
  }
  if (entry.type != kDirtyTracking) {
    return absl::UnimplementedError(absl::StrCat(name, " is of type ", entry.type, ", not ",
                                                 kDirtyTracking, ", at offset ",
                                                 entry.position + 16));
  }
  if ((entry.flags & ~(kInUse | kAuto | kExtraCompatible)) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        name, " has unknown flags 0x", absl::Hex(entry.flags), " at offset ", entry.position + 12));
  }
  if (entry.extra_bytes != 0 && (entry.flags & kExtraCompatible) == 0) {
    return absl::UnimplementedError(
        absl::StrCat(name, " has mandatory extra data, at offset ", entry.position + 20));
  }
  const uint64_t bits = BlockCount(header.active.size, entry.bitmap.granularity);
  const uint64_t needed = BlockCount(BlockCount(bits, 8), header.cluster_size());
  if (entry.table_entries != needed) {
    return Qcow2Broken(file, entry.position + 8,
                       absl::StrCat("a bitmap table of ", entry.table_entries, " entries where ",
                                    header.active.size, " bytes in blocks of ",
                                    entry.bitmap.granularity, " need ", needed));
  }
  if (needed == 0) return absl::OkStatus();
  return CheckQcow2Area(file, header.cluster_bits, entry.position, entry.table_offset, needed * 8,
                        "a bitmap table");
}

}  // namespace

absl::StatusOr<std::vector<Qcow2BitmapEntry>> ReadQcow2Bitmaps(const Image& file,
                                                               const Qcow2Header& header) {
  std::vector<Qcow2BitmapEntry> entries;
  if (!header.bitmaps) return entries;
  if (!header.bitmaps_consistent) {
    return absl::FailedPreconditionError(
        absl::StrCat("qcow2: ", file.label(),
                     ": the bitmaps can't be trusted: a program that does not support them has "
                     "written to the image"));
  }
  const Qcow2BitmapArea& area = *header.bitmaps;
  if (area.count == 0 || area.count > kMaxQcow2Bitmaps ||
      area.directory_bytes < area.count * kEntryBytes ||
      area.directory_bytes > kMaxBitmapDirectoryBytes) {
    return Qcow2Broken(file, area.directory_offset,
                       absl::StrCat("a directory of ", area.count, " bitmaps in ",
                                    area.directory_bytes, " bytes"));
  }
  absl::Status status =
      CheckQcow2Area(file, header.cluster_bits, area.directory_offset, area.directory_offset,
                     area.directory_bytes, "the bitmap directory");
  if (!status.ok()) return status;
  std::vector<uint8_t> directory(static_cast<size_t>(area.directory_bytes));
  status = file.Read(area.directory_offset, directory.size(), directory.data());
  if (!status.ok()) return status;
  uint64_t at = 0;
  for (uint64_t i = 0; i < area.count; ++i) {
    absl::StatusOr<Qcow2BitmapEntry> entry = ReadEntry(file, directory, area.directory_offset, at);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  if (at != directory.size()) {
    return Qcow2Broken(file, area.directory_offset + at,
                       absl::StrCat("the bitmap directory has ", directory.size() - at,
                                    " bytes more than its ", area.count, " entries"));
  }
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Qcow2BitmapEntry& entry : entries) names.emplace_back(entry.bitmap.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    return Qcow2Broken(file, area.directory_offset,
                       absl::StrCat("two bitmaps have the name ", Qcow2Quoted(*twice)));
  }
  return entries;
}

absl::StatusOr<std::vector<Qcow2Bitmap>> Qcow2Image::ListBitmaps() const {
  const Qcow2Layer& layer = parts_->layers.front();
  auto entries = ReadQcow2Bitmaps(*layer.file, layer.header);
  if (!entries.ok()) return entries.status();
  std::vector<Qcow2Bitmap> bitmaps;
  for (Qcow2BitmapEntry& entry : *entries) bitmaps.push_back(std::move(entry.bitmap));
  return bitmaps;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2BitmapCursor(
    const std::shared_ptr<const Qcow2Image>& image, std::string_view name) {
  if (image == nullptr) return absl::InvalidArgumentError("qcow2: no image");
  const Qcow2Layer& layer = image->parts().layers.front();
  auto entries = ReadQcow2Bitmaps(*layer.file, layer.header);
  if (!entries.ok()) return entries.status();
  for (const Qcow2BitmapEntry& entry : *entries) {
    if (entry.bitmap.name != name) continue;
    absl::Status status = CheckUsable(*layer.file, layer.header, entry);
    if (!status.ok()) return status;
    return std::make_unique<Qcow2BitmapCursor>(image, entry);
  }
  return absl::NotFoundError(
      absl::StrCat("qcow2: ", image->label(), ": no bitmap ", Qcow2Quoted(name)));
}

}  // namespace cbt
