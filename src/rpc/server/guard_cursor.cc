#include "rpc/server/guard_cursor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"

namespace cbt::rpc {
namespace {

class GuardCursor final : public ExtentCursor {
 public:
  explicit GuardCursor(std::unique_ptr<ExtentCursor> input)
      : ExtentCursor(input->geometry()), input_(std::move(input)) {}

 private:
  void DoAllowPieces() override { input_->AllowPieces(); }
  bool DoReturnBlocks(uint64_t block_size) override {
    if (!input_->ReturnBlocks(block_size)) return false;
    block_size_ = block_size;
    return true;
  }

  absl::Status DoSeek(uint64_t offset) override {
    end_ = 0;
    return input_->Seek(offset);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    if (batch.empty()) return input_->covered();
    if (IsSound(batch)) {
      end_ = batch.back().end();
      return input_->covered();
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      if (block_size_ != 0) {
        if (IsSoundBlock(extent)) {
          end_ = extent.end();
          continue;
        }
        return Broken(extent);
      }
      // Compares lengths before adding to them, so that sums can't wrap.
      const bool past = extent.offset >= capacity() || extent.length > capacity() - extent.offset;
      if (extent.length == 0 || extent.offset < end_ || (past && !CutLastBlock(batch, i))) {
        return Broken(extent);
      }
      end_ = batch[i].end();
    }
    return input_->covered();
  }

  // Checks the whole batch at once; false only means that it needs a closer look.
  bool IsSound(const ExtentBatch& batch) const noexcept {
    simd::TupleRules rules = {
        .floor = end_, .capacity = capacity(), .most_end = capacity(), .size = 0};
    if (block_size_ != 0) {
      if (!IsPowerOfTwo(block_size_)) return false;
      rules.most_end = AlignUp(capacity(), block_size_);
      rules.size = block_size_;
    }
    const simd::TupleCheck check = simd::CheckTuples().check(
        batch.offsets().data(), batch.lengths().data(), batch.size(), rules);
    // Only aligned offsets have no bit below a power of two.
    return check.sound && (block_size_ == 0 || (check.offset_bits & (block_size_ - 1)) == 0);
  }

  bool IsSoundBlock(const Extent& block) const noexcept {
    return block.length == block_size_ && block.offset % block_size_ == 0 && block.offset >= end_ &&
           block.offset < capacity();
  }

  absl::Status Broken(const Extent& extent) const {
    return absl::InternalError(absl::StrCat(
        "the provider's cursor broke its contract: extent (offset ", extent.offset, ", length ",
        extent.length, ") after an extent that ended at ", end_, ", capacity ", capacity()));
  }

  // Cuts the block of a fixed-block cursor that holds the last bytes of the volume.
  bool CutLastBlock(ExtentBatch& batch, size_t index) noexcept {
    const Extent extent = batch[index];
    if (index + 1 != batch.size() || extent.offset >= capacity() || extent.length > granularity()) {
      return false;
    }
    batch.mutable_lengths()[index] = capacity() - extent.offset;
    return true;
  }

  const std::unique_ptr<ExtentCursor> input_;
  uint64_t end_ = 0;         // of the last extent
  uint64_t block_size_ = 0;  // bytes; 0: extents
};

}  // namespace

std::unique_ptr<ExtentCursor> MakeGuardCursor(std::unique_ptr<ExtentCursor> input) {
  return std::make_unique<GuardCursor>(std::move(input));
}

}  // namespace cbt::rpc
