#include "rpc/metadata_service.h"

#include <memory>
#include <utility>

#include "rpc/byte_buffer.h"
#include "rpc/status.h"
#include "rpc/stream_producer.h"
#include "rpc/stream_reactor.h"

namespace cbt::rpc {

MetadataService::MetadataService(const Contract& contract, SnapshotProvider& provider,
                                 const StreamOptions& options, StreamRegistry& registry,
                                 Executor& executor)
    : provider_(provider), options_(options), registry_(registry), executor_(executor) {
  for (const MethodContract* method : {&contract.allocated, &contract.delta}) {
    AddStream(method->path, [this, method](grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request) {
      return Open(*method, *context, *request);
    });
  }
}

// Runs on gRPC's threads: looks at the request's bytes and at nothing else.
RawService::WriteReactor* MetadataService::Open(const MethodContract& method,
                                                grpc::CallbackServerContext& context,
                                                const grpc::ByteBuffer& request) {
  absl::StatusOr<MetadataRequest> decoded = DecodeRequest(method, FlatBytes(request).bytes());
  if (!decoded.ok()) return RejectStream(ToGrpcStatus(decoded.status()));
  if (absl::Status status = CheckRequest(method, *decoded); !status.ok()) {
    return RejectStream(ToGrpcStatus(status));
  }
  absl::StatusOr<StreamSlot> slot = registry_.TakeSlot();
  if (!slot.ok()) return RejectStream(ToGrpcStatus(slot.status()));
  auto stream = std::make_shared<StreamReactor>(
      context, registry_, *std::move(slot), executor_, options_.messages_in_flight,
      std::make_unique<StreamProducer>(provider_, *std::move(decoded), options_.message_bytes));
  if (absl::Status status = registry_.Add(stream); !status.ok()) {
    return RejectStream(ToGrpcStatus(status));
  }
  stream->Start();
  // The registry keeps it until OnDone(), which can't come before this handler has returned.
  return stream.get();
}

}  // namespace cbt::rpc
