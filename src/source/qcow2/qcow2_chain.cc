#include "source/qcow2/qcow2_chain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt {

absl::StatusOr<Qcow2Tables> FindQcow2Tables(const Qcow2State& state) {
  if (state.image == nullptr) return absl::InvalidArgumentError("qcow2: no image");
  for (const Qcow2Layer& layer : state.image->parts().layers) {
    if (!layer.header.external_data) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("qcow2: ", layer.file->label(),
                     ": the image keeps its data in an external data file: only its dirty bitmaps "
                     "can be read (bitmap=NAME)"));
  }
  const Qcow2Layer& layer = state.image->parts().layers.front();
  if (!state.snapshot) return layer.header.active;
  absl::StatusOr<Qcow2Snapshot> snapshot = state.image->FindSnapshot(*state.snapshot);
  if (!snapshot.ok()) return snapshot.status();
  const Qcow2Tables tables = {snapshot->virtual_size, snapshot->l1_offset, snapshot->l1_entries};
  absl::Status status =
      CheckQcow2Tables(*layer.file, layer.header, tables, layer.header.snapshots_offset);
  if (!status.ok()) return status;
  return tables;
}

ChainWalk::ChainWalk(std::shared_ptr<const Qcow2Image> image, const Qcow2Tables& tables,
                     SegmentRule rule)
    : image_(std::move(image)) {
  for (const Qcow2Layer& layer : image_->parts().layers) {
    Qcow2Tables own = tables;
    if (!layers_.empty()) own = layer.raw ? Qcow2Tables{layer.size(), 0, 0} : layer.header.active;
    layers_.push_back({own, TableWalk(layer, own, rule), 0, {}});
  }
}

absl::Status ChainWalk::Resolve(uint64_t offset, size_t layers, Place& place) {
  uint64_t end = size();
  for (size_t i = 0; i < layers; ++i) {
    Layer& layer = layers_[i];
    ++work_;
    if (offset >= layer.walk.size()) {
      // Past the end of a backing file everything is zeros, whatever lies below.
      place = {Place::Kind::kZero, 0, 0, end};
      return absl::OkStatus();
    }
    if (offset < layer.begin || offset >= layer.segment.end) {
      Segment segment;
      absl::Status status = layer.walk.Find(offset, segment);
      if (!status.ok()) {
        layer.segment = {};
        return status;
      }
      layer.segment = segment;
      layer.begin = offset;
    }
    const Segment& segment = layer.segment;
    end = std::min(end, segment.end);
    switch (segment.placement) {
      case Placement::kAbsent:
        continue;
      case Placement::kZero:
        place = {Place::Kind::kZero, 0, 0, end};
        break;
      case Placement::kData:
        place = {Place::Kind::kData, i, segment.host + (offset - layer.begin), end};
        break;
      case Placement::kCompressed:
        place = {Place::Kind::kCompressed, i, segment.host, end};
        break;
    }
    return absl::OkStatus();
  }
  if (layers < layers_.size()) {
    // The layers below decide, up to the end of the first of them.
    const uint64_t below = layers_[layers].walk.size();
    if (offset >= below) {
      place = {Place::Kind::kZero, 0, 0, end};
    } else {
      place = {Place::Kind::kBelow, 0, 0, std::min(end, below)};
    }
  } else {
    place = {cut() ? Place::Kind::kUnknown : Place::Kind::kZero, 0, 0, end};
  }
  return absl::OkStatus();
}

uint64_t ChainWalk::work() const noexcept {
  uint64_t work = work_;
  for (const Layer& layer : layers_) work += layer.walk.work();
  return work;
}

absl::Status ChainWalk::CheckUnchanged() const {
  for (const Qcow2Layer& layer : image_->parts().layers) {
    if (absl::Status status = layer.file->CheckUnchanged(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

size_t CommonLayers(const ChainWalk& a, const ChainWalk& b) {
  if (a.cut() != b.cut()) return 0;
  const size_t most = std::min(a.depth(), b.depth());
  size_t common = 0;
  while (common < most) {
    const size_t i = a.depth() - 1 - common;
    const size_t k = b.depth() - 1 - common;
    const Qcow2Layer& x = a.layer(i);
    const Qcow2Layer& y = b.layer(k);
    if (x.raw != y.raw || !x.file->SameFileAs(*y.file) || !(a.tables(i) == b.tables(k))) break;
    ++common;
  }
  return common;
}

}  // namespace cbt
