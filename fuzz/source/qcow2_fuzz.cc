// Untrusted bytes as a qcow2 image, and as its backing file: every cursor gives an error or a valid
// answer, the same from its middle, within bounded work and memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/source/qcow2.h"
#include "fuzz/support/check.h"

namespace {

// The most calls of Next() on a cursor: hostile tables could take hours.
constexpr int kCalls = 6;
constexpr size_t kMaxExtents = 1 << 14;

using Opened = absl::StatusOr<std::shared_ptr<const cbt::Image>>;
using Cursor = absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>>;

Opened FileOf(const uint8_t* data, size_t size, uint64_t holes) {
  const int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  CBT_FUZZ_CHECK(descriptor >= 0);
  // Tables may point past the input, into a hole.
  CBT_FUZZ_CHECK(ftruncate(descriptor, static_cast<off_t>(size + holes)) == 0);
  CBT_FUZZ_CHECK(pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size));
  return cbt::Image::FromDescriptor(descriptor, "fuzz");
}

struct Answer {
  std::vector<cbt::Extent> extents;
  uint64_t covered = 0;
};

// Runs a cursor for a while; nullopt if it fails.
std::optional<Answer> Run(cbt::ExtentCursor& cursor, size_t batch_capacity) {
  Answer answer;
  answer.covered = cursor.covered();
  cbt::ExtentBatch batch(batch_capacity);
  for (int i = 0; i < kCalls && answer.extents.size() < kMaxExtents; ++i) {
    const auto step = cursor.Next(batch);
    CBT_FUZZ_CHECK(step.status().code() != absl::StatusCode::kInternal);
    if (!step.ok()) return std::nullopt;
    for (size_t k = 0; k < batch.size(); ++k) {
      CBT_FUZZ_CHECK(batch[k].length > 0 && batch[k].end() <= cursor.capacity());
      // Extents are maximal: none touches the previous one.
      CBT_FUZZ_CHECK(answer.extents.empty() || answer.extents.back().end() < batch[k].offset);
      answer.extents.push_back(batch[k]);
    }
    CBT_FUZZ_CHECK(cursor.covered() >= answer.covered);
    answer.covered = cursor.covered();
    if (*step == cbt::Step::kComplete) break;
  }
  return answer;
}

// The part of an answer in [begin, end).
std::vector<cbt::Extent> Cut(const Answer& answer, uint64_t begin, uint64_t end) {
  std::vector<cbt::Extent> extents;
  for (const cbt::Extent& extent : answer.extents) {
    const uint64_t from = std::max(extent.offset, begin);
    const uint64_t to = std::min(extent.end(), end);
    if (from < to) extents.push_back({from, to - from});
  }
  return extents;
}

void Check(const Cursor& cursor, uint64_t seed) {
  if (!cursor.ok()) {
    CBT_FUZZ_CHECK(!cursor.status().message().empty());
    return;
  }
  const auto whole = Run(**cursor, 1000);
  if (!whole || whole->covered == 0) return;
  const uint64_t offset =
      seed % whole->covered / (*cursor)->granularity() * (*cursor)->granularity();
  if (!(*cursor)->Seek(offset).ok()) return;
  const auto rest = Run(**cursor, 3);
  // An image that was read to the end once must not fail later.
  CBT_FUZZ_CHECK(rest.has_value() || whole->covered < (*cursor)->capacity());
  if (!rest) return;
  const uint64_t end = std::min(whole->covered, rest->covered);
  CBT_FUZZ_CHECK(Cut(*whole, offset, end) == Cut(*rest, offset, end));
}

// The delta must report every range where one state has data and the other has none.
void CheckAgainstAllocation(const cbt::Qcow2State& base, const cbt::Qcow2State& target) {
  const Cursor delta = cbt::MakeQcow2DeltaCursor(base, target);
  const Cursor before = cbt::MakeQcow2AllocationCursor(base);
  const Cursor after = cbt::MakeQcow2AllocationCursor(target);
  if (!delta.ok() || !before.ok() || !after.ok()) return;
  const auto changed = Run(**delta, 1000);
  const auto old_data = Run(**before, 1000);
  const auto new_data = Run(**after, 1000);
  if (!changed || !old_data || !new_data) return;
  const uint64_t end = std::min({changed->covered, old_data->covered, new_data->covered});
  const auto covers = [](const std::vector<cbt::Extent>& extents, uint64_t at) {
    const auto next = std::upper_bound(
        extents.begin(), extents.end(), at,
        [](uint64_t offset, const cbt::Extent& extent) { return offset < extent.offset; });
    return next != extents.begin() && at < std::prev(next)->end();
  };
  std::vector<uint64_t> edges;
  for (const Answer* answer : {&*changed, &*old_data, &*new_data}) {
    for (const cbt::Extent& extent : answer->extents) {
      edges.push_back(extent.offset);
      edges.push_back(extent.end());
    }
  }
  for (const uint64_t at : edges) {
    if (at >= end) continue;
    if (covers(old_data->extents, at) != covers(new_data->extents, at)) {
      CBT_FUZZ_CHECK(covers(changed->extents, at));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  // Options; how much of the rest is the backing file; the size of the hole after it.
  const uint8_t flags = data[0];
  const size_t below = std::min<size_t>(size_t{data[1]} * 512, size - 4);
  const uint64_t holes = (flags & 1) != 0 ? uint64_t{data[2]} << (data[3] % 24) : 0;
  const uint8_t* const top = data + 4;
  const size_t top_size = size - 4 - below;
  const uint64_t seed = uint64_t{data[2]} * 0x9e3779b97f4a7c15 + data[3];

  // A single file, however often it is opened: states are compared by the data that they share.
  const Opened base_file = FileOf(top + top_size, below, 0);
  CBT_FUZZ_CHECK(base_file.ok());
  cbt::Qcow2Options options;
  options.follow_backing = (flags & 2) == 0;
  options.max_depth = 4;
  options.open_backing = [&](const std::string&, const std::string&) { return base_file; };
  static_cast<void>(cbt::LooksLikeQcow2({top, top_size}));
  const Opened file = FileOf(top, top_size, holes);
  CBT_FUZZ_CHECK(file.ok());
  const auto image = cbt::Qcow2Image::FromImage(*file, "", options);
  if (!image.ok()) {
    CBT_FUZZ_CHECK(!image.status().message().empty());
    return 0;
  }
  std::vector<cbt::Qcow2State> states = {{*image, std::nullopt}};
  for (const cbt::Qcow2Snapshot& snapshot : (*image)->snapshots()) {
    if (states.size() < 3) states.push_back({*image, snapshot.id});
  }
  if ((flags & 4) != 0) {
    // The backing file as a separate state.
    const auto base = cbt::Qcow2Image::FromImage(*base_file, "", options);
    if (base.ok()) states.push_back({*base, std::nullopt});
  }
  for (const cbt::Qcow2State& state : states) {
    Check(cbt::MakeQcow2AllocationCursor(state), seed);
    Check(cbt::MakeQcow2LayerCursor(state), seed);
    Check(cbt::MakeQcow2DeltaCursor(states.front(), state), seed);
    Check(cbt::MakeQcow2DeltaCursor(state, states.front()), seed);
    CheckAgainstAllocation(states.front(), state);
  }
  const auto bitmaps = (*image)->ListBitmaps();
  if (bitmaps.ok()) {
    for (size_t i = 0; i < bitmaps->size() && i < 3; ++i) {
      Check(cbt::MakeQcow2BitmapCursor(*image, (*bitmaps)[i].name), seed);
    }
  }
  return 0;
}
