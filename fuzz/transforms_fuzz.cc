// Chains of transforms under random seeks against sets of bytes.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cbt/bitmap.h"
#include "cbt/transform.h"
#include "check.h"
#include "reference/volume.h"
#include "support/cursors.h"

namespace {

using cbt::ExtentCursor;
using cbt::reference::ByteSet;
using cbt::reference::Ranges;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  // A bitmap of up to 300 blocks, at any bit offset.
  const auto granularity = in.ConsumeIntegralInRange<size_t>(1, 5);
  const auto blocks = in.ConsumeIntegralInRange<size_t>(1, 300);
  const auto first_bit = in.ConsumeIntegralInRange<size_t>(0, 70);
  const size_t capacity =
      blocks * granularity - in.ConsumeIntegralInRange<size_t>(0, granularity - 1);
  const size_t batch = in.ConsumeIntegralInRange<size_t>(1, 70);
  std::vector<uint8_t> bytes((first_bit + blocks + 7) / 8, in.ConsumeBool() ? 0xff : 0);
  const auto noise = in.ConsumeBytes<uint8_t>(in.ConsumeIntegralInRange<size_t>(0, bytes.size()));
  for (size_t i = 0; i < noise.size(); ++i) bytes[i] = noise[i];
  ByteSet set(capacity);
  for (size_t i = 0; i < capacity; ++i) {
    const size_t bit = first_bit + i / granularity;
    set[i] = (bytes[bit / 8] >> (bit % 8) & 1) != 0;
  }
  const auto view = *cbt::BitmapView::Create(bytes, first_bit, blocks);
  auto cursor = *cbt::MakeBitmapCursor(view, capacity, granularity);

  for (int stages = in.ConsumeIntegralInRange<int>(0, 5); stages > 0; --stages) {
    switch (in.ConsumeIntegralInRange<int>(0, 3)) {
      case 0: {
        const auto gap = in.ConsumeIntegralInRange<uint64_t>(0, 40);
        cursor = *cbt::Coalesce(std::move(cursor), gap);
        set = cbt::reference::Bridged(set, gap);
        break;
      }
      case 1: {
        const auto alignment = in.ConsumeIntegralInRange<size_t>(1, 40);
        cursor = *cbt::AlignOutward(std::move(cursor), alignment);
        set = cbt::reference::RoundedOutward(set, alignment);
        break;
      }
      case 2: {
        const uint64_t length = cursor->granularity() * in.ConsumeIntegralInRange<uint64_t>(1, 9);
        cursor = *cbt::Split(std::move(cursor), length);
        break;
      }
      default: {
        const auto begin = in.ConsumeIntegralInRange<uint64_t>(0, capacity);
        const auto end = in.ConsumeIntegralInRange<uint64_t>(begin, capacity);
        cursor = *cbt::Clip(std::move(cursor), begin, end);
        set = cbt::reference::Window(set, begin, end);
        break;
      }
    }
  }
  const bool to_blocks = in.ConsumeBool();
  const auto block = in.ConsumeIntegralInRange<size_t>(1, 40);
  cursor = to_blocks ? *cbt::ToBlocks(std::move(cursor), block) : *cbt::Coalesce(std::move(cursor));
  const Ranges full =
      to_blocks ? cbt::reference::BlocksOf(set, block) : cbt::reference::RunsOf(set);

  CBT_FUZZ_CHECK(*cbt::test::Drain(*cursor, batch) == full);
  for (int seeks = in.ConsumeIntegralInRange<int>(0, 10); seeks > 0; --seeks) {
    const auto offset = in.ConsumeIntegralInRange<uint64_t>(0, capacity);
    const uint64_t position =
        offset == capacity ? offset : offset / cursor->granularity() * cursor->granularity();
    const Ranges want = position == capacity ? Ranges{} : cbt::reference::CutAt(full, position);
    CBT_FUZZ_CHECK(*cbt::test::DrainFrom(*cursor, offset, batch) == want);
    if (in.ConsumeBool()) {
      cbt::ExtentBatch left(batch);
      CBT_FUZZ_CHECK(cursor->Seek(offset).ok() && cursor->Next(left).ok());
    }
  }
  return 0;
}
