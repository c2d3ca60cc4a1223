#include "rpc/conformance/probe.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/slice.h>

#include <thread>
#include <utility>

#include "rpc/client/paged_inbound.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/status.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {
namespace {

// A completion queue with one tag outstanding at a time.
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }
  grpc::CompletionQueue* get() noexcept { return &queue_; }
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

 private:
  grpc::CompletionQueue queue_;
};

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

absl::Status Decode(const Contract& contract, std::span<const uint8_t> bytes,
                    MetadataMessage& message, std::string& next_token) {
  if (contract.api != Api::kPaged) {
    absl::Status status = DecodeMetadataMessage(bytes, message);
    return status.ok() ? TranslateType(contract, message) : status;
  }
  SnapshotDeltaPage page;
  absl::Status status = DecodePage(bytes, page);
  message.type = BlockMetadataType::kVariableLength;
  message.capacity = page.capacity;
  message.tuples = std::move(page.tuples);
  next_token = std::move(page.next_token);
  return status;
}

}  // namespace

ProbeAnswer Probe(const std::shared_ptr<grpc::Channel>& channel, const Contract& contract,
                  const std::string& path, const std::string& request, const ProbeLimits& limits) {
  const auto began = std::chrono::steady_clock::now();
  ProbeAnswer answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limits.timeout);
  Queue queue;
  const grpc::ByteBuffer message = Buffer(request);
  const auto call = grpc::GenericStub(channel).PrepareCall(&context, path, queue.get());
  call->StartCall(&context);
  bool alive = queue.Wait();
  if (alive) {
    call->WriteLast(message, grpc::WriteOptions(), &context);
    queue.Wait();
  }
  FlatMessage flat;
  MetadataMessage decoded;
  while (alive) {
    grpc::ByteBuffer bytes;
    call->Read(&bytes, &context);
    if (!queue.Wait()) break;
    // Not earlier: gRPC sends nothing while no operation waits.
    if (limits.stall.count() > 0 && answer.messages.empty()) {
      std::this_thread::sleep_for(limits.stall);
    }
    const absl::Status status = Decode(contract, flat.Of(bytes), decoded, answer.next_token);
    if (!status.ok()) {
      if (answer.decoding.ok()) answer.decoding = status;
      continue;
    }
    const size_t first = answer.tuples.size();
    const size_t count = decoded.tuples.size();
    answer.messages.push_back({.type = decoded.type,
                               .capacity = decoded.capacity,
                               .first = first,
                               .count = count,
                               .bytes = bytes.Length()});
    answer.tuples.resize(first + count);
    for (size_t i = 0; i < count; ++i) answer.tuples.set(first + i, decoded.tuples[i]);
    answer.too_large = answer.tuples.size() > limits.max_tuples;
    if (answer.too_large ||
        (limits.cancel_after > 0 && answer.messages.size() >= limits.cancel_after)) {
      context.TryCancel();
      alive = false;
    }
  }
  grpc::Status status;
  call->Finish(&status, &context);
  queue.Wait();
  answer.status = FromGrpcStatus(status);
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    const auto [line, only] = answer.trailing.emplace(std::string(key.data(), key.size()),
                                                      std::string(value.data(), value.size()));
    if (!only) line->second = kGivenTwice;
  }
  answer.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  return answer;
}

UnaryAnswer ProbeUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                       const std::string& request, std::chrono::milliseconds timeout) {
  UnaryAnswer answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  Queue queue;
  const grpc::ByteBuffer message = Buffer(request);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call =
      grpc::GenericStub(channel).PrepareUnaryCall(&context, path, message, queue.get());
  call->StartCall();
  call->Finish(&response, &status, &context);
  queue.Wait();
  answer.status = FromGrpcStatus(status);
  FlatMessage flat;
  const std::span<const uint8_t> bytes = flat.Of(response);
  answer.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return answer;
}

}  // namespace cbt::rpc
