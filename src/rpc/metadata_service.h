// The two streaming methods of a contract over a provider.
#ifndef CBT_RPC_METADATA_SERVICE_H_
#define CBT_RPC_METADATA_SERVICE_H_

#include "cbt/executor.h"
#include "cbt/provider.h"
#include "cbt/rpc/server.h"
#include "rpc/contract.h"
#include "rpc/raw_service.h"
#include "rpc/stream_registry.h"

namespace cbt::rpc {

class MetadataService final : public RawService {
 public:
  // All references must outlive the service; the contract is one of those in contract.h.
  MetadataService(const Contract& contract, SnapshotProvider& provider,
                  const StreamOptions& options, StreamRegistry& registry, Executor& executor);

 private:
  WriteReactor* Open(const MethodContract& method, grpc::CallbackServerContext& context,
                     const grpc::ByteBuffer& request);

  SnapshotProvider& provider_;
  const StreamOptions options_;
  StreamRegistry& registry_;
  Executor& executor_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_METADATA_SERVICE_H_
