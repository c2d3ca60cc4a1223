// A permissive client: raw calls with libprotobuf on both ends, without checks or resuming.
#ifndef CBT_TESTS_RPC_SUPPORT_RAW_CALL_H_
#define CBT_TESTS_RPC_SUPPORT_RAW_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csi.pb.h"
#include "tests/reference/volume.h"

namespace cbt::test {

inline constexpr char kAllocatedPath[] = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";
inline constexpr char kDeltaPath[] = "/csi.v1.SnapshotMetadata/GetMetadataDelta";

inline std::shared_ptr<grpc::Channel> Connect(
    const std::string& address,
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials()) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A small fixed window, so that the server notices a stalled reader at once.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, std::move(credentials), arguments);
}

// A call whose messages are read one by one.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
          const std::string& request, std::optional<std::chrono::milliseconds> timeout = {}) {
    if (timeout.has_value()) context_.set_deadline(std::chrono::system_clock::now() + *timeout);
    const grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, path, &queue_);
    call_->StartCall(this);
    Wait();
    call_->WriteLast(request_, grpc::WriteOptions(), this);
    Wait();
  }

  ~RawCall() {
    Cancel();
    Finish();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }

  // The next message's bytes; nullopt at the end.
  std::optional<std::string> Read() {
    grpc::ByteBuffer message;
    call_->Read(&message, this);
    if (!Wait()) return std::nullopt;
    grpc::Slice slice;
    if (!message.DumpToSingleSlice(&slice).ok()) return std::string();
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }

  void Cancel() { context_.TryCancel(); }

  grpc::Status Finish() {
    if (!finished_) {
      finished_ = true;
      call_->Finish(&status_, this);
      Wait();
    }
    return status_;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer request_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::Status status_;
  bool finished_ = false;
};

using Response = csi::v1::GetMetadataAllocatedResponse;

// A whole stream.
struct Answer {
  std::vector<Response> messages;
  std::vector<size_t> message_bytes;
  grpc::Status status;

  reference::Ranges Tuples() const {
    reference::Ranges tuples;
    for (const Response& message : messages) {
      for (const auto& tuple : message.block_metadata()) {
        tuples.emplace_back(static_cast<uint64_t>(tuple.byte_offset()),
                            static_cast<uint64_t>(tuple.size_bytes()));
      }
    }
    return tuples;
  }
};

inline Answer ReadAll(RawCall& call) {
  Answer answer;
  while (std::optional<std::string> bytes = call.Read()) {
    answer.message_bytes.push_back(bytes->size());
    if (!answer.messages.emplace_back().ParseFromString(*bytes)) {
      answer.status = {grpc::StatusCode::DATA_LOSS, "libprotobuf can't parse the message"};
      return answer;
    }
  }
  answer.status = call.Finish();
  return answer;
}

// A request for the allocated blocks; with a base, for a delta.
struct Ask {
  std::string snapshot = "s";
  std::optional<std::string> base = std::nullopt;
  int64_t starting_offset = 0;
  int32_t max_results = 0;
  std::map<std::string, std::string> secrets = {};

  const char* path() const { return base.has_value() ? kDeltaPath : kAllocatedPath; }

  std::string bytes() const {
    if (base.has_value()) {
      csi::v1::GetMetadataDeltaRequest request;
      request.set_base_snapshot_id(*base);
      request.set_target_snapshot_id(snapshot);
      return Fill(request);
    }
    csi::v1::GetMetadataAllocatedRequest request;
    request.set_snapshot_id(snapshot);
    return Fill(request);
  }

 private:
  template <typename Request>
  std::string Fill(Request& request) const {
    request.set_starting_offset(starting_offset);
    request.set_max_results(max_results);
    for (const auto& [key, value] : secrets) (*request.mutable_secrets())[key] = value;
    return request.SerializeAsString();
  }
};

inline Answer Get(const std::shared_ptr<grpc::Channel>& channel, const Ask& ask,
                  std::optional<std::chrono::milliseconds> timeout = std::chrono::seconds(60)) {
  RawCall call(channel, ask.path(), ask.bytes(), timeout);
  return ReadAll(call);
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_RAW_CALL_H_
