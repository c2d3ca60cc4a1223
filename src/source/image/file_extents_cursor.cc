// Cursors over lists of extents: what two files share, and what is written in one.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "source/image/chunk_compare.h"
#include "source/image/file_extents.h"

namespace cbt {
namespace {

using Kind = Placement::Kind;

// Volume bytes that the consumer compares at once.
constexpr uint64_t kStretchBytes = kMiB;

// The size of a contiguous range from which the executor's threads take part: they plan ahead, past
// the end of the range, by whole chunks.
constexpr uint64_t kManyBytes = 8 * kMiB;

// The maximum number of lists requested, and of stretches compared, per Next().
constexpr int kListsPerCall = 8;
constexpr int kStretchesPerCall = 16;

enum class Verdict { kSame, kChanged, kCompare };

struct Judged {
  uint64_t end = 0;
  Verdict verdict = Verdict::kSame;
};

Verdict Judge(const Placement& base, const Placement& target, uint64_t offset,
              const ReflinkDeltaOptions& options) noexcept {
  if (base.kind == Kind::kUnknown || target.kind == Kind::kUnknown) return Verdict::kCompare;
  if (base.kind == Kind::kZeros && target.kind == Kind::kZeros) {
    return options.images.skip_holes ? Verdict::kSame : Verdict::kCompare;
  }
  if (base.kind == target.kind &&
      base.physical + (offset - base.begin) == target.physical + (offset - target.begin)) {
    return Verdict::kSame;
  }
  return options.compare_data ? Verdict::kCompare : Verdict::kChanged;
}

// The combined result of two lists from `offset`, as far as both go, in maximal stretches.
std::vector<Judged> JudgeAll(const PlacementList& base, const PlacementList& target,
                             uint64_t offset, const ReflinkDeltaOptions& options) {
  std::vector<Judged> all;
  auto a = base.pieces.begin();
  auto b = target.pieces.begin();
  while (a != base.pieces.end() && b != target.pieces.end()) {
    const Verdict verdict = Judge(*a, *b, offset, options);
    const uint64_t end = std::min(a->end, b->end);
    if (!all.empty() && all.back().verdict == verdict) {
      all.back().end = end;
    } else {
      all.push_back({end, verdict});
    }
    offset = end;
    if (a->end == end) ++a;
    if (b->end == end) ++b;
  }
  return all;
}

// Extents, except compared ones, are not rounded to blocks and may touch: AlignOutward() does the
// rest. The position is a multiple of the block size only after Seek().
class PlacementDeltaCursor final : public ExtentCursor {
 public:
  PlacementDeltaCursor(PlacedImage base, PlacedImage target, uint64_t block_size,
                       const ReflinkDeltaOptions& options)
      : ExtentCursor({.capacity = target.image->size(), .granularity = block_size}),
        base_(std::move(base)),
        target_(std::move(target)),
        options_(options),
        pair_{base_.image, target_.image, options.images.skip_holes} {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    judged_.clear();
    next_ = 0;
    compared_end_ = 0;
    reading_end_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    int lists = 0;
    int stretches = 0;
    while (!batch.full() && position_ < capacity()) {
      if (position_ < compared_end_) {
        TakeCompared(batch);
        continue;
      }
      if (position_ < reading_end_) {
        if (++stretches > kStretchesPerCall) break;
        if (absl::Status status = TakeRead(batch); !status.ok()) return status;
        continue;
      }
      if (next_ == judged_.size()) {
        if (++lists > kListsPerCall) break;
        if (absl::Status status = AskBoth(); !status.ok()) return status;
        continue;
      }
      const Judged& judged = judged_[next_];
      if (judged.end <= position_) {  // a compared range reached into it
        ++next_;
        continue;
      }
      if (judged.verdict == Verdict::kCompare) {
        if (++stretches > kStretchesPerCall) break;
        if (absl::Status status = Compare(judged.end); !status.ok()) return status;
        continue;
      }
      if (judged.verdict == Verdict::kChanged) {
        batch.push_back({position_, judged.end - position_});
      }
      position_ = judged.end;
    }
    if (position_ == capacity()) {
      if (absl::Status status = pair_.CheckUnchanged(); !status.ok()) return status;
    }
    return position_;
  }

  // Requests and judges the lists from the position, as far as one call per side reports.
  absl::Status AskBoth() {
    next_ = 0;
    judged_.clear();
    const absl::StatusOr<PlacementList> base = Ask(base_, capacity());
    if (!base.ok()) return base.status();
    const absl::StatusOr<PlacementList> target = Ask(target_, base->end());
    if (!target.ok()) return target.status();
    // An address may have changed its owner between the two answers, unless the base had it before
    // and after.
    const absl::StatusOr<PlacementList> again = Ask(base_, target->end());
    if (!again.ok()) return again.status();
    const uint64_t end = again->end();
    if (CutPlacement(*base, end).pieces != again->pieces) {
      judged_.push_back({end, Verdict::kCompare});
    } else {
      judged_ = JudgeAll(*again, *target, position_, options_);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<PlacementList> Ask(const PlacedImage& placed, uint64_t end) const {
    return ReadPlacement(*placed.extents, placed.image->label(), placed.image->size(), position_,
                         end);
  }

  // Compares the blocks from the position to `end`, or the first of them.
  absl::Status Compare(uint64_t end) {
    const uint64_t begin = AlignDown(position_, granularity());
    end = std::min(AlignUp(end, granularity()), capacity());
    if (options_.images.executor != nullptr && end - begin >= kManyBytes) {
      return StartReading(begin, end);
    }
    // Whole blocks: a block is no larger than kPieceBytes.
    end = std::min(end, begin + kStretchBytes);
    absl::Status status =
        CompareChunk(pair_, begin, end, static_cast<size_t>(granularity()), begin,
                     options_.images.chunks_ahead > 0 ? &cold_ : nullptr, compared_);
    if (!status.ok()) return status;
    compared_begin_ = begin;
    compared_end_ = end;
    return absl::OkStatus();
  }

  bool BlockDiffers(uint64_t offset) const noexcept {
    const uint64_t block = (offset - compared_begin_) / granularity();
    return (compared_[static_cast<size_t>(block / 64)] >> (block % 64) & 1) != 0;
  }

  // Reports the differences found between the position and compared_end_.
  void TakeCompared(ExtentBatch& batch) {
    while (position_ < compared_end_) {
      const bool differs = BlockDiffers(position_);
      if (differs && batch.full()) return;
      uint64_t end = position_;
      do {
        end = std::min(AlignDown(end, granularity()) + granularity(), compared_end_);
      } while (end < compared_end_ && BlockDiffers(end) == differs);
      if (differs) batch.push_back({position_, end - position_});
      position_ = end;
    }
  }

  // Reads this range with a cursor over both whole images, which uses the executor.
  absl::Status StartReading(uint64_t begin, uint64_t end) {
    if (reader_ == nullptr) {
      ImageOptions options = options_.images;
      options.block_size = granularity();
      auto reader = MakeImageDeltaCursor(base_.image, target_.image, options);
      if (!reader.ok()) return reader.status();
      reader_ = *std::move(reader);
      reader_->AllowPieces();
    }
    if (absl::Status status = reader_->Seek(begin); !status.ok()) return status;
    reading_end_ = end;
    read_.clear();
    read_next_ = 0;
    return absl::OkStatus();
  }

  absl::Status TakeRead(ExtentBatch& batch) {
    if (read_next_ == read_.size()) {
      read_next_ = 0;
      const absl::StatusOr<Step> step = reader_->Next(read_);
      if (!step.ok()) return step.status();
    }
    for (; read_next_ < read_.size() && !batch.full(); ++read_next_) {
      const Extent extent = read_[read_next_];
      const uint64_t begin = std::max(extent.offset, position_);
      const uint64_t end = std::min(extent.end(), reading_end_);
      if (begin < end) {
        batch.push_back({begin, end - begin});
        position_ = end;
      }
    }
    if (read_next_ == read_.size()) {
      position_ = std::max(position_, std::min(reader_->covered(), reading_end_));
    }
    return absl::OkStatus();
  }

  const PlacedImage base_;
  const PlacedImage target_;
  const ReflinkDeltaOptions options_;
  const ImagePair pair_;
  std::atomic<bool> cold_{false};  // a read has waited for the storage
  uint64_t position_ = 0;          // everything below has been reported

  std::vector<Judged> judged_;  // without a gap, from at or below the position
  size_t next_ = 0;             // the first that may reach past the position

  std::vector<uint64_t> compared_;  // one bit per block of [compared_begin_, compared_end_)
  uint64_t compared_begin_ = 0;
  uint64_t compared_end_ = 0;

  std::unique_ptr<ExtentCursor> reader_;
  uint64_t reading_end_ = 0;
  ExtentBatch read_{256};
  size_t read_next_ = 0;
};

class PlacementAllocationCursor final : public ExtentCursor {
 public:
  explicit PlacementAllocationCursor(PlacedImage placed)
      : ExtentCursor({.capacity = placed.image->size(), .granularity = 1}),
        placed_(std::move(placed)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    list_.pieces.clear();
    next_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    int lists = 0;
    while (!batch.full() && position_ < capacity()) {
      if (next_ == list_.pieces.size()) {
        if (++lists > kListsPerCall) break;
        auto list = ReadPlacement(*placed_.extents, placed_.image->label(), capacity(), position_,
                                  capacity());
        if (!list.ok()) return list.status();
        list_ = *std::move(list);
        next_ = 0;
        continue;
      }
      const Placement& piece = list_.pieces[next_++];
      if (piece.kind != Kind::kZeros) batch.push_back({piece.begin, piece.end - piece.begin});
      position_ = piece.end;
    }
    if (position_ == capacity()) {
      if (absl::Status status = placed_.image->CheckUnchanged(); !status.ok()) return status;
    }
    return position_;
  }

  const PlacedImage placed_;
  uint64_t position_ = 0;
  PlacementList list_;
  size_t next_ = 0;
};

// OK if the file system answers at all; requests the first extent.
absl::Status Probe(const PlacedImage& placed) {
  if (placed.image->size() == 0) return absl::OkStatus();
  FileExtent extent;
  return placed.extents->List(0, placed.image->size(), {&extent, 1}).status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementDeltaCursor(
    PlacedImage base, PlacedImage target, const ReflinkDeltaOptions& options) {
  for (const PlacedImage* side : {&base, &target}) {
    absl::Status status = Probe(*side);
    if (absl::IsUnimplemented(status)) {
      if (options.require_placement) return absl::FailedPreconditionError(status.message());
      return MakeImageDeltaCursor(base.image, target.image, options.images);
    }
    if (!status.ok()) return status;
  }
  const uint64_t block_size = options.images.block_size;
  return AlignOutward(
      std::make_unique<PlacementDeltaCursor>(std::move(base), std::move(target),
                                             std::min<uint64_t>(block_size, kPieceBytes), options),
      block_size);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakePlacementAllocationCursor(
    PlacedImage placed, const ImageOptions& options) {
  absl::Status status = Probe(placed);
  if (absl::IsUnimplemented(status)) return MakeImageAllocationCursor(placed.image, options);
  if (!status.ok()) return status;
  return AlignOutward(std::make_unique<PlacementAllocationCursor>(std::move(placed)),
                      options.block_size);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeReflinkDeltaCursor(
    std::shared_ptr<const Image> base, std::shared_ptr<const Image> target,
    const ReflinkDeltaOptions& options) {
  if (base == nullptr || target == nullptr) return absl::InvalidArgumentError("delta: no image");
  const uint64_t block_size = options.images.block_size;
  if (absl::Status status = CheckImageBlockSize(block_size); !status.ok()) return status;
  if (base->SameFileAs(*target))
    return MakeExtentCursor({}, {.capacity = target->size(), .granularity = block_size});
  if (absl::Status status = CheckSharedPlacement(*base, *target); !status.ok()) {
    if (options.require_placement) return status;
    return MakeImageDeltaCursor(std::move(base), std::move(target), options.images);
  }
  auto base_extents = MakeFiemapLister(base);
  auto target_extents = MakeFiemapLister(target);
  return MakePlacementDeltaCursor({std::move(base), std::move(base_extents)},
                                  {std::move(target), std::move(target_extents)}, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentAllocationCursor(
    std::shared_ptr<const Image> image, const ImageOptions& options) {
  if (image == nullptr) return absl::InvalidArgumentError("allocation: no image");
  if (absl::Status status = CheckImageBlockSize(options.block_size); !status.ok()) return status;
  if (options.skip_zeros || !options.skip_holes || !HasReliableExtents(*image)) {
    return MakeImageAllocationCursor(std::move(image), options);
  }
  auto extents = MakeFiemapLister(image);
  return MakePlacementAllocationCursor({std::move(image), std::move(extents)}, options);
}

}  // namespace cbt
