#include "source/input/time_limit.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"

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

std::chrono::milliseconds WaitingStep(const std::stop_token& stop) noexcept {
  return stop.stop_possible() ? std::chrono::milliseconds(50) : std::chrono::minutes(1);
}

absl::Status Stopped(const std::string& label) {
  return absl::CancelledError(absl::StrCat(label, ": reading it was stopped"));
}

absl::Status WaitReadable(int descriptor, std::chrono::steady_clock::time_point deadline,
                          const std::stop_token& stop, const std::string& label) {
  for (;;) {
    if (stop.stop_requested()) return Stopped(label);
    std::chrono::milliseconds step = WaitingStep(stop);
    if (deadline != std::chrono::steady_clock::time_point::max()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return TookTooLong(label);
      step = std::min(step, left);
    }
    struct pollfd waiting = {.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = Retry([&] { return ::poll(&waiting, 1, static_cast<int>(step.count())); });
    if (ready < 0) return FileError(label, errno);
    if (ready > 0) return absl::OkStatus();
  }
}

absl::Status TookTooLong(const std::string& label) {
  return absl::DeadlineExceededError(absl::StrCat(label, ": exceeded the time limit of a source"));
}

}  // namespace cbt
