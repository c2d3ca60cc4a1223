#include "rpc/relay/remote_provider.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "cbt/rpc/client.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/client/remote_cursor.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Broken streams are resumed for this long; a stream that can't be opened fails at once. A thread
// of the server waits meanwhile, and its clients try again themselves.
constexpr milliseconds kRetryFor = std::chrono::seconds(3);

// Wraps a remote cursor, and converts its errors for clients.
class PluginCursor final : public ExtentCursor {
 public:
  PluginCursor(std::unique_ptr<ExtentCursor> input, const PluginErrors& errors, Secrets secrets)
      : ExtentCursor(input->geometry()),
        input_(std::move(input)),
        errors_(errors),
        secrets_(std::move(secrets)) {}

 private:
  void DoAllowPieces() override { input_->AllowPieces(); }
  absl::Status DoSeek(uint64_t offset) override {
    return errors_.ForClient(input_->Seek(offset), secrets_);
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return errors_.ForClient(step.status(), secrets_);
    return input_->covered();
  }

  const std::unique_ptr<ExtentCursor> input_;
  const PluginErrors errors_;
  const Secrets secrets_;
};

class RemoteProvider final : public SnapshotProvider {
 public:
  // One channel, or its error: a connection for each page would cost more than the page.
  RemoteProvider(absl::StatusOr<std::shared_ptr<Channel>> channel, Api api,
                 const PluginErrors& errors, std::optional<milliseconds> stall = {})
      : channel_(std::move(channel)), api_(api), errors_(errors), stall_(stall) {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    return OpenForClient(std::nullopt, snapshot_id, context);
  }
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    return OpenForClient(std::string(base_snapshot_id), target_snapshot_id, context);
  }

 private:
  absl::StatusOr<MetadataSource> OpenForClient(std::optional<std::string> base,
                                               std::string_view target,
                                               const StreamContext& context) {
    absl::StatusOr<MetadataSource> source = Open(std::move(base), target, context);
    if (!source.ok()) return errors_.ForClient(source.status(), context.secrets);
    source->cursor =
        std::make_unique<PluginCursor>(std::move(source->cursor), errors_, context.secrets.Copy());
    return source;
  }

  absl::StatusOr<MetadataSource> Open(std::optional<std::string> base, std::string_view target,
                                      const StreamContext& context) {
    ListRequest request;
    request.api = api_;
    request.snapshot_id = std::string(target);
    request.base_snapshot_id = std::move(base);
    request.stop = context.stop;
    request.stall_timeout = stall_;
    request.retry_for = kRetryFor;
    request.secrets = context.secrets.Copy();
    if (context.deadline.has_value()) {
      request.timeout =
          std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(
                                        *context.deadline - std::chrono::system_clock::now()));
    }
    if (!channel_.ok()) return channel_.status();
    absl::StatusOr<std::unique_ptr<RemoteCursor>> cursor = OpenRemoteCursor(
        request, [channel = *channel_] { return channel; }, milliseconds(0));
    if (!cursor.ok()) return cursor.status();
    MetadataSource source;
    source.type = (*cursor)->type();
    source.block_size = (*cursor)->granularity();
    // Without a block the block size is unknown; extents are equivalent then.
    if (source.block_size == 1) source.type = BlockMetadataType::kVariableLength;
    source.version = (*cursor)->source_version();
    source.may_change_unseen = (*cursor)->may_change_unseen();
    // Parts that may be of two states are not proven, unless the answer says of all of its data that
    // it may change.
    source.proven = [remote = cursor->get()] {
      return remote->completeness() == Completeness::kProven ||
             (remote->completeness() == Completeness::kProvenForPlace &&
              remote->may_change_unseen());
    };
    source.cursor = *std::move(cursor);
    return source;
  }

  const absl::StatusOr<std::shared_ptr<Channel>> channel_;
  const Api api_;
  const PluginErrors errors_;
  const std::optional<milliseconds> stall_;
};

}  // namespace

std::unique_ptr<SnapshotProvider> MakeRemoteProvider(
    absl::StatusOr<std::shared_ptr<Channel>> channel, Api api, const PluginErrors& errors,
    std::optional<milliseconds> stall) {
  return std::make_unique<RemoteProvider>(std::move(channel), api, errors, stall);
}

std::unique_ptr<SnapshotProvider> MakeRemoteProvider(const std::string& address, Api api,
                                                     const ClientTlsOptions& tls, LogSink* log) {
  absl::StatusOr<std::shared_ptr<Channel>> channel = nullptr;
  if (const absl::StatusOr<net::Address> parsed = net::ParseAddress(address); parsed.ok()) {
    channel = ConnectForGood(*parsed, tls);
  } else {
    channel = parsed.status();
  }
  return MakeRemoteProvider(std::move(channel), api, PluginErrors(log), std::nullopt);
}

}  // namespace cbt::rpc
