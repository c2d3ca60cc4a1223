#include "rpc/provider/provider_cursor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/bitmap.h"
#include "cbt/units.h"

namespace cbt::rpc {
namespace {

// How many messages one Next() takes that hold nothing to return.
constexpr int kMessagesPerCall = 16;

// The common part: a call, where it was sought to, and its end.
class ProviderCursor : public ExtentCursor {
 public:
  ProviderCursor(std::shared_ptr<const ProviderQuestion> question,
                 std::unique_ptr<ProviderCall> call)
      : ExtentCursor(call->head().geometry),
        question_(std::move(question)),
        head_(call->head()),
        call_(std::move(call)) {}

 protected:
  // Forget the current part; the next one is the first of the call.
  virtual void Restart() = 0;
  // Everything below this offset has been taken from the call.
  virtual uint64_t taken() const = 0;
  // Appends extents that end after from() until the batch is full or the part is used up, which it
  // says: the coverage then, otherwise nothing.
  virtual absl::StatusOr<std::optional<uint64_t>> Use(ExtentBatch& batch) = 0;
  // Takes the part that has just arrived.
  virtual absl::Status Take(const AnswerPart& part) = 0;
  // OK if the answer may end here.
  virtual absl::Status CheckEnd() const = 0;

  const AnswerHead& head() const noexcept { return head_; }
  uint64_t from() const noexcept { return from_; }

 private:
  using Event = ProviderCall::Event;

  absl::Status DoSeek(uint64_t offset) final {
    const bool behind = call_ == nullptr || offset < taken();
    const bool skips = head_.starts_anywhere && offset > taken();
    if (behind || skips) {
      call_.reset();
      ended_ = false;
      absl::StatusOr<std::unique_ptr<ProviderCall>> call = ProviderCall::Open(*question_, offset);
      if (!call.ok()) return call.status();
      if (!head_.SameAs((*call)->head())) {
        return absl::AbortedError("provider: its answer has changed; start again from 0");
      }
      head_.begins_at = (*call)->head().begins_at;
      call_ = *std::move(call);
      Restart();
    }
    from_ = offset;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) final {
    absl::StatusOr<uint64_t> reached = Read(batch);
    // A Seek() after an error opens another answer, and does not go on after a refused part.
    if (!reached.ok()) call_.reset();
    return reached;
  }

  absl::StatusOr<uint64_t> Read(ExtentBatch& batch) {
    if (call_ == nullptr) return absl::UnavailableError("provider: its answer was given up");
    uint64_t reached = covered();
    for (int messages = 0; messages < kMessagesPerCall;) {
      const absl::StatusOr<std::optional<uint64_t>> used = Use(batch);
      if (!used.ok()) return used.status();
      // Of a full batch: what it holds is covered.
      if (!used->has_value()) return std::max(reached, batch.back().end());
      reached = std::max(reached, **used);
      if (reached == capacity()) break;
      // What is at hand should not wait for what may come late.
      if (!batch.empty()) return reached;
      const absl::StatusOr<Event> event = call_->Next();
      if (!event.ok()) return event.status();
      if (*event == Event::kNothing) return reached;
      if (*event == Event::kEnd) {
        // Nothing follows the last extent.
        ended_ = true;
        if (absl::Status status = CheckEnd(); !status.ok()) return status;
        return capacity();
      }
      if (absl::Status status = Take(call_->part()); !status.ok()) return status;
      ++messages;
    }
    if (reached != capacity()) return reached;
    // The last extents are at hand. They count only if the plugin says that it sent everything.
    while (!ended_) {
      const absl::StatusOr<Event> event = call_->Next();
      if (!event.ok()) return event.status();
      ended_ = *event == Event::kEnd;
      if (*event == Event::kPart &&
          (!call_->part().bitmap.empty() || !call_->part().offsets.empty())) {
        if (absl::Status status = Take(call_->part()); !status.ok()) return status;
        return ProviderBroken("it sent more than the volume holds");
      }
    }
    if (absl::Status status = CheckEnd(); !status.ok()) return status;
    return capacity();
  }

  const std::shared_ptr<const ProviderQuestion> question_;
  AnswerHead head_;
  std::unique_ptr<ProviderCall> call_;
  uint64_t from_ = 0;   // where it was sought to
  bool ended_ = false;  // the call has, with OK
};

class ProviderExtents final : public ProviderCursor {
 public:
  using ProviderCursor::ProviderCursor;

 private:
  void Restart() override {
    offsets_.clear();
    lengths_.clear();
    next_ = 0;
    end_ = covered_part_ = 0;
  }
  uint64_t taken() const override {
    return next_ < offsets_.size() ? offsets_[next_] : covered_part_;
  }

  absl::Status Take(const AnswerPart& part) override {
    uint64_t end = std::max(end_, covered_part_);
    for (size_t i = 0; i < part.offsets.size(); ++i) {
      const uint64_t offset = part.offsets[i];
      const uint64_t length = part.lengths[i];
      const bool inside = length > 0 && offset < capacity() && length <= capacity() - offset;
      if (!inside || offset < end || offset % granularity() != 0 ||
          (length % granularity() != 0 && offset + length != capacity())) {
        return ProviderBroken(
            absl::StrCat("the extent ", offset, "+", length,
                         inside ? (offset < end ? " begins before the end of what was sent"
                                                : " is not of whole granules")
                                : " is empty or ends past the capacity"));
      }
      end = offset + length;
    }
    if (part.covered != 0 && (part.covered < end || part.covered > capacity())) {
      return ProviderBroken(
          absl::StrCat("covered_bytes is ", part.covered, " after extents up to ", end));
    }
    offsets_.assign(part.offsets.begin(), part.offsets.end());
    lengths_.assign(part.lengths.begin(), part.lengths.end());
    next_ = 0;
    end_ = end;
    covered_part_ = std::max(end, part.covered);
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<uint64_t>> Use(ExtentBatch& batch) override {
    for (; next_ < offsets_.size(); ++next_) {
      const uint64_t end = offsets_[next_] + lengths_[next_];
      if (end <= from()) continue;
      if (batch.full()) return std::optional<uint64_t>();
      const uint64_t begin = std::max(offsets_[next_], from());
      batch.push_back({begin, end - begin});
    }
    return std::optional<uint64_t>(covered_part_);
  }

  absl::Status CheckEnd() const override { return absl::OkStatus(); }

  // The current part, checked.
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> lengths_;
  size_t next_ = 0;
  uint64_t end_ = 0;           // of the last extent
  uint64_t covered_part_ = 0;  // once the part is used up
};

class ProviderBitmap final : public ProviderCursor {
 public:
  ProviderBitmap(std::shared_ptr<const ProviderQuestion> question,
                 std::unique_ptr<ProviderCall> call)
      : ProviderCursor(std::move(question), std::move(call)) {
    Restart();
  }

 private:
  void Restart() override {
    inner_.reset();
    next_bit_ = head().begins_at / granularity();
  }
  uint64_t taken() const override {
    return inner_ != nullptr ? begin_ + inner_->covered() : OffsetOf(next_bit_);
  }
  uint64_t OffsetOf(uint64_t bit) const {
    return bit >= bit_count_ ? capacity() : bit * granularity();
  }

  absl::Status Take(const AnswerPart& part) override {
    if (part.bitmap.empty()) return absl::OkStatus();
    const uint64_t left = bit_count_ - std::min(bit_count_, next_bit_);
    if (part.bitmap.size() > BlockCount(left, 8)) {
      return ProviderBroken("its bitmap has more bits than the volume has blocks");
    }
    const uint64_t bits = std::min<uint64_t>(left, uint64_t{8} * part.bitmap.size());
    begin_ = OffsetOf(next_bit_);
    next_bit_ += bits;
    const uint64_t end = OffsetOf(next_bit_);
    using Order = BitmapFormat::BitOrder;
    absl::StatusOr<Bitmap> bitmap =
        Bitmap::Create(std::vector<uint8_t>(part.bitmap.begin(), part.bitmap.end()), 0, bits,
                       {.order = head().most_significant_first ? Order::kMostSignificantFirst
                                                               : Order::kLeastSignificantFirst,
                        .inverted = head().inverted});
    if (!bitmap.ok()) return bitmap.status();
    absl::StatusOr<std::unique_ptr<ExtentCursor>> inner =
        MakeBitmapCursor(*bitmap, {end - begin_, granularity()});
    if (!inner.ok()) return inner.status();
    inner_ = *std::move(inner);
    // A piece of the answer: a run that reaches its end goes on in the next one.
    inner_->AllowPieces();
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<uint64_t>> Use(ExtentBatch& batch) override {
    if (inner_ == nullptr) return std::optional<uint64_t>(OffsetOf(next_bit_));
    if (from() > begin_ + inner_->covered()) {
      const uint64_t within = std::min(from() - begin_, inner_->capacity());
      if (absl::Status status = inner_->Seek(within); !status.ok()) return status;
    }
    const absl::StatusOr<Step> step = inner_->Next(batch);
    if (!step.ok()) return step.status();
    uint64_t* const offsets = batch.mutable_offsets();
    for (size_t i = 0; i < batch.size(); ++i) offsets[i] += begin_;
    const uint64_t reached = begin_ + inner_->covered();
    if (*step == Step::kComplete) inner_.reset();
    return std::optional<uint64_t>(reached);
  }

  absl::Status CheckEnd() const override {
    if (next_bit_ >= bit_count_) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("provider: its bitmap ended after ", next_bit_, " of ",
                                            bit_count_, " blocks"));
  }

  const uint64_t bit_count_ = BlockCount(geometry());
  std::unique_ptr<ExtentCursor> inner_;  // of the current part; null: used up
  uint64_t begin_ = 0;                   // of the current part, bytes
  uint64_t next_bit_ = 0;                // the first bit of the next part
};

}  // namespace

std::unique_ptr<ExtentCursor> MakeProviderCursor(std::shared_ptr<const ProviderQuestion> question,
                                                 std::unique_ptr<ProviderCall> call) {
  if (call->head().content == AnswerContent::kBitmap) {
    return std::make_unique<ProviderBitmap>(std::move(question), std::move(call));
  }
  return std::make_unique<ProviderExtents>(std::move(question), std::move(call));
}

}  // namespace cbt::rpc
