// GetMetadataAllocated and GetMetadataDelta as changed blocks.
#include <utility>

#include "absl/status/status.h"
#include "cbt/batch.h"
#include "cbt/rpc/client.h"
#include "programs/revisions/http_sidecar/changed_blocks.h"

namespace cbt::kube::http_sidecar {
namespace {

class StreamedBlocks final : public ChangedBlocks {
 public:
  explicit StreamedBlocks(std::unique_ptr<rpc::RemoteCursor> cursor) : cursor_(std::move(cursor)) {
    if (cursor_->capacity_known()) capacity_ = cursor_->capacity();
    version_ = cursor_->source_version();
  }

  absl::StatusOr<bool> Next(ChangedExtent& extent) override {
    const absl::StatusOr<bool> more = MayHaveMore();
    if (!more.ok() || !*more) return more;
    extent = {.extent = batch_[at_++]};
    return true;
  }

  // Looks for the next one: a stream does not say before that whether there is one.
  absl::StatusOr<bool> MayHaveMore() override {
    while (at_ == batch_.size()) {
      if (complete_) return false;
      const absl::StatusOr<Step> step = cursor_->Next(batch_);
      if (!step.ok()) return step.status();
      complete_ = *step == Step::kComplete;
      at_ = 0;
    }
    return true;
  }

 private:
  const std::unique_ptr<rpc::RemoteCursor> cursor_;
  ExtentBatch batch_;
  size_t at_ = 0;
  bool complete_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChangedBlocks>> StreamChangedBlocks(
    const std::string& address, const ChangedBlocksQuery& query) {
  rpc::ListRequest request = {.address = address,
                              .snapshot_id = query.target,
                              .base_snapshot_id = query.base,
                              .starting_offset = query.from,
                              .no_message = rpc::NoMessage::kAccepted};
  request.secrets = query.secrets.Copy();
  request.timeout = std::chrono::ceil<std::chrono::milliseconds>(query.deadline -
                                                                 std::chrono::system_clock::now());
  // The client that asked for the page asks again.
  request.retry_for = std::chrono::milliseconds(0);
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(request);
  if (!cursor.ok()) return cursor.status();
  return std::make_unique<StreamedBlocks>(*std::move(cursor));
}

}  // namespace cbt::kube::http_sidecar
