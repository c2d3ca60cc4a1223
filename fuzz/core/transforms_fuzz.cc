// Programs of transforms against sets of bytes. A stack holds cursors over bitmaps, lists and maps,
// each with the bytes that it must report. They are coalesced, aligned, cut, split, united,
// intersected and subtracted, and partly read in between. The final cursor is then called at
// random: after every call, everything below covered() has been reported, and nothing else.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/transform.h"
#include "fuzz/support/check.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"

namespace {

using cbt::ExtentCursor;
using cbt::reference::ByteSet;
using cbt::reference::Ranges;

// How an answer is cut into tuples.
enum class Form {
  kRuns,    // maximal
  kPieces,  // of maximal runs, from where the cursor was positioned
  kBlocks,  // of one size
  kAnyhow,  // the bytes are known, but not where tuples end
};

struct Item {
  std::unique_ptr<ExtentCursor> cursor;
  ByteSet set;
  Form form = Form::kRuns;
  uint64_t length = 0;  // of pieces and blocks
  bool left = false;    // partly read
};

// Returns a list a few extents at a time and covers more or less of the gap after them, as the
// input chooses: the ends of batches must not matter.
class StutteringCursor final : public ExtentCursor {
 public:
  StutteringCursor(Ranges ranges, uint64_t capacity, std::vector<uint8_t> choices)
      : ExtentCursor({.capacity = capacity, .granularity = 1}),
        ranges_(std::move(ranges)),
        choices_(std::move(choices)) {
    choices_.push_back(5);
  }

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }

  absl::StatusOr<uint64_t> DoNext(cbt::ExtentBatch& batch) override {
    const uint8_t choice = choices_[calls_++ % choices_.size()];
    uint64_t at = covered();
    auto next = std::find_if(ranges_.begin(), ranges_.end(),
                             [at](const auto& range) { return range.first + range.second > at; });
    for (int n = choice & 3; n > 0 && next != ranges_.end() && !batch.full(); --n, ++next) {
      const uint64_t begin = std::max(next->first, at);
      at = next->first + next->second;
      batch.push_back({begin, at - begin});
    }
    const uint64_t gap_end = next == ranges_.end() ? capacity() : std::max(next->first, at);
    switch (choice >> 2 & 3) {
      case 0:
        break;
      case 1:
        at = gap_end;
        break;
      default:
        at += (gap_end - at) * (choice >> 4) / 16;
        break;
    }
    if (at > covered()) return at;
    // No extent was returned: cover the whole gap, or return the extent that begins here.
    if (gap_end > at) return gap_end;
    const uint64_t end = next->first + next->second;
    batch.push_back({at, end - at});
    return end;
  }

  const Ranges ranges_;
  std::vector<uint8_t> choices_;
  size_t calls_ = 0;
};

// All data outlives the program.
class Program {
 public:
  Program(const uint8_t* data, size_t size) : in_(data, size) {}

  void Run() {
    capacity_ = in_.ConsumeIntegralInRange<size_t>(1, 900);
    Push();
    for (int n = in_.ConsumeIntegralInRange<int>(0, 12); n > 0; --n) Do();
    Item& item = stack_.back();
    if (item.form != Form::kAnyhow && in_.ConsumeBool()) {
      item.length = in_.ConsumeIntegralInRange<uint64_t>(1, 40);
      item.cursor = *cbt::ToBlocks(std::move(item.cursor), item.length);
      item.form = Form::kBlocks;
      item.left = false;
    }
    Ask(item);
  }

 private:
  static std::unique_ptr<ExtentCursor> Own(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
    CBT_FUZZ_CHECK(cursor.ok());
    return *std::move(cursor);
  }

  // A new cursor over a bitmap, at any bit offset; over a list; over a map.
  void Push() {
    const auto granularity = in_.ConsumeIntegralInRange<size_t>(1, 5);
    const size_t blocks = (capacity_ + granularity - 1) / granularity;
    const auto first_bit = in_.ConsumeIntegralInRange<size_t>(0, 70);
    auto& bytes = *bitmaps_.emplace_back(std::make_unique<std::vector<uint8_t>>(
        (first_bit + blocks + 7) / 8, in_.ConsumeBool() ? 0xff : 0));
    const auto noise =
        in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(0, bytes.size()));
    std::copy(noise.begin(), noise.end(), bytes.begin());
    Item item;
    item.set = ByteSet(capacity_);
    for (size_t i = 0; i < capacity_; ++i) {
      const size_t bit = first_bit + i / granularity;
      item.set[i] = (bytes[bit / 8] >> (bit % 8) & 1) != 0;
    }
    const auto view = *cbt::BitmapView::Create(bytes, first_bit, blocks);
    switch (in_.ConsumeIntegralInRange<int>(0, 4)) {
      case 0:
        item.cursor = Own(cbt::MakeBorrowedBitmapCursor(
            view, {.capacity = capacity_, .granularity = granularity}));
        break;
      case 1:
        item.cursor =
            cbt::test::CursorOver(cbt::reference::RunsOf(item.set), capacity_, granularity);
        break;
      case 2:
      case 3:
        item.cursor = std::make_unique<StutteringCursor>(
            cbt::reference::RunsOf(item.set), capacity_,
            in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(0, 30)));
        break;
      default:
        item.cursor =
            cbt::MakeChangeMapCursor(*cbt::ChangeMap::FromBitmap(view, {capacity_, granularity}));
        break;
    }
    stack_.push_back(std::move(item));
  }

  Item Pop() {
    Item item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }

  void Do() {
    Item& item = stack_.back();
    switch (in_.ConsumeIntegralInRange<int>(0, 9)) {
      case 0:
        if (stack_.size() < 4) Push();
        return;
      case 1: {
        const auto gap = in_.ConsumeIntegralInRange<uint64_t>(0, 40);
        item.cursor = Own(cbt::Coalesce(std::move(item.cursor), gap));
        item.set = cbt::reference::Bridged(item.set, gap);
        item.form = Form::kRuns;
        break;
      }
      case 2: {
        const auto alignment = in_.ConsumeIntegralInRange<size_t>(1, 40);
        item.cursor = Own(cbt::AlignOutward(std::move(item.cursor), alignment));
        item.set = cbt::reference::RoundedOutward(item.set, alignment);
        item.form = Form::kRuns;
        break;
      }
      case 3:
        item.length = item.cursor->granularity() * in_.ConsumeIntegralInRange<uint64_t>(1, 9);
        item.cursor = Own(cbt::Split(std::move(item.cursor), item.length));
        item.form = item.form == Form::kRuns ? Form::kPieces : Form::kAnyhow;
        break;
      case 4: {
        const auto begin = in_.ConsumeIntegralInRange<uint64_t>(0, capacity_);
        const auto end = in_.ConsumeIntegralInRange<uint64_t>(begin, capacity_);
        item.cursor = Own(cbt::Clip(std::move(item.cursor), begin, end));
        item.set = cbt::reference::Window(item.set, begin, end);
        if (item.form != Form::kRuns) item.form = Form::kAnyhow;
        break;
      }
      case 5:
        return Unite();
      case 6:
      case 7:
        return Combine(in_.ConsumeBool());
      default: {
        // Leave the cursor partly read: a transform over it must start from its beginning.
        cbt::ExtentBatch left(in_.ConsumeIntegralInRange<size_t>(1, 9));
        CBT_FUZZ_CHECK(item.cursor->Seek(in_.ConsumeIntegralInRange<uint64_t>(0, capacity_)).ok());
        CBT_FUZZ_CHECK(item.cursor->Next(left).ok());
        item.left = true;
        return;
      }
    }
    item.left = false;
  }

  void Unite() {
    std::vector<std::unique_ptr<ExtentCursor>> inputs;
    ByteSet set(capacity_);
    for (auto n = in_.ConsumeIntegralInRange<size_t>(1, stack_.size()); n > 0; --n) {
      Item item = Pop();
      for (size_t i = 0; i < capacity_; ++i) set[i] = set[i] || item.set[i];
      inputs.push_back(std::move(item.cursor));
    }
    stack_.push_back({Own(cbt::Union(std::move(inputs))), std::move(set)});
  }

  void Combine(bool subtract) {
    if (stack_.size() < 2) return;
    Item b = Pop();
    Item a = Pop();
    for (size_t i = 0; i < capacity_; ++i) a.set[i] = a.set[i] && b.set[i] != subtract;
    auto cursor = subtract ? cbt::Subtract(std::move(a.cursor), std::move(b.cursor))
                           : cbt::Intersect(std::move(a.cursor), std::move(b.cursor));
    stack_.push_back({Own(std::move(cursor)), std::move(a.set)});
  }

  // The expected tuples from `position` on; `full` is the complete answer.
  std::optional<Ranges> Wanted(const Item& item, const Ranges& full, uint64_t position) const {
    if (item.form == Form::kAnyhow) return std::nullopt;
    if (position == capacity_) return Ranges{};
    Ranges rest = cbt::reference::CutAt(full, position);
    return item.form == Form::kPieces ? cbt::reference::PiecesOf(rest, item.length) : rest;
  }

  void Ask(Item& item) {
    ExtentCursor& cursor = *item.cursor;
    if (item.left) CBT_FUZZ_CHECK(cursor.Seek(0).ok());
    const ByteSet reported = item.form == Form::kBlocks
                                 ? cbt::reference::RoundedOutward(item.set, item.length)
                                 : item.set;
    const Ranges full = item.form == Form::kBlocks ? cbt::reference::BlocksOf(item.set, item.length)
                                                   : cbt::reference::RunsOf(item.set);
    uint64_t position = 0;
    Ranges found;
    for (int calls = 0; calls < 60; ++calls) {
      if (calls > 0 && in_.ConsumeIntegralInRange<int>(0, 3) == 0) {
        const auto offset = in_.ConsumeIntegralInRange<uint64_t>(0, capacity_);
        CBT_FUZZ_CHECK(cursor.Seek(offset).ok());
        position =
            offset == capacity_ ? offset : offset / cursor.granularity() * cursor.granularity();
        found.clear();
      }
      const uint64_t before = cursor.covered();
      cbt::ExtentBatch batch(in_.ConsumeIntegralInRange<size_t>(1, 70));
      const auto step = cursor.Next(batch);
      CBT_FUZZ_CHECK(step.ok() && batch.size() <= batch.capacity());
      // Everything below covered() has been reported, and nothing else.
      CBT_FUZZ_CHECK(cursor.covered() >= before && cursor.covered() <= capacity_);
      uint64_t at = before;
      for (size_t i = 0; i < batch.size(); ++i) {
        const cbt::Extent extent = batch[i];
        CBT_FUZZ_CHECK(extent.length > 0 && extent.offset >= at && extent.offset < capacity_);
        for (; at < extent.offset; ++at) CBT_FUZZ_CHECK(!reported[at]);
        for (; at < std::min<uint64_t>(extent.end(), capacity_); ++at) CBT_FUZZ_CHECK(reported[at]);
        found.emplace_back(extent.offset, extent.length);
      }
      CBT_FUZZ_CHECK(at <= cursor.covered());
      for (; at < cursor.covered(); ++at) CBT_FUZZ_CHECK(!reported[at]);
      if (*step != cbt::Step::kComplete) continue;
      CBT_FUZZ_CHECK(cursor.covered() == capacity_);
      const auto wanted = Wanted(item, full, position);
      if (wanted.has_value()) CBT_FUZZ_CHECK(found == *wanted);
      if (in_.remaining_bytes() == 0) return;
    }
  }

  FuzzedDataProvider in_;
  size_t capacity_ = 0;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> bitmaps_;
  std::vector<Item> stack_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Program(data, size).Run();
  return 0;
}
