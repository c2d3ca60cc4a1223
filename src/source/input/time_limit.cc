#include "source/input/time_limit.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

class TimedCursor final : public ExtentCursor {
 public:
  TimedCursor(std::unique_ptr<ExtentCursor> input, std::chrono::milliseconds limit,
              std::string label)
      : ExtentCursor(input->geometry()),
        input_(std::move(input)),
        limit_(std::min<std::chrono::milliseconds>(limit, kLongestTime)),
        label_(std::move(label)) {}

 private:
  using Clock = std::chrono::steady_clock;

  absl::Status DoSeek(uint64_t offset) override {
    const Clock::time_point begin = Clock::now();
    absl::Status status = input_->Seek(offset);
    spent_ += Clock::now() - begin;
    return status;
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (spent_ >= limit_) return TookTooLong(label_);
    const Clock::time_point begin = Clock::now();
    const absl::StatusOr<Step> step = input_->Next(batch);
    spent_ += Clock::now() - begin;
    if (!step.ok()) return step.status();
    return input_->covered();
  }

  void DoAllowPieces() override { input_->AllowPieces(); }
  bool DoReturnBlocks(uint64_t block_size) override { return input_->ReturnBlocks(block_size); }

  const std::unique_ptr<ExtentCursor> input_;
  const std::chrono::milliseconds limit_;
  const std::string label_;
  Clock::duration spent_{0};
};

}  // namespace

std::unique_ptr<ExtentCursor> LimitTime(std::unique_ptr<ExtentCursor> input,
                                        std::chrono::milliseconds limit, std::string label) {
  return std::make_unique<TimedCursor>(std::move(input), limit, std::move(label));
}

absl::Status TookTooLong(const std::string& label) {
  return absl::DeadlineExceededError(absl::StrCat(label, ": exceeded the time limit of a source"));
}

}  // namespace cbt
