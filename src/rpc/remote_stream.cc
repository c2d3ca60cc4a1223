#include "rpc/remote_stream.h"

#include <grpcpp/support/slice.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/byte_buffer.h"
#include "rpc/paged_stream.h"
#include "rpc/status.h"

namespace cbt::rpc {
namespace {

// What the tags of the completion queue stand for.
enum Tag : char { kStarted, kSent, kRead, kFinished };
char tags[] = {kStarted, kSent, kRead, kFinished};

std::optional<std::string_view> Find(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, std::string_view key) {
  const auto found = metadata.find(grpc::string_ref(key.data(), key.size()));
  if (found == metadata.end()) return std::nullopt;
  return std::string_view(found->second.data(), found->second.size());
}

}  // namespace

RemoteStream::RemoteStream(const std::shared_ptr<grpc::Channel>& channel, const Contract& contract,
                           const MethodContract& method, const std::string& request,
                           Deadline deadline, std::stop_token stop)
    : contract_(contract) {
  if (deadline.has_value()) context_.set_deadline(*deadline);
  const grpc::Slice slice(request);
  request_ = grpc::ByteBuffer(&slice, 1);
  call_ = grpc::GenericStub(channel).PrepareCall(&context_, method.path, &queue_);
  if (stop.stop_possible()) {
    on_stop_.emplace(std::move(stop), [this] { context_.TryCancel(); });
  }
  call_->StartCall(&tags[kStarted]);
  ++outstanding_;
  bool ok = false;
  void* tag = nullptr;
  // Comes when the call is on its way or has failed for good.
  alive_ = queue_.Next(&tag, &ok) && ok;
  --outstanding_;
  if (!alive_) return;
  call_->WriteLast(request_, grpc::WriteOptions(), &tags[kSent]);
  ++outstanding_;
  StartRead();
}

void RemoteStream::StartRead() {
  call_->Read(&incoming_, &tags[kRead]);
  ++outstanding_;
}

absl::StatusOr<bool> RemoteStream::Next(MetadataMessage& message) {
  bool ok = false;
  void* tag = nullptr;
  while (alive_) {
    if (!queue_.Next(&tag, &ok)) break;
    --outstanding_;
    // A request that could not be sent shows in the status.
    if (tag != &tags[kRead]) continue;
    if (!ok) {
      alive_ = false;
      break;
    }
    received_ = true;
    const grpc::ByteBuffer bytes(incoming_);
    incoming_.Clear();
    StartRead();
    absl::Status status = DecodeMetadataMessage(FlatBytes(bytes).bytes(), message);
    if (status.ok()) status = TranslateType(contract_, message);
    if (!status.ok()) {
      return absl::DataLossError(absl::StrCat("metadata stream: ", status.message()));
    }
    return true;
  }
  absl::Status status = AwaitStatus();
  if (!status.ok()) return status;
  return false;
}

std::optional<std::string_view> RemoteStream::Initial(std::string_view key) const {
  if (!received_) return std::nullopt;
  return Find(context_.GetServerInitialMetadata(), key);
}

std::optional<std::string_view> RemoteStream::Trailing(std::string_view key) const {
  if (!finished_) return std::nullopt;
  return Find(context_.GetServerTrailingMetadata(), key);
}

absl::Status RemoteStream::AwaitStatus() {
  if (finished_) return status_;
  grpc::Status status;
  call_->Finish(&status, &tags[kFinished]);
  ++outstanding_;
  bool ok = false;
  void* tag = nullptr;
  while (outstanding_ > 0 && queue_.Next(&tag, &ok)) --outstanding_;
  finished_ = true;
  status_ = FromGrpcStatus(status);
  return status_;
}

RemoteStream::~RemoteStream() {
  on_stop_.reset();
  // Everything outstanding comes back at once after this, whatever the server does.
  context_.TryCancel();
  if (!finished_) (void)AwaitStatus();
  queue_.Shutdown();
  bool ok = false;
  void* tag = nullptr;
  while (queue_.Next(&tag, &ok)) continue;
}

std::unique_ptr<MessageStream> OpenMessageStream(const std::shared_ptr<grpc::Channel>& channel,
                                                 const Contract& contract,
                                                 const MetadataRequest& request, Deadline deadline,
                                                 std::stop_token stop) {
  const MethodContract& method =
      request.base_snapshot_id.has_value() ? contract.delta : contract.allocated;
  if (contract.api == Api::kPaged) {
    return std::make_unique<PagedStream>(channel, method, request, deadline, std::move(stop));
  }
  return std::make_unique<RemoteStream>(channel, contract, method, EncodeRequest(method, request),
                                        deadline, std::move(stop));
}

}  // namespace cbt::rpc
