// The two streaming methods of a contract.
#ifndef CBT_RPC_SERVER_METADATA_SERVICE_H_
#define CBT_RPC_SERVER_METADATA_SERVICE_H_

#include <functional>
#include <memory>
#include <shared_mutex>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/access/admission.h"
#include "rpc/contract/contract.h"
#include "rpc/server/outbound_feed.h"
#include "rpc/server/server_stream.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// Creates the feed of a stream, from a provider or from another server.
using FeedFactory = std::function<std::shared_ptr<OutboundFeed>(
    const Contract& contract, AdmittedRequest request, std::shared_ptr<ServerStream> stream)>;

class MetadataService final : public Service {
 public:
  // All references must outlive the service; the contract must be a streaming one of contract.h.
  MetadataService(const Contract& contract, Admission& admission, FeedFactory feeds,
                  const StreamOptions& options, StreamRegistry& registry,
                  const Telemetry& telemetry);
  // Waits for admission callbacks that are running; later ones do nothing.
  ~MetadataService() override;
  MetadataService(const MetadataService&) = delete;
  MetadataService& operator=(const MetadataService&) = delete;

 private:
  // Admission callbacks may come from any thread at any time.
  struct Gate {
    std::shared_mutex mutex;
    bool open = true;
  };

  absl::StatusOr<CallHandler*> Open(const MethodContract& method, ServerCall& call,
                                    const absl::Cord& request);
  void Admit(MetadataRequest request, const std::shared_ptr<ServerStream>& stream);

  const Contract& contract_;
  Admission& admission_;
  const FeedFactory feeds_;
  const StreamOptions options_;
  StreamRegistry& registry_;
  const Telemetry telemetry_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_METADATA_SERVICE_H_
