#include "rpc/server/metadata_service.h"

#include <mutex>
#include <new>
#include <utility>

#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/stream_telemetry.h"
#include "rpc/transport/flat_message.h"

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
    AddMethod(method->path, [this, method](ServerCall& call, const absl::Cord& request) {
      return Open(*method, call, request);
    });
  }
}

MetadataService::~MetadataService() {
  const std::unique_lock lock(gate_->mutex);
  gate_->open = false;
}

// Only decodes and checks the request, and takes a place among the calls that wait for admission.
absl::StatusOr<CallHandler*> MetadataService::Open(const MethodContract& method, ServerCall& call,
                                                   const absl::Cord& request) {
  StreamKind kind{.api = contract_.api, .delta = method.fields.is_delta()};
  const auto refused = [&](absl::Status status) {
    StreamTelemetry(telemetry_, kind).End(status, EndReason::kRefused);
    return status;
  };
  absl::StatusOr<FairPlaces::Place> place = registry_.Enter(call.peer());
  if (!place.ok()) {
    Report(telemetry_, ServerEvent::kStreamRefused);
    return refused(place.status());
  }
  absl::StatusOr<MetadataRequest> decoded = DecodeRequest(method, FlatMessage().Of(request));
  if (!decoded.ok()) return refused(decoded.status());
  kind.resumed = decoded->starting_offset > 0;
  if (absl::Status status = CheckRequest(method, *decoded); !status.ok()) return refused(status);
  const auto stream = std::make_shared<ServerStream>(call, registry_, *std::move(place), options_,
                                                     telemetry_, kind);
  if (absl::Status status = registry_.Add(stream); !status.ok()) {
    stream->Refuse(status);
    Report(telemetry_, ServerEvent::kStreamRefused);
    return status;
  }
  try {
    Admit(*std::move(decoded), stream);
  } catch (const std::bad_alloc&) {
    stream->EndOutOfMemory();
  }
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return stream.get();
}

void MetadataService::Admit(MetadataRequest request, const std::shared_ptr<ServerStream>& stream) {
  request.peer = stream->peer();
  admission_.Admit(std::move(request),
                   [this, gate = gate_, stream](absl::StatusOr<AdmittedRequest> admitted) {
                     try {
                       const std::shared_lock lock(gate->mutex);
                       if (!gate->open) return;
                       if (!admitted.ok()) {
                         stream->NoteReason(EndReason::kRefused);
                         return stream->End(admitted.status());
                       }
                       absl::StatusOr<StreamSlot> slot = registry_.TakeSlot();
                       if (!slot.ok()) {
                         Report(telemetry_, ServerEvent::kStreamRefused);
                         stream->NoteReason(EndReason::kRefused);
                         return stream->End(slot.status());
                       }
                       stream->Admit(*std::move(slot));
                       stream->Start(feeds_(contract_, *std::move(admitted), stream));
                     } catch (const std::bad_alloc&) {
                       stream->EndOutOfMemory();
                     }
                   });
}

}  // namespace cbt::rpc
