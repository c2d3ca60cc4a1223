#include "cbt/batch.h"

#include <new>

namespace cbt {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kWordsPerLine = 64 / sizeof(uint64_t);

}  // namespace

void ExtentBatch::AlignedDelete::operator()(uint64_t* memory) const noexcept {
  ::operator delete[](memory, kAlignment);
}

ExtentBatch::ExtentBatch(size_t capacity) : capacity_(capacity == 0 ? 1 : capacity) {
  // The lengths start on their own cache line.
  const size_t stride = (capacity_ + kSlack + kWordsPerLine - 1) / kWordsPerLine * kWordsPerLine;
  memory_.reset(new (kAlignment) uint64_t[2 * stride]);
  offsets_ = memory_.get();
  lengths_ = memory_.get() + stride;
}

}  // namespace cbt
