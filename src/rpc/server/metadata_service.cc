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
                                 const StreamOptions& options, OpenStreams& registry,
                                 const Telemetry& telemetry)
    : contract_(contract),
      admission_(admission),
      feeds_(std::move(feeds)),
      options_(options),
      registry_(registry),
      telemetry_(telemetry) {
  for (const MethodContract* method : {&contract.allocated, &contract.delta}) {
    AddMethod(method->path, [this, method](ServerCall& call) { return Open(*method, call); });
  }
}

MetadataService::~MetadataService() {
  const std::unique_lock lock(gate_->mutex);
  gate_->open = false;
}

// Takes a place among the calls that wait before the request has arrived.
absl::StatusOr<CallHandler*> MetadataService::Open(const MethodContract& method, ServerCall& call) {
  const StreamKind kind{.api = contract_.api, .delta = method.fields.is_delta()};
  const auto refused = [&](absl::Status status) {
    StreamTelemetry(telemetry_, kind).End(status, EndReason::kRefused);
    Report(telemetry_, ServerEvent::kStreamRefused);
    return status;
  };
  absl::StatusOr<FairPlaces::Place> place = registry_.Enter(call.peer());
  if (!place.ok()) return refused(place.status());
  const auto stream = std::make_shared<ServerStream>(
      call, registry_, *std::move(place), options_, telemetry_, kind,
      [this, &method](const std::shared_ptr<ServerStream>& opened, const absl::Cord& request) {
        Begin(method, opened, request);
      });
  if (absl::Status status = registry_.Add(stream); !status.ok()) return refused(std::move(status));
  stream->ReadRequest();
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return stream.get();
}

// Runs on the transport's threads: only decodes and checks the request.
void MetadataService::Begin(const MethodContract& method,
                            const std::shared_ptr<ServerStream>& stream,
                            const absl::Cord& request) {
  absl::StatusOr<MetadataRequest> decoded = DecodeRequest(method, FlatMessage().Of(request));
  stream->Asked(decoded.ok() && decoded->starting_offset > 0);
  const auto refuse = [&stream](const absl::Status& status) {
    stream->NoteReason(EndReason::kRefused);
    stream->End(status);
  };
  if (!decoded.ok()) return refuse(decoded.status());
  if (absl::Status status = CheckRequest(method, *decoded); !status.ok()) {
    return refuse(status);
  }
  decoded->peer = stream->peer();
  admission_.Admit(*std::move(decoded),
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
