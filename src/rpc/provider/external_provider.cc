#include "cbt/rpc/external_provider.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/provider/provider_call.h"
#include "rpc/provider/provider_cursor.h"

namespace cbt::rpc {
namespace {

constexpr uint64_t kDefaultBlocks = 4096;

class ExternalProvider final : public SnapshotProvider {
 public:
  ExternalProvider(std::shared_ptr<Channel> channel, const ExternalProviderOptions& options)
      : channel_(std::move(channel)), options_(options) {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    return Open({}, snapshot_id, context);
  }
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    return Open(base_snapshot_id, target_snapshot_id, context);
  }

 private:
  absl::StatusOr<MetadataSource> Open(std::string_view base, std::string_view target,
                                      const StreamContext& context) {
    auto question = std::make_shared<ProviderQuestion>();
    question->channel = channel_;
    question->base = base;
    question->target = target;
    question->secrets = context.secrets.Copy();
    question->stop = context.stop;
    question->deadline = context.deadline;
    if (options_.silence > std::chrono::milliseconds(0)) question->silence = options_.silence;
    question->log = options_.log;
    absl::StatusOr<std::unique_ptr<ProviderCall>> call = ProviderCall::Open(*question, 0);
    if (!call.ok()) return call.status();
    const AnswerHead head = (*call)->head();
    MetadataSource source;
    if (head.content == AnswerContent::kFile || head.geometry.capacity == 0) {
      // Nothing follows the head but the end, which is awaited here.
      if (absl::Status status = AwaitEnd(**call); !status.ok()) return status;
    }
    if (head.content == AnswerContent::kFile) {
      absl::StatusOr<MetadataSource> files = OpenFiles(head, !base.empty(), context);
      if (!files.ok()) return files.status();
      source = *std::move(files);
      source.version = absl::StrCat(head.version, source.version);
    } else {
      const bool bitmap = head.content == AnswerContent::kBitmap;
      source.version = head.version;
      source.cursor = MakeProviderCursor(std::move(question), *std::move(call));
      if (bitmap) {
        // Of the pieces in which its messages cut it.
        absl::StatusOr<std::unique_ptr<ExtentCursor>> whole = Coalesce(std::move(source.cursor), 0);
        if (!whole.ok()) return whole.status();
        source.cursor = *std::move(whole);
      }
    }
    source.may_change_unseen = source.may_change_unseen || head.may_change_unseen;
    source.type = options_.type.value_or(head.block_size != 0 ? BlockMetadataType::kFixedLength
                                                              : BlockMetadataType::kVariableLength);
    source.block_size =
        options_.block_size.value_or(head.block_size != 0 ? head.block_size : kDefaultBlocks);
    return source;
  }

  static absl::Status AwaitEnd(ProviderCall& call) {
    for (;;) {
      const absl::StatusOr<ProviderCall::Event> event = call.Next();
      if (!event.ok()) return event.status();
      if (*event == ProviderCall::Event::kEnd) return absl::OkStatus();
      if (*event == ProviderCall::Event::kNothing) continue;
      if (!call.part().bitmap.empty() || !call.part().offsets.empty()) {
        return absl::InternalError("provider: it sent data of an empty volume");
      }
    }
  }

  absl::StatusOr<MetadataSource> OpenFiles(const AnswerHead& head, bool delta,
                                           const StreamContext& context) const {
    if (!options_.open_files) {
      return absl::FailedPreconditionError(
          "provider: it names a file, but no directory for files is set (cbtctl serve "
          "--provider-files)");
    }
    absl::StatusOr<MetadataSource> source =
        options_.open_files({head.path, head.base_path, head.format, delta}, context);
    if (!source.ok()) {
      return absl::Status(source.status().code(),
                          absl::StrCat("provider: ", source.status().message()));
    }
    const uint64_t capacity = source->cursor->capacity();
    if (head.geometry.capacity != 0 && head.geometry.capacity != capacity) {
      return absl::FailedPreconditionError(
          absl::StrCat("provider: the snapshot has ", head.geometry.capacity,
                       " bytes, but its file is of a volume of ", capacity));
    }
    return source;
  }

  const std::shared_ptr<Channel> channel_;
  const ExternalProviderOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeExternalProvider(
    const std::string& address, const ExternalProviderOptions& options) {
  absl::StatusOr<net::Address> parsed = net::ParseAddress(address);
  if (!parsed.ok() || !parsed->is_unix) {
    return absl::InvalidArgumentError(
        absl::StrCat("provider ", address, ": expected unix:///PATH"));
  }
  absl::StatusOr<std::shared_ptr<Channel>> channel = ConnectForGood(*parsed, {});
  if (!channel.ok()) return channel.status();
  return std::make_unique<ExternalProvider>(*std::move(channel), options);
}

}  // namespace cbt::rpc
