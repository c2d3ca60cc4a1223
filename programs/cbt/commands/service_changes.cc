#include "programs/cbt/commands/service_changes.h"

#include <utility>

#include "cbt/rpc/client.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

class RemoteChanges final : public ServiceChanges {
 public:
  explicit RemoteChanges(std::string name) : name_(std::move(name)) {}

  void AddTo(CLI::App& subcommand) {
    subcommand.add_option("--service", remote_.address, kAddressHelp)->type_name("ADDR");
    AddRemoteOptions(subcommand, remote_);
    AddRetryOption(subcommand, remote_);
    subcommand.add_flag("--prove", prove_,
                        "Fail unless the service's stream is proven complete, from its source");
  }

  bool wanted() const override { return !remote_.address.empty(); }

  absl::StatusOr<ExtentCursor*> Open(uint64_t capacity) override {
    if (!remote_.has_base()) {
      return UsageError("--base", "an increment needs the snapshot that it begins with");
    }
    absl::StatusOr<rpc::ListRequest> request = RemoteRequest(remote_, name_);
    if (!request.ok()) return request.status();
    request->require_proof = prove_;
    request->no_message = rpc::NoMessage::kNeedsCapacity;
    if (!request->capacity.has_value()) request->capacity = capacity;
    absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(*request);
    if (!cursor.ok()) return cursor.status();
    cursor_ = *std::move(cursor);
    return cursor_.get();
  }

  std::string Warning() const override {
    if (cursor_ == nullptr || cursor_->resumes() == 0 ||
        cursor_->completeness() != rpc::Completeness::kProvenForPlace) {
      return {};
    }
    return "warning: the stream was resumed, and nothing shows whether its data has changed "
           "meanwhile: if it may have, do this again";
  }

 private:
  const std::string name_;
  RemoteArguments remote_;
  bool prove_ = false;
  std::unique_ptr<rpc::RemoteCursor> cursor_;
};

}  // namespace

std::shared_ptr<ServiceChanges> AddServiceChanges(CLI::App& subcommand, const std::string& name) {
  auto changes = std::make_shared<RemoteChanges>(name);
  changes->AddTo(subcommand);
  return changes;
}

}  // namespace cbt::cli
