#include "cbt/source/nbd.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bridge/nbd_extents.h"
#include "cbt/transform.h"
#include "source/nbd/nbd_connection.h"
#include "source/nbd/nbd_state.h"

namespace cbt {

NbdExport::NbdExport(std::shared_ptr<State> state) : state_(std::move(state)) {}
NbdExport::~NbdExport() = default;

absl::StatusOr<std::shared_ptr<const NbdExport>> NbdExport::Open(const std::string& uri,
                                                                 const NbdExportOptions& options) {
  absl::StatusOr<std::shared_ptr<State>> state = State::Open(uri, options, NbdNeeds::kStatus);
  if (!state.ok()) return state.status();
  return std::shared_ptr<const NbdExport>(new NbdExport(*std::move(state)));
}

uint64_t NbdExport::size() const noexcept { return state_->size(); }
const std::string& NbdExport::label() const noexcept { return state_->label(); }
const std::vector<std::string>& NbdExport::contexts() const noexcept { return state_->contexts(); }

namespace {

class NbdCursor final : public ExtentCursor {
 public:
  NbdCursor(std::shared_ptr<NbdExport::State> state, NbdExtents extents, uint64_t request_bytes,
            std::unique_ptr<NbdConnection> connection)
      : ExtentCursor({.capacity = state->size(), .granularity = 1}),
        state_(std::move(state)),
        request_bytes_(request_bytes),
        extents_(std::move(extents)),
        connection_(std::move(connection)) {}
  ~NbdCursor() override { state_->GiveBack(extents_.context(), std::move(connection_)); }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = known_ = offset;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (position_ == known_) {
      if (absl::Status status = Ask(); !status.ok()) return status;
    }
    const std::vector<Extent>& extents = extents_.extents();
    while (next_ < extents.size() && !batch.full()) {
      const Extent extent = extents[next_++];
      // A request may begin before the position, for the server's alignment.
      const uint64_t begin = std::max(extent.offset, position_);
      if (extent.end() <= begin) continue;
      batch.push_back({begin, extent.end() - begin});
      position_ = extent.end();
    }
    if (next_ == extents.size()) position_ = known_;
    return position_;
  }

  // Requests the extents of [position_, known_).
  absl::Status Ask() {
    if (connection_ != nullptr && !connection_->usable()) connection_.reset();
    if (connection_ == nullptr) {
      absl::StatusOr<std::unique_ptr<NbdConnection>> fresh = state_->Start(extents_.context());
      if (!fresh.ok()) return fresh.status();
      connection_ = *std::move(fresh);
    }
    const uint64_t block = connection_->MinimumBlock();
    const uint64_t begin = AlignDown(position_, block);
    const uint64_t most = std::max(AlignDown(request_bytes_, block), block);
    extents_.Expect(begin, std::min(most, capacity() - begin));
    next_ = 0;
    if (absl::Status status =
            connection_->BlockStatus(begin, std::min(most, capacity() - begin), extents_);
        !status.ok()) {
      return status;
    }
    absl::StatusOr<uint64_t> known = extents_.Finish();
    if (!known.ok()) {
      return absl::Status(known.status().code(),
                          absl::StrCat(state_->label(), ": ", known.status().message()));
    }
    if (*known <= position_) {
      return absl::DataLossError(absl::StrCat(state_->label(), ": the server's reply ends at ",
                                              "offset ", *known, ", it was asked about ",
                                              position_));
    }
    known_ = *known;
    return absl::OkStatus();
  }

  const std::shared_ptr<NbdExport::State> state_;
  const uint64_t request_bytes_;
  NbdExtents extents_;
  std::unique_ptr<NbdConnection> connection_;
  uint64_t position_ = 0;  // reported below this offset
  uint64_t known_ = 0;     // extents_ is complete below this offset
  size_t next_ = 0;        // the first of extents_ not yet reported
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeStateCursor(
    const std::shared_ptr<NbdExport::State>& state, const NbdOptions& options) {
  if (options.request_bytes == 0 || options.request_bytes > kMaxNbdRequest) {
    return absl::InvalidArgumentError(absl::StrCat("nbd: requests of ", options.request_bytes,
                                                   " bytes, not 1 to ", kMaxNbdRequest));
  }
  absl::StatusOr<NbdExtents> extents = NbdExtents::For(options.context, options.deepest_changed);
  if (!extents.ok()) return extents.status();
  absl::StatusOr<std::unique_ptr<NbdConnection>> connection = state->Start(options.context);
  if (!connection.ok()) return connection.status();
  // Merged again, so that the result does not depend on where requests begin.
  return Coalesce(std::make_unique<NbdCursor>(state, *std::move(extents), options.request_bytes,
                                              *std::move(connection)));
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeNbdCursor(
    const std::shared_ptr<const NbdExport>& nbd_export, const NbdOptions& options) {
  if (nbd_export == nullptr) return absl::InvalidArgumentError("nbd: no export");
  return MakeStateCursor(nbd_export->state(), options);
}

}  // namespace cbt
