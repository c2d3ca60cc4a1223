// Cursors over the cluster tables of qcow2 images: allocation, one layer, delta of two states.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"
#include "source/qcow2/qcow2_chain.h"

namespace cbt {
namespace {

// The maximum work per Next() (see TableWalk::work()): some milliseconds.
constexpr uint64_t kWorkPerCall = uint64_t{1} << 22;
// The number of steps between checks of the work.
constexpr uint64_t kStepsPerLook = 16;

// A view's answer for the bytes from a position to `end`.
struct Answer {
  bool reported = false;
  uint64_t end = 0;
};

// Merges the answers of a view into maximal extents. A view has
//   absl::Status Lookup(uint64_t offset, Answer& answer);
//   uint64_t work() const;
//   absl::Status CheckUnchanged() const;
template <typename View>
class PlacementCursor final : public ExtentCursor {
 public:
  PlacementCursor(View view, uint64_t capacity, uint64_t granularity)
      : ExtentCursor({.capacity = capacity, .granularity = granularity}), view_(std::move(view)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    open_ = false;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const uint64_t limit = view_.work() + kWorkPerCall;
    for (uint64_t step = 0; position_ < capacity(); ++step) {
      if (step % kStepsPerLook == 0 && view_.work() >= limit) break;
      Answer answer;
      if (absl::Status status = view_.Lookup(position_, answer); !status.ok()) return status;
      if (answer.end <= position_) {
        return absl::InternalError(absl::StrCat("qcow2: no progress at offset ", position_));
      }
      if (answer.reported && !open_) {
        open_ = true;
        begin_ = position_;
      } else if (!answer.reported && open_) {
        if (batch.full()) break;
        Close(batch);
      }
      position_ = answer.end;
    }
    if (open_ && !batch.full() && (position_ == capacity() || pieces_allowed())) Close(batch);
    const uint64_t covered = open_ ? begin_ : position_;
    if (covered == capacity()) {
      // Checked last: the answer is valid only if no file changed.
      if (absl::Status status = view_.CheckUnchanged(); !status.ok()) return status;
    }
    return covered;
  }

  void Close(ExtentBatch& batch) noexcept {
    batch.push_back({begin_, position_ - begin_});
    open_ = false;
  }

  View view_;
  uint64_t position_ = 0;
  uint64_t begin_ = 0;  // of the open extent
  bool open_ = false;
};

class AllocationView {
 public:
  AllocationView(const Qcow2State& state, const Qcow2Tables& tables)
      : chain_(std::make_unique<ChainWalk>(state.image, tables, SegmentRule::kKind)) {}

  absl::Status Lookup(uint64_t offset, Answer& answer) {
    using Kind = ChainWalk::Place::Kind;
    ChainWalk::Place place;
    absl::Status status = chain_->Resolve(offset, chain_->depth(), place);
    // A file that was not opened may hold data.
    answer = {place.kind == Kind::kData || place.kind == Kind::kUnknown, place.end};
    return status;
  }
  uint64_t work() const noexcept { return chain_->work(); }
  absl::Status CheckUnchanged() const { return chain_->CheckUnchanged(); }

 private:
  std::unique_ptr<ChainWalk> chain_;
};

// The units of one file that count, straight from bits: in tables whose entries lie at random, an
// answer for each stretch would cost more than the entries.
class UnitCursor final : public ExtentCursor {
 public:
  UnitCursor(const Qcow2State& state, const Qcow2Tables& tables, CountedUnits counted,
             uint64_t granularity)
      : ExtentCursor({.capacity = tables.size, .granularity = granularity}),
        image_(state.image),
        walk_(std::make_unique<TableWalk>(layer(), tables, SegmentRule::kKind, counted)),
        unit_bits_(layer().header.unit_bits()),
        runs_(tables.size, uint64_t{1} << unit_bits_) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    floor_ = offset;
    runs_.Reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const uint64_t limit = walk_->work() + kWorkPerCall;
    uint64_t scanned = 0;
    while (!batch.full() && walk_->work() + scanned < limit) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (position_ == capacity()) {
        if (!runs_.open()) break;
        runs_.CloseAtCapacity(batch);
      } else if (absl::Status status = Scan(batch, scanned); !status.ok()) {
        return status;
      }
      CutAtFloor(batch);
    }
    if (pieces_allowed()) runs_.ClosePiece(BlockCount(position_, unit()), batch);
    CutAtFloor(batch);
    const uint64_t covered = std::max(floor_, runs_.Pending().value_or(position_));
    if (covered == capacity()) {
      // Checked last: the answer is valid only if no file changed.
      if (absl::Status status = layer().file->CheckUnchanged(); !status.ok()) return status;
    }
    return covered;
  }

  // Passes at least one unit, or the whole range of absent tables. Requires: !waiting().
  absl::Status Scan(ExtentBatch& batch, uint64_t& scanned) {
    UnitBits units;
    if (absl::Status status = walk_->FindUnits(position_, units); !status.ok()) return status;
    if (units.end <= position_) {
      return absl::InternalError(absl::StrCat("qcow2: no progress at offset ", position_));
    }
    const uint64_t unit_at = position_ >> unit_bits_;
    if (units.words == nullptr) {
      runs_.Close(unit_at, batch);
      position_ = units.end;
      return absl::OkStatus();
    }
    // The first word from a position inside it: what lies below does not count.
    const uint64_t index = unit_at - units.first_unit;
    const uint64_t* words = units.words + index / 64;
    size_t count = BlockCount(BlockCount(units.end, unit()) - units.first_unit, 64) - index / 64;
    const uint64_t rest = *words & ~uint64_t{0} << index % 64;
    if (index % 64 != 0) {
      words = &rest;
      count = 1;
    }
    const uint64_t block = unit_at - index % 64;
    const size_t passed =
        runs_.Scan(simd::ExtractRuns().single, reinterpret_cast<const uint8_t*>(words), nullptr,
                   count, block, batch);
    position_ = std::min((block + passed * 64) << unit_bits_, units.end);
    scanned += 16 * passed;
    return absl::OkStatus();
  }

  // Seek() may have moved into a unit: only the first extent can begin below.
  void CutAtFloor(ExtentBatch& batch) noexcept {
    if (batch.empty() || batch.offsets()[0] >= floor_) return;
    batch.mutable_lengths()[0] -= floor_ - batch.offsets()[0];
    batch.mutable_offsets()[0] = floor_;
  }

  uint64_t unit() const noexcept { return uint64_t{1} << unit_bits_; }
  const Qcow2Layer& layer() const noexcept { return image_->parts().layers.front(); }

  const std::shared_ptr<const Qcow2Image> image_;
  const std::unique_ptr<TableWalk> walk_;
  const unsigned unit_bits_;
  RunAssembler runs_;
  uint64_t position_ = 0;  // bytes; a unit's begin, but after Seek()
  uint64_t floor_ = 0;     // bytes, the position of Seek()
};

class DeltaView {
 public:
  DeltaView(std::unique_ptr<ChainWalk> base, std::unique_ptr<ChainWalk> target)
      : base_(std::move(base)), target_(std::move(target)) {
    const size_t common = CommonLayers(*base_, *target_);
    base_own_ = base_->depth() - common;
    target_own_ = target_->depth() - common;
    for (size_t k = 0; k < base_->depth(); ++k) {
      target_of_.push_back(target_->depth());
      for (size_t i = 0; i < target_->depth(); ++i) {
        const Qcow2Layer& layer = target_->layer(i);
        if (layer.raw == base_->layer(k).raw && layer.file->SameFileAs(*base_->layer(k).file)) {
          target_of_[k] = i;
          break;
        }
      }
    }
    const bool same_last = target_of_.back() == target_->depth() - 1;
    unknown_is_same_ = base_->cut() && target_->cut() && same_last;
    // Two states of one file above the same files, or above the same unknown ones.
    twins_ = target_of_[0] == 0 && !target_->layer(0).raw && base_own_ == 1 && target_own_ == 1 &&
             base_->cut() == target_->cut();
  }

  absl::Status Lookup(uint64_t offset, Answer& answer) {
    if (twins_ && offset < base_->size()) {
      absl::StatusOr<uint64_t> equal = target_->walk(0).EqualUpTo(base_->walk(0), offset);
      if (!equal.ok()) return equal.status();
      if (*equal > 0) {
        answer = {false, offset + *equal};
        return absl::OkStatus();
      }
    }
    Place target;
    Place base;
    absl::Status status = target_->Resolve(offset, target_own_, target);
    if (!status.ok()) return status;
    if (status = ResolveBase(offset, base_own_, base); !status.ok()) return status;
    // Zeros against a common layer: only that layer can show whether it holds zeros too.
    if (target.kind == Kind::kBelow && base.kind == Kind::kZero) {
      status = target_->Resolve(offset, target_->depth(), target);
    } else if (target.kind == Kind::kZero && base.kind == Kind::kBelow) {
      status = ResolveBase(offset, base_->depth(), base);
    }
    answer = {!Same(base, target), std::min(base.end, target.end)};
    return status;
  }

  uint64_t work() const noexcept { return base_->work() + target_->work(); }

  absl::Status CheckUnchanged() const {
    if (absl::Status status = base_->CheckUnchanged(); !status.ok()) return status;
    return target_->CheckUnchanged();
  }

 private:
  using Place = ChainWalk::Place;
  using Kind = Place::Kind;

  absl::Status ResolveBase(uint64_t offset, size_t layers, Place& place) {
    if (offset < base_->size()) return base_->Resolve(offset, layers, place);
    place = {Kind::kZero, 0, 0, target_->size()};
    return absl::OkStatus();
  }

  bool Same(const Place& base, const Place& target) const noexcept {
    if (base.kind != target.kind) return false;
    switch (base.kind) {
      case Kind::kZero:
      case Kind::kBelow:
        return true;
      case Kind::kUnknown:
        return unknown_is_same_;
      case Kind::kData:
      case Kind::kCompressed:
        return target_of_[base.layer] == target.layer && base.host == target.host;
    }
    return false;
  }

  std::unique_ptr<ChainWalk> base_;
  std::unique_ptr<ChainWalk> target_;
  size_t base_own_ = 0;  // layers above the common ones
  size_t target_own_ = 0;
  std::vector<size_t> target_of_;  // the layer of the target for each layer of the base, if any
  bool unknown_is_same_ = false;
  bool twins_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2AllocationCursor(const Qcow2State& state) {
  absl::StatusOr<Qcow2Tables> tables = FindQcow2Tables(state);
  if (!tables.ok()) return tables.status();
  // Without a backing file, the image's own tables are the answer.
  const Qcow2Image::Parts& parts = state.image->parts();
  if (parts.layers.size() == 1 && !parts.layers.front().raw && !parts.cut) {
    return std::make_unique<UnitCursor>(state, *tables, CountedUnits::kData, 1);
  }
  return std::make_unique<PlacementCursor<AllocationView>>(AllocationView(state, *tables),
                                                           tables->size, 1);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2LayerCursor(const Qcow2State& state) {
  absl::StatusOr<Qcow2Tables> tables = FindQcow2Tables(state);
  if (!tables.ok()) return tables.status();
  return std::make_unique<UnitCursor>(state, *tables, CountedUnits::kPresent,
                                      state.image->allocation_unit());
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeQcow2DeltaCursor(const Qcow2State& base,
                                                                   const Qcow2State& target) {
  absl::StatusOr<Qcow2Tables> base_tables = FindQcow2Tables(base);
  if (!base_tables.ok()) return base_tables.status();
  absl::StatusOr<Qcow2Tables> target_tables = FindQcow2Tables(target);
  if (!target_tables.ok()) return target_tables.status();
  const uint64_t capacity = target_tables->size;
  return std::make_unique<PlacementCursor<DeltaView>>(
      DeltaView(
          std::make_unique<ChainWalk>(base.image, *base_tables, SegmentRule::kContiguous),
          std::make_unique<ChainWalk>(target.image, *target_tables, SegmentRule::kContiguous)),
      capacity, 1);
}

}  // namespace cbt
