#include "map/unchanged_cursor.h"

#include <utility>

namespace cbt {
namespace {

class UnchangedCursor final : public ExtentCursor {
 public:
  UnchangedCursor(std::unique_ptr<ExtentCursor> input,
                  std::vector<std::shared_ptr<const MappedFile>> files)
      : ExtentCursor(input->geometry()), files_(std::move(files)), input_(std::move(input)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override { return input_->Seek(offset); }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    if (*step == Step::kComplete) {
      for (const auto& file : files_) {
        if (absl::Status status = file->CheckUnchanged(); !status.ok()) return status;
      }
    }
    return input_->covered();
  }

  const std::vector<std::shared_ptr<const MappedFile>> files_;
  const std::unique_ptr<ExtentCursor> input_;
};

}  // namespace

std::unique_ptr<ExtentCursor> WhileUnchanged(std::unique_ptr<ExtentCursor> input,
                                             std::vector<std::shared_ptr<const MappedFile>> files) {
  return std::make_unique<UnchangedCursor>(std::move(input), std::move(files));
}

}  // namespace cbt
