#include "source/overlay/overlay_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "source/overlay/cluster_codec.h"
#include "source/overlay/ordered_work.h"
#include "source/overlay/overlay_plan.h"
#include "source/overlay/overlay_tables.h"

namespace cbt {
namespace {

constexpr size_t kMostPieces = 1024;
constexpr uint64_t kPieceTarget = kMiB;
constexpr uint64_t kSectorSize = 512;

// How a cluster is stored: its size in bytes, or one of these.
constexpr uint32_t kStoredPlain = 0;
constexpr uint32_t kStoredZero = ~uint32_t{0};

struct ClusterPiece {
  uint64_t first = 0;
  uint64_t count = 0;
};

// The bytes of a piece, filled up with zeros past the volume's end. If `stored` is not empty, it
// has a value for each cluster, and `bytes` what they store, one after another.
struct PieceBytes {
  std::vector<uint8_t> bytes = {};
  std::vector<uint32_t> stored = {};
};

bool IsAllZero(std::span<const uint8_t> bytes) {
  return bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Runs in any thread.
class PieceReader {
 public:
  PieceReader(const CopyInput& input, const OverlayShape& shape, const OverlayOptions& options)
      : input_(input), shape_(shape), options_(options) {}

  absl::StatusOr<PieceBytes> Read(const ClusterPiece& piece) const {
    PieceBytes read{.bytes = TakeBuffer()};
    const uint64_t offset = piece.first << shape_.cluster_bits;
    const uint64_t length = piece.count << shape_.cluster_bits;
    read.bytes.resize(static_cast<size_t>(length));
    const auto inside = static_cast<size_t>(std::min(length, shape_.size - offset));
    std::fill(read.bytes.begin() + static_cast<ptrdiff_t>(inside), read.bytes.end(), uint8_t{0});
    absl::Status status = input_.Read(offset, std::span(read.bytes).first(inside));
    if (!status.ok()) return status;
    if (!options_.compress && !options_.find_zeros) return read;
    absl::StatusOr<PieceBytes> packed = Pack(read.bytes);
    GiveBack(std::move(read.bytes));
    return packed;
  }

  // For the next piece: memory that is new to the process costs more than reading into it.
  void GiveBack(std::vector<uint8_t> buffer) const {
    const std::lock_guard lock(mutex_);
    buffers_.push_back(std::move(buffer));
  }

 private:
  std::vector<uint8_t> TakeBuffer() const {
    const std::lock_guard lock(mutex_);
    if (buffers_.empty()) return {};
    std::vector<uint8_t> buffer = std::move(buffers_.back());
    buffers_.pop_back();
    return buffer;
  }

  absl::StatusOr<PieceBytes> Pack(std::span<const uint8_t> bytes) const {
    PieceBytes packed{.bytes = TakeBuffer()};
    packed.bytes.clear();
    const auto cluster = static_cast<size_t>(shape_.cluster());
    std::unique_ptr<ClusterCompressor> compressor;
    if (options_.compress) {
      compressor = std::make_unique<ClusterCompressor>(options_.compression_level);
    }
    for (; !bytes.empty(); bytes = bytes.subspan(cluster)) {
      const std::span<const uint8_t> one = bytes.first(cluster);
      uint32_t stored = kStoredPlain;
      if (options_.find_zeros && IsAllZero(one)) {
        stored = kStoredZero;
      } else if (compressor != nullptr) {
        const absl::StatusOr<size_t> size = compressor->Compress(one, packed.bytes);
        if (!size.ok()) return size.status();
        stored = static_cast<uint32_t>(*size);
      }
      if (stored == kStoredPlain) packed.bytes.insert(packed.bytes.end(), one.begin(), one.end());
      packed.stored.push_back(stored);
    }
    return packed;
  }

  const CopyInput& input_;
  const OverlayShape& shape_;
  const OverlayOptions& options_;
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<uint8_t>> buffers_;
};

// Gives clusters their places in the file as they come.
class ClusterPlacer {
 public:
  ClusterPlacer(const OverlayShape& shape, OverlayOutput& output, OverlaySummary& summary)
      : shape_(shape), output_(output), summary_(summary), end_(shape.data_begin()) {}

  absl::Status Add(const PieceBytes& piece) {
    const uint64_t cluster = shape_.cluster();
    std::vector<uint8_t> out;
    uint64_t begin = end_;  // of `out` in the file
    std::span<const uint8_t> left = piece.bytes;
    const auto pad = [&](uint64_t multiple) {
      const uint64_t to = AlignUp(end_, multiple);
      out.resize(static_cast<size_t>(to - begin));
      end_ = to;
    };
    for (const uint32_t stored : piece.stored) {
      if (stored == kStoredZero) {
        places_.entries.push_back(kOverlayZeroEntry);
        summary_.data_bytes -= cluster;
        summary_.zero_bytes += cluster;
        continue;
      }
      const bool plain = stored == kStoredPlain;
      const uint64_t size = plain ? cluster : stored;
      pad(plain ? cluster : kSectorSize);
      places_.entries.push_back(plain ? PlainEntry(end_)
                                      : CompressedEntry(shape_.cluster_bits, end_, size));
      if (!plain) summary_.compressed_bytes += cluster;
      Count(end_, AlignUp(size, kSectorSize));
      const auto bytes = left.first(static_cast<size_t>(size));
      out.insert(out.end(), bytes.begin(), bytes.end());
      left = left.subspan(static_cast<size_t>(size));
      end_ += size;
    }
    return output_.Append(out);
  }

  // Fills up the last cluster, and returns where it ends.
  absl::StatusOr<uint64_t> Finish() {
    const uint64_t end = AlignUp(end_, shape_.cluster());
    if (absl::Status status = output_.AppendZeros(end - end_); !status.ok()) return status;
    end_ = end;
    return end;
  }

  const OverlayPlaces& places() const noexcept { return places_; }

 private:
  void Count(uint64_t offset, uint64_t size) {
    const uint64_t first = (offset - shape_.data_begin()) >> shape_.cluster_bits;
    const uint64_t last = (offset + size - 1 - shape_.data_begin()) >> shape_.cluster_bits;
    places_.counts.resize(std::max(places_.counts.size(), static_cast<size_t>(last + 1)));
    for (uint64_t i = first; i <= last; ++i) ++places_.counts[static_cast<size_t>(i)];
  }

  const OverlayShape& shape_;
  OverlayOutput& output_;
  OverlaySummary& summary_;
  OverlayPlaces places_;
  uint64_t end_;
};

absl::Status CheckOverlayOptions(const OverlayOptions& options, const OverlayOutput& output) {
  if (!IsPowerOfTwo(options.cluster_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a cluster of ", options.cluster_size, " bytes, not a power of two"));
  }
  if (options.pieces_in_flight < 1 || options.pieces_in_flight > kMostPieces) {
    return absl::InvalidArgumentError(absl::StrCat("pieces_in_flight must be 1 to ", kMostPieces));
  }
  if ((options.compress || options.find_zeros) && !output.seekable()) {
    return absl::InvalidArgumentError(
        "a pipe takes the header first, before it is known what compresses or is zero: write to a "
        "file, or compress what comes out of the pipe");
  }
  return options.compress ? LoadClusterCodec() : absl::OkStatus();
}

// Calls `use(PieceBytes)` for the data of the plan, in its order.
template <typename Use>
absl::Status ForEachPiece(const OverlayPlan& plan, const CopyInput& input,
                          const OverlayOptions& options, Use use) {
  const PieceReader reader(input, plan.shape, options);
  OrderedWork<ClusterPiece, PieceBytes> work(
      options.executor, options.pieces_in_flight,
      [&reader](const ClusterPiece& piece) { return reader.Read(piece); });
  const uint64_t all = plan.data_clusters << plan.shape.cluster_bits;
  const uint64_t most = std::max<uint64_t>(1, kPieceTarget >> plan.shape.cluster_bits);
  uint64_t done = 0;
  std::deque<uint64_t> counts;  // of the pieces at work
  const auto take = [&]() -> absl::Status {
    absl::StatusOr<PieceBytes> piece = work.Take();
    if (!piece.ok()) return piece.status();
    if (absl::Status used = use(*piece); !used.ok()) return used;
    reader.GiveBack(std::move(piece->bytes));
    done += counts.front() << plan.shape.cluster_bits;
    counts.pop_front();
    if (options.on_progress) options.on_progress(done, all);
    if (options.stop.stop_requested()) return absl::CancelledError("the export was cancelled");
    return absl::OkStatus();
  };
  for (const OverlayRun& run : plan.runs) {
    if (run.zero) continue;
    for (uint64_t first = run.first; first < run.end();) {
      const uint64_t count = std::min(most, run.end() - first);
      if (work.full()) {
        if (absl::Status status = take(); !status.ok()) return status;
      }
      work.Add({first, count});
      counts.push_back(count);
      first += count;
    }
  }
  while (!work.empty()) {
    if (absl::Status status = take(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OverlaySummary> WriteOverlay(ExtentCursor& cursor, const CopyInput& input,
                                            OverlayOutput& output, const OverlayOptions& options) {
  if (absl::Status valid = CheckOverlayOptions(options, output); !valid.ok()) return valid;
  const OverlayShape shape{
      .cluster_bits = static_cast<unsigned>(std::countr_zero(options.cluster_size)),
      .size = cursor.capacity()};
  // Names that don't fit are found before the cursor is read.
  if (absl::Status valid = CheckOverlayShape(shape); !valid.ok()) return valid;
  if (absl::Status named = OverlayHeader(shape, {}, options).status(); !named.ok()) return named;
  const absl::StatusOr<OverlayPlan> plan = PlanOverlay(shape, cursor, input);
  if (!plan.ok()) return plan.status();
  OverlaySummary summary{.data_bytes = plan->data_clusters * shape.cluster(),
                         .zero_bytes = plan->zero_clusters * shape.cluster()};

  const bool placed = options.compress || options.find_zeros;
  absl::StatusOr<OverlayTables> tables =
      PlaceOverlayTables(*plan, shape.data_begin() + summary.data_bytes);
  if (!tables.ok()) return tables.status();
  uint64_t begun = 0;
  if (!output.seekable()) {
    const absl::StatusOr<std::vector<uint8_t>> header = OverlayHeader(shape, *tables, options);
    if (!header.ok()) return header.status();
    if (absl::Status status = output.Append(*header); !status.ok()) return status;
    begun = header->size();
  }
  if (absl::Status status = output.AppendZeros(shape.data_begin() - begun); !status.ok()) {
    return status;
  }
  ClusterPlacer placer(shape, output, summary);
  absl::Status written =
      ForEachPiece(*plan, input, options, [&](const PieceBytes& piece) -> absl::Status {
        return placed ? placer.Add(piece) : output.Append(piece.bytes);
      });
  if (!written.ok()) return written;
  if (placed) {
    const absl::StatusOr<uint64_t> end = placer.Finish();
    if (!end.ok()) return end.status();
    tables = PlaceOverlayTables(*plan, *end);
    if (!tables.ok()) return tables.status();
  }
  written = AppendOverlayTables(*plan, *tables, placed ? &placer.places() : nullptr, output);
  if (!written.ok()) return written;
  if (output.seekable()) {
    const absl::StatusOr<std::vector<uint8_t>> header = OverlayHeader(shape, *tables, options);
    if (!header.ok()) return header.status();
    if (absl::Status status = output.WriteHeader(*header); !status.ok()) return status;
  }
  summary.file_bytes = tables->end;
  return summary;
}

}  // namespace cbt
