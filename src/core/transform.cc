#include "core/transform.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt {

TransformCursor::TransformCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity)
    : ExtentCursor({.capacity = input->capacity(), .granularity = granularity}),
      input_(std::move(input)) {}

absl::Status TransformCursor::SeekInput(uint64_t offset) {
  batch_.clear();
  next_ = 0;
  complete_ = false;
  return input_->Seek(offset);
}

Extent TransformCursor::Peek() const noexcept {
  const Extent extent = batch_[next_];
  return {extent.offset, std::min(extent.length, capacity() - extent.offset)};
}

void TransformCursor::CopyInput(ExtentBatch& batch, size_t count) noexcept {
  if (count == 0) return;
  std::copy_n(InputOffsets(), count, batch.mutable_offsets() + batch.size());
  std::copy_n(InputLengths(), count, batch.mutable_lengths() + batch.size());
  batch.set_size(batch.size() + count);
  uint64_t& length = batch.mutable_lengths()[batch.size() - 1];
  length = std::min(length, capacity() - batch.back().offset);
  Advance(count);
}

uint64_t TransformCursor::InputCovered() const noexcept {
  return HasInput() ? batch_[next_].offset : input_->covered();
}

absl::StatusOr<uint64_t> TransformCursor::DoNext(ExtentBatch& batch) {
  if (!HasInput() && !complete_) {
    absl::StatusOr<Step> step = input_->Next(batch_);
    if (!step.ok()) return step.status();
    next_ = 0;
    complete_ = *step == Step::kComplete;
  }
  Consume(batch);
  if (!HasInput() && complete_ && !batch.full() && Flush(batch)) return capacity();
  return Coverage();
}

absl::Status PrepareInput(const std::unique_ptr<ExtentCursor>& input, const char* transform) {
  if (input == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(transform, ": no input cursor"));
  }
  // Coverage 0 means that nothing was returned, so there is nothing to repeat.
  return input->covered() == 0 ? absl::OkStatus() : input->Seek(0);
}

}  // namespace cbt
