// Transforms over several cursors: Union, Intersect and Subtract.
//
// Each step works on a window of the volume that ends at the horizon, up to which every input has
// been read. Extents are cut at its end; the Uniter joins them again. Starts and ends of all inputs
// are merged as plain numbers (see simd/tuples/sorted_extents.h).
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"
#include "core/transform.h"
#include "core/uniter.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

enum class SetOperation { kUnion, kIntersection, kDifference };

// Approximate number of extents of all inputs in a window: merging should stay in the cache.
constexpr size_t kWindowExtents = 4096;

using simd::SortedBounds;

// An input and its buffered extents: at least a batch, so that windows are no shorter.
class Input {
 public:
  Input(std::unique_ptr<ExtentCursor> cursor, size_t batch_capacity)
      : cursor_(std::move(cursor)),
        batch_(batch_capacity),
        starts_(2 * batch_capacity),
        ends_(2 * batch_capacity) {}

  absl::Status Seek(uint64_t offset) {
    next_ = size_ = 0;
    return cursor_->Seek(offset);
  }

  // Reads a batch if less than one is buffered.
  absl::Status Refill() {
    if (size_ - next_ >= batch_.capacity() || covered() == cursor_->capacity()) {
      return absl::OkStatus();
    }
    std::copy(starts_.begin() + Index(next_), starts_.begin() + Index(size_), starts_.begin());
    std::copy(ends_.begin() + Index(next_), ends_.begin() + Index(size_), ends_.begin());
    size_ -= std::exchange(next_, 0);
    absl::StatusOr<Step> step = cursor_->Next(batch_);
    if (!step.ok()) return step.status();
    simd::SortedExtents().bounds(batch_.offsets().data(), batch_.lengths().data(), batch_.size(), 1,
                                 starts_.data() + size_, ends_.data() + size_);
    size_ += batch_.size();
    // The last block of a fixed-block input may extend past the capacity.
    if (size_ > 0) ends_[size_ - 1] = std::min(ends_[size_ - 1], cursor_->capacity());
    return absl::OkStatus();
  }

  uint64_t covered() const noexcept { return cursor_->covered(); }

  // The extents in [begin, end), cut there; valid until Take() is called.
  SortedBounds Window(uint64_t begin, uint64_t end) noexcept {
    while (next_ < size_ && ends_[next_] <= begin) ++next_;
    if (next_ < size_) starts_[next_] = std::max(starts_[next_], begin);
    last_ = static_cast<size_t>(
        std::lower_bound(starts_.begin() + Index(next_), starts_.begin() + Index(size_), end) -
        starts_.begin());
    // Only the last one can extend past the end: extents don't overlap.
    cut_ = last_ > next_ && ends_[last_ - 1] > end;
    if (cut_) rest_ = std::exchange(ends_[last_ - 1], end);
    return {starts_.data() + next_, ends_.data() + next_, last_ - next_};
  }

  // Consumes the window; what extends past it stays buffered.
  void Take() noexcept {
    next_ = last_;
    if (!cut_) return;
    --next_;
    starts_[next_] = ends_[next_];
    ends_[next_] = rest_;
  }

 private:
  static std::ptrdiff_t Index(size_t index) noexcept { return static_cast<std::ptrdiff_t>(index); }

  std::unique_ptr<ExtentCursor> cursor_;
  ExtentBatch batch_;
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  size_t next_ = 0;
  size_t size_ = 0;
  size_t last_ = 0;    // end of the window
  bool cut_ = false;   // its last extent continues, to
  uint64_t rest_ = 0;  // here
};

class SetCursor final : public ExtentCursor {
 public:
  SetCursor(std::vector<std::unique_ptr<ExtentCursor>> inputs, uint64_t granularity,
            SetOperation operation)
      : ExtentCursor({.capacity = inputs.front()->capacity(), .granularity = granularity}),
        operation_(operation),
        uniter_(0) {
    const size_t each = std::clamp<size_t>(kWindowExtents / inputs.size(), 64, 1024);
    inputs_.reserve(inputs.size());
    for (auto& input : inputs) inputs_.emplace_back(std::move(input), each);
    lists_.resize(inputs_.size());
  }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    uniter_.Reset(offset);
    passed_ = offset;
    for (Input& input : inputs_) {
      if (absl::Status status = input.Seek(offset); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (!uniter_.waiting() && passed_ < capacity()) {
      if (absl::Status status = NextWindow(); !status.ok()) return status;
    }
    uniter_.MoveTo(batch);
    // What was held back at the end of the last window is still to be returned.
    if (passed_ == capacity() && !uniter_.waiting() && !batch.full()) {
      uniter_.Finish();
      uniter_.MoveTo(batch);
    }
    return uniter_.Pending(passed_);
  }

  // Processes the next window, and moves passed_ to its end.
  absl::Status NextWindow() {
    uint64_t horizon = capacity();
    for (Input& input : inputs_) {
      if (absl::Status status = input.Refill(); !status.ok()) return status;
      horizon = std::min(horizon, input.covered());
    }
    // After Seek(), inputs of a coarser granularity begin below the position.
    if (horizon <= passed_) return absl::OkStatus();
    size_t count = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      lists_[i] = inputs_[i].Window(passed_, horizon);
      count += lists_[i].count;
    }
    if (operation_ == SetOperation::kDifference) {
      lists_[1] = Gaps(lists_[1], horizon);
      ++count;
    }
    const size_t places = count + simd::kSortedSlack;
    uniter_.Reserve(places);
    if (operation_ == SetOperation::kUnion) {
      MergeAll(uniter_.starts(), uniter_.ends(), places);
    } else {
      if (starts_.size() < places) starts_.resize(places);
      if (ends_.size() < places) ends_.resize(places);
      MergeAll(starts_.data(), ends_.data(), places);
      // Offsets go to the starts, lengths to where the ends are computed.
      count = simd::SortedExtents().overlap(starts_.data(), ends_.data(), count, uniter_.starts(),
                                            uniter_.ends());
      for (size_t i = 0; i < count; ++i) uniter_.ends()[i] += uniter_.starts()[i];
    }
    uniter_.Unite(count, horizon);
    for (Input& input : inputs_) input.Take();
    passed_ = horizon;
    return absl::OkStatus();
  }

  // The gaps of the list in [passed_, horizon). Empty gaps are harmless.
  SortedBounds Gaps(const SortedBounds& list, uint64_t horizon) {
    gap_starts_.assign(1, passed_);
    gap_starts_.insert(gap_starts_.end(), list.ends, list.ends + list.count);
    gap_ends_.assign(list.starts, list.starts + list.count);
    gap_ends_.push_back(horizon);
    return {gap_starts_.data(), gap_ends_.data(), gap_starts_.size()};
  }

  // Merges all lists pairwise into `starts` and `ends`, which have room for `places` numbers.
  void MergeAll(uint64_t* starts, uint64_t* ends, size_t places) {
    const simd::SortedExtentsKernels& kernels = simd::SortedExtents();
    round_ = lists_;
    const size_t need = places + simd::kSortedSlack * round_.size();
    for (size_t side = 0; round_.size() > 1; side ^= 1) {
      // The last round writes to the result, the others alternate between two buffers.
      for (std::vector<uint64_t>& scratch : scratch_[side]) {
        if (scratch.size() < need) scratch.resize(need);
      }
      uint64_t* to_starts = round_.size() == 2 ? starts : scratch_[side][0].data();
      uint64_t* to_ends = round_.size() == 2 ? ends : scratch_[side][1].data();
      size_t kept = 0;
      for (size_t i = 0; i < round_.size(); i += 2) {
        const SortedBounds a = round_[i];
        const SortedBounds b =
            i + 1 < round_.size() ? round_[i + 1] : SortedBounds{a.starts, a.ends, 0};
        kernels.merge(a, b, to_starts, to_ends);
        round_[kept++] = {to_starts, to_ends, a.count + b.count};
        to_starts += a.count + b.count + simd::kSortedSlack;
        to_ends += a.count + b.count + simd::kSortedSlack;
      }
      round_.resize(kept);
    }
    const SortedBounds& all = round_.front();
    if (all.starts == starts) return;
    std::copy_n(all.starts, all.count, starts);
    std::copy_n(all.ends, all.count, ends);
  }

  const SetOperation operation_;
  std::vector<Input> inputs_;
  std::vector<SortedBounds> lists_;  // the window's part of each input
  std::vector<SortedBounds> round_;
  std::vector<uint64_t> scratch_[2][2];  // side, starts and ends
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> gap_starts_;
  std::vector<uint64_t> gap_ends_;
  Uniter uniter_;
  uint64_t passed_ = 0;  // the end of the last window
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> Make(
    std::vector<std::unique_ptr<ExtentCursor>> inputs, SetOperation operation, const char* name) {
  if (inputs.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": no input cursor"));
  uint64_t granularity = 0;
  for (const auto& input : inputs) {
    if (absl::Status status = PrepareInput(input, name); !status.ok()) return status;
    if (input->capacity() != inputs.front()->capacity()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": inputs have different capacities, ",
                                                     inputs.front()->capacity(), " and ",
                                                     input->capacity()));
    }
    granularity = std::gcd(granularity, input->granularity());
  }
  return std::make_unique<SetCursor>(std::move(inputs), granularity, operation);
}

std::vector<std::unique_ptr<ExtentCursor>> Pair(std::unique_ptr<ExtentCursor> a,
                                                std::unique_ptr<ExtentCursor> b) {
  std::vector<std::unique_ptr<ExtentCursor>> inputs;
  inputs.push_back(std::move(a));
  inputs.push_back(std::move(b));
  return inputs;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> Union(
    std::vector<std::unique_ptr<ExtentCursor>> inputs) {
  return Make(std::move(inputs), SetOperation::kUnion, "union");
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> Intersect(std::unique_ptr<ExtentCursor> a,
                                                        std::unique_ptr<ExtentCursor> b) {
  return Make(Pair(std::move(a), std::move(b)), SetOperation::kIntersection, "intersect");
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> Subtract(std::unique_ptr<ExtentCursor> a,
                                                       std::unique_ptr<ExtentCursor> b) {
  return Make(Pair(std::move(a), std::move(b)), SetOperation::kDifference, "subtract");
}

}  // namespace cbt
