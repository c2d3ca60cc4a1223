#include "map/range_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "map/container.h"
#include "map/map_limit.h"

namespace cbt {

absl::Status RangeWriter::Add(uint64_t begin, uint64_t end) {
  // Merging it with the last range, or adding it as it is, would lose blocks.
  if (begin < begin_ || end < begin) {
    return absl::InternalError(absl::StrCat("blocks ", begin, " to ", end,
                                            " come after others that begin at ", begin_,
                                            ": they are out of order"));
  }
  if (begin_ != end_ && begin <= end_) {
    end_ = std::max(end_, end);
    return absl::OkStatus();
  }
  const uint64_t last_begin = begin_;
  const uint64_t last_end = end_;
  begin_ = begin;
  end_ = end;
  return Write(last_begin, last_end);
}

absl::Status RangeWriter::Write(uint64_t begin, uint64_t end) {
  if (begin == end) return absl::OkStatus();
  // The part in the first container, whole containers, the rest.
  const uint64_t first_end = std::min(end, ((begin >> kContainerShift) + 1) << kContainerShift);
  AddToContainer(begin, first_end);
  if (first_end == end) return absl::OkStatus();
  // Fail before allocating memory: a full container takes 14 bytes.
  if ((end - first_end) >> kContainerShift > MapLimit::Current() / 14) {
    return PortableWriter::TooLarge();
  }
  for (begin = first_end; end - begin >= kContainerBlocks; begin += kContainerBlocks) {
    CloseContainer();
    writer_.AddFull(begin >> kContainerShift);
  }
  if (writer_.too_large()) return PortableWriter::TooLarge();
  if (begin < end) AddToContainer(begin, end);
  return absl::OkStatus();
}

void RangeWriter::AddToContainer(uint64_t begin, uint64_t end) {
  const uint64_t key = begin >> kContainerShift;
  if (key != key_) CloseContainer();
  key_ = key;
  pairs_.push_back(static_cast<uint16_t>(begin));
  pairs_.push_back(static_cast<uint16_t>(end - begin - 1));
  cardinality_ += static_cast<uint32_t>(end - begin);
}

void RangeWriter::CloseContainer() {
  if (pairs_.empty()) return;
  writer_.AddRuns(key_, pairs_.data(), static_cast<uint32_t>(pairs_.size() / 2), cardinality_);
  pairs_.clear();
  cardinality_ = 0;
}

absl::StatusOr<std::vector<uint8_t>> RangeWriter::Finish() {
  if (absl::Status status = Write(begin_, end_); !status.ok()) return status;
  CloseContainer();
  return writer_.Finish();
}

}  // namespace cbt
