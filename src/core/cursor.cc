#include "cbt/cursor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cbt {

absl::Status CheckGeometry(const VolumeGeometry& geometry) {
  const auto [capacity, granularity] = geometry;
  if (capacity > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("capacity ", capacity, " is over the limit of ", kMaxCapacity, " bytes"));
  }
  if (granularity == 0 || granularity > kMaxGranularity) {
    return absl::InvalidArgumentError(
        absl::StrCat("granularity ", granularity, " is not between 1 and ", kMaxGranularity));
  }
  return absl::OkStatus();
}

absl::Status ExtentCursor::Seek(uint64_t offset) {
  if (offset > capacity()) {
    return absl::OutOfRangeError(
        absl::StrCat("offset ", offset, " is past the capacity ", capacity()));
  }
  // capacity() is one past the end: there is nothing to seek in the source.
  if (offset == capacity()) {
    covered_ = capacity();
    interrupted_ = false;
    failure_ = absl::OkStatus();
    return absl::OkStatus();
  }
  const uint64_t position = AlignDown(offset, granularity());
  interrupted_ = true;
  failure_ = DoSeek(position);
  interrupted_ = false;
  if (failure_.ok()) covered_ = position;
  return failure_;
}

absl::StatusOr<Step> ExtentCursor::Next(ExtentBatch& batch) {
  batch.clear();
  if (!failure_.ok()) return failure_;
  if (interrupted_) {
    // When the source threw, it may already have consumed input that it would not return now. A
    // flag, because creating a status before each call would cost every call that does not throw.
    failure_ = absl::InternalError(absl::StrCat(
        "the cursor was interrupted by an exception at offset ", covered_, " of ", capacity()));
    return failure_;
  }
  if (covered_ == capacity()) return Step::kComplete;
  interrupted_ = true;
  absl::StatusOr<uint64_t> covered = DoNext(batch);
  if (!covered.ok()) {
    batch.clear();
    failure_ = covered.status();
    return failure_;
  }
  // An implementation must never move coverage past an extent that it returns later, nor return an
  // extent that it has not covered: either would let a stream end with blocks missing.
  const bool sound =
      *covered >= covered_ && *covered <= capacity() &&
      (batch.empty() || (batch.front().offset >= covered_ && batch.back().offset < capacity() &&
                         std::min(batch.back().end(), capacity()) <= *covered));
  if (!sound) {
    failure_ = absl::InternalError(absl::StrCat(
        "cursor broke its contract: coverage ", covered_, " to ", *covered, " of ", capacity(),
        batch.empty() ? std::string(" without extents")
                      : absl::StrCat(" with extents from ", batch.front().offset, " to ",
                                     batch.back().end())));
    batch.clear();
    return failure_;
  }
  covered_ = *covered;
  interrupted_ = false;
  return covered_ == capacity() ? Step::kComplete : Step::kMore;
}

absl::Status ForEachBatch(ExtentCursor& cursor,
                          const std::function<absl::Status(const ExtentBatch&)>& use,
                          size_t batch_capacity) {
  ExtentBatch batch(batch_capacity);
  for (;;) {
    absl::StatusOr<Step> step = cursor.Next(batch);
    if (!step.ok()) return step.status();
    if (absl::Status status = use(batch); !status.ok()) return status;
    if (*step == Step::kComplete) return absl::OkStatus();
  }
}

}  // namespace cbt
