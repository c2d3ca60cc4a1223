// ListSnapshotDeltas: the answer of a stream, one page per call.
#ifndef CBT_RPC_SERVER_PAGED_SERVICE_H_
#define CBT_RPC_SERVER_PAGED_SERVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "cbt/executor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/access/admission.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/resumption.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class PagedService final : public Service {
 public:
  // All references must outlive the service, and the executor its tasks.
  PagedService(SnapshotProvider& provider, PageTokens tokens, const StreamOptions& options,
               StreamRegistry& registry, Executor& executor, const Telemetry& telemetry);

 private:
  class Page;

  absl::StatusOr<CallHandler*> Open(ServerCall& call, const absl::Cord& request);

  // State shared by pages; a provider's call, and with it a page, may outlive the service.
  struct Shared {
    SnapshotProvider& provider;
    const PageTokens tokens;
    const StreamOptions options;
  };

  const std::shared_ptr<const Shared> shared_;
  StreamRegistry& registry_;
  Executor& executor_;
  const Telemetry telemetry_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_PAGED_SERVICE_H_
