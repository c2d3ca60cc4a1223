#include "rpc/remote_stream.h"

#include <grpcpp/support/slice.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "rpc/byte_buffer.h"
#include "rpc/status.h"

namespace cbt::rpc {
namespace {

// What the tags of the completion queue stand for.
enum Tag : char { kStarted, kSent, kRead, kFinished };
char tags[] = {kStarted, kSent, kRead, kFinished};

}  // namespace

RemoteStream::RemoteStream(const std::shared_ptr<grpc::Channel>& channel, const char* path,
                           const std::string& request, Deadline deadline) {
  if (deadline.has_value()) context_.set_deadline(*deadline);
  const grpc::Slice slice(request);
  request_ = grpc::ByteBuffer(&slice, 1);
  call_ = grpc::GenericStub(channel).PrepareCall(&context_, path, &queue_);
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

absl::StatusOr<std::optional<MetadataMessage>> RemoteStream::Next() {
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
    const grpc::ByteBuffer message(incoming_);
    incoming_.Clear();
    StartRead();
    absl::StatusOr<MetadataMessage> decoded = DecodeMetadataMessage(FlatBytes(message).bytes());
    if (!decoded.ok()) {
      return absl::DataLossError(absl::StrCat("metadata stream: ", decoded.status().message()));
    }
    return *std::move(decoded);
  }
  absl::Status status = AwaitStatus();
  if (!status.ok()) return status;
  return std::nullopt;
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
  // Everything outstanding comes back at once after this, whatever the server does.
  context_.TryCancel();
  if (!finished_) (void)AwaitStatus();
  queue_.Shutdown();
  bool ok = false;
  void* tag = nullptr;
  while (queue_.Next(&tag, &ok)) continue;
}

}  // namespace cbt::rpc
