#include "rpc/metadata_service.h"

#include <mutex>
#include <new>
#include <utility>

#include "rpc/byte_buffer.h"
#include "rpc/status.h"
#include "rpc/stream_watch.h"

namespace cbt::rpc {

MetadataService::MetadataService(const Contract& contract, Admission& admission, FeedFactory feeds,
                                 const StreamOptions& options, StreamRegistry& registry,
                                 const Telemetry& telemetry)
    : contract_(contract),
      admission_(admission),
      feeds_(std::move(feeds)),
      options_(options),
      registry_(registry),
      telemetry_(telemetry) {
  for (const MethodContract* method : {&contract.allocated, &contract.delta}) {
    AddStream(method->path, [this, method](grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request) {
      return Open(*method, *context, *request);
    });
  }
}

MetadataService::~MetadataService() {
  const std::unique_lock lock(gate_->mutex);
  gate_->open = false;
}

// Runs on gRPC's threads: looks at the request's bytes and at nothing else.
RawService::WriteReactor* MetadataService::Open(const MethodContract& method,
                                                grpc::CallbackServerContext& context,
                                                const grpc::ByteBuffer& request) {
  absl::StatusOr<MetadataRequest> decoded = DecodeRequest(method, FlatBytes(request).bytes());
  StreamWatch watch(telemetry_, {.api = contract_.api,
                                 .delta = method.fields.is_delta(),
                                 .resumed = decoded.ok() && decoded->starting_offset > 0});
  const auto reject = [&watch](const absl::Status& status) {
    watch.End(status);
    return RejectStream(ToGrpcStatus(status));
  };
  if (!decoded.ok()) return reject(decoded.status());
  if (absl::Status status = CheckRequest(method, *decoded); !status.ok()) return reject(status);
  absl::StatusOr<StreamSlot> slot = registry_.TakeSlot();
  if (!slot.ok()) return reject(slot.status());
  auto stream = std::make_shared<StreamReactor>(context, registry_, *std::move(slot), options_,
                                                std::move(watch));
  if (absl::Status status = registry_.Add(stream); !status.ok()) {
    return RejectStream(ToGrpcStatus(status));
  }
  // The registry keeps it until OnDone(), which can't come before this handler has returned.
  StreamReactor* const reactor = stream.get();
  // Whatever throws from here on, the stream has to be ended: gRPC would answer by itself, and the
  // registry have a call in it whose context is gone.
  try {
    admission_.Admit(*std::move(decoded), [this, gate = gate_, stream = std::move(stream)](
                                              absl::StatusOr<AdmittedRequest> admitted) {
      try {
        const std::shared_lock lock(gate->mutex);
        if (!gate->open) return;
        if (!admitted.ok()) return stream->End(admitted.status());
        stream->Start(feeds_(contract_, *std::move(admitted), stream));
      } catch (const std::bad_alloc&) {
        stream->EndForWantOfMemory();
      }
    });
  } catch (const std::bad_alloc&) {
    reactor->EndForWantOfMemory();
  }
  return reactor;
}

}  // namespace cbt::rpc
