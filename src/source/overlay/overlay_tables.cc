#include "source/overlay/overlay_tables.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

constexpr uint64_t kOneReference = uint64_t{1} << 63;
constexpr uint64_t kIsCompressed = uint64_t{1} << 62;
constexpr uint64_t kSectorBits = 9;

void PutBig(std::vector<uint8_t>& bytes, unsigned size, uint64_t value) {
  for (unsigned i = size; i-- > 0;) bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
}
void PutWords(std::vector<uint8_t>& bytes, std::string_view text) {
  bytes.insert(bytes.end(), text.begin(), text.end());
  while (bytes.size() % 8 != 0) bytes.push_back(0);
}

// Appends numbers to an output, in large pieces.
class NumberWriter {
 public:
  explicit NumberWriter(OverlayOutput& output) : output_(output) { bytes_.reserve(kPiece); }

  absl::Status Put(unsigned size, uint64_t value) {
    PutBig(bytes_, size, value);
    written_ += size;
    return bytes_.size() >= kPiece ? Flush() : absl::OkStatus();
  }
  absl::Status PutZeros(unsigned size, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (absl::Status status = Put(size, 0); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status PadTo(uint64_t multiple) {
    while (written_ % multiple != 0) {
      if (absl::Status status = Put(1, 0); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::Status Flush() {
    absl::Status status = output_.Append(bytes_);
    bytes_.clear();
    return status;
  }

 private:
  static constexpr size_t kPiece = 64 * kKiB;
  OverlayOutput& output_;
  std::vector<uint8_t> bytes_;
  uint64_t written_ = 0;
};

// Second-level tables, one for each stretch of the volume that has clusters.
absl::Status PutSecondLevel(const OverlayPlan& plan, const OverlayPlaces* places,
                            NumberWriter& out) {
  const uint64_t in_table = plan.shape.table_entries();
  uint64_t at = 0;    // the cluster whose entry comes next
  uint64_t data = 0;  // clusters of data so far
  for (const OverlayRun& run : plan.runs) {
    const uint64_t table = run.first / in_table * in_table;
    // Fills up the table before, and begins this one.
    if (at <= table && at % in_table != 0) {
      if (absl::Status status = out.PutZeros(8, in_table - at % in_table); !status.ok()) {
        return status;
      }
    }
    if (at <= table) at = table;
    if (absl::Status status = out.PutZeros(8, run.first - at); !status.ok()) return status;
    for (at = run.first; at < run.end(); ++at) {
      uint64_t entry = kOverlayZeroEntry;
      if (!run.zero) {
        entry = places != nullptr
                    ? places->entries[static_cast<size_t>(data)]
                    : PlainEntry(plan.shape.data_begin() + (data << plan.shape.cluster_bits));
        ++data;
      }
      if (absl::Status status = out.Put(8, entry); !status.ok()) return status;
    }
  }
  return at % in_table == 0 ? absl::OkStatus() : out.PutZeros(8, in_table - at % in_table);
}

absl::Status PutFirstLevel(const OverlayPlan& plan, const OverlayTables& tables,
                           NumberWriter& out) {
  const uint64_t in_table = plan.shape.table_entries();
  const uint64_t cluster = plan.shape.cluster();
  uint64_t next = 0;  // the entry that comes next
  uint64_t offset = tables.second_level;
  for (const OverlayRun& run : plan.runs) {
    const uint64_t last = (run.end() - 1) / in_table;
    const uint64_t first = run.first / in_table;
    if (next < first) {
      if (absl::Status status = out.PutZeros(8, first - next); !status.ok()) return status;
      next = first;
    }
    for (; next <= last; ++next, offset += cluster) {
      if (absl::Status status = out.Put(8, offset | kOneReference); !status.ok()) return status;
    }
  }
  const uint64_t entries = plan.shape.first_level_entries();
  if (absl::Status status = out.PutZeros(8, entries - next); !status.ok()) return status;
  return out.PadTo(cluster);
}

absl::Status PutCounts(const OverlayPlan& plan, const OverlayTables& tables,
                       const OverlayPlaces* places, NumberWriter& out) {
  const uint64_t cluster = plan.shape.cluster();
  const uint64_t data = plan.shape.data_begin() / cluster;
  const uint64_t counted = (tables.count_table - tables.count_blocks) / 2;
  const uint64_t used = tables.end / cluster;
  const uint64_t after_data = tables.second_level / cluster;
  for (uint64_t i = 0; i < counted; ++i) {
    uint64_t count = 0;
    if (i == 0 || (i >= after_data && i < used)) {
      count = 1;
    } else if (i >= data && i < after_data) {
      count = places != nullptr ? places->counts[static_cast<size_t>(i - data)] : 1;
    }
    if (absl::Status status = out.Put(2, count); !status.ok()) return status;
  }
  for (uint64_t block = tables.count_blocks; block < tables.count_table; block += cluster) {
    if (absl::Status status = out.Put(8, block); !status.ok()) return status;
  }
  return out.PadTo(cluster);
}

}  // namespace

uint64_t PlainEntry(uint64_t offset) noexcept { return offset | kOneReference; }

uint64_t CompressedEntry(unsigned cluster_bits, uint64_t offset, uint64_t size) noexcept {
  const uint64_t more_sectors = (size - 1) >> kSectorBits;
  return offset | more_sectors << (62 - (cluster_bits - 8)) | kIsCompressed;
}

absl::StatusOr<std::vector<uint8_t>> OverlayHeader(const OverlayShape& shape,
                                                   const OverlayTables& tables,
                                                   const OverlayOptions& options) {
  constexpr uint32_t kMagic = 0x514649fb;
  constexpr uint32_t kBackingFormat = 0xe2792aca;
  constexpr size_t kMaxName = 1023;
  const std::string& name = options.backing_name;
  if (name.empty() || name.size() > kMaxName || name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the name of the backing file has ", name.size(),
                                                   " bytes, not 1 to ", kMaxName,
                                                   ", or holds a NUL byte"));
  }
  if (options.backing_format != "raw" && options.backing_format != "qcow2") {
    return absl::InvalidArgumentError("the format of a backing file is raw or qcow2");
  }
  const uint32_t length = options.compress ? 112 : 104;
  std::vector<uint8_t> bytes;
  PutBig(bytes, 4, kMagic);
  PutBig(bytes, 4, 3);
  // The name follows the header, the format (8 bytes and its text) and the end of the extensions.
  PutBig(bytes, 8, length + 16 + 8);
  PutBig(bytes, 4, name.size());
  PutBig(bytes, 4, shape.cluster_bits);
  PutBig(bytes, 8, shape.size);
  PutBig(bytes, 4, 0);  // not encrypted
  PutBig(bytes, 4, shape.first_level_entries());
  PutBig(bytes, 8, tables.first_level);
  PutBig(bytes, 8, tables.count_table);
  PutBig(bytes, 4, tables.count_table_clusters);
  PutBig(bytes, 4, 0);  // no snapshots
  PutBig(bytes, 8, 0);
  PutBig(bytes, 8, options.compress ? 8 : 0);  // incompatible features: another compression
  PutBig(bytes, 8, 0);
  PutBig(bytes, 8, 0);
  PutBig(bytes, 4, 4);  // counts of 2^4 bits
  PutBig(bytes, 4, length);
  if (options.compress) PutBig(bytes, 8, uint64_t{1} << 56);  // zstd
  PutBig(bytes, 4, kBackingFormat);
  PutBig(bytes, 4, options.backing_format.size());
  PutWords(bytes, options.backing_format);
  PutBig(bytes, 8, 0);
  PutWords(bytes, name);
  if (bytes.size() > shape.cluster()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of the backing file does not fit into a cluster of ",
                     shape.cluster(), " bytes: choose a larger one"));
  }
  return bytes;
}

absl::Status AppendOverlayTables(const OverlayPlan& plan, const OverlayTables& tables,
                                 const OverlayPlaces* places, OverlayOutput& output) {
  NumberWriter out(output);
  if (absl::Status status = PutSecondLevel(plan, places, out); !status.ok()) return status;
  if (absl::Status status = PutFirstLevel(plan, tables, out); !status.ok()) return status;
  if (absl::Status status = PutCounts(plan, tables, places, out); !status.ok()) return status;
  return out.Flush();
}

}  // namespace cbt
