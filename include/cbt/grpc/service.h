// The services of cbt/rpc/server.h on a gRPC server that the program already has, such as that of a
// CSI plugin. Part of cbt::grpc, which links gRPC.
//
// snippet: examples/embedded-plugin/plugin.cc#serve examples/embedded-plugin/plugin.cc#shutdown
//   MyProvider provider;
//   auto metadata = cbt::rpc::GrpcService::Create(provider, {});
//   if (!metadata.ok()) {
//     std::fprintf(stderr, "%s\n", metadata.status().ToString().c_str());
//     return 1;
//   }
//   grpc::ServerBuilder builder;
//   builder.AddListeningPort(address, grpc::InsecureServerCredentials());
//   builder.RegisterService(&identity);
//   builder.RegisterService(&controller);
//   builder.RegisterService(&node);
//   builder.RegisterService(metadata->get());
//   const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
//
//   (*metadata)->Shutdown();  // refuses new streams and gives open ones five seconds
//   server->Shutdown();
//
// The other services may use the synchronous, the callback or the asynchronous interface, and
// generated classes of the same messages. TLS, keepalive and limits of connections are those of
// the program's server.
#ifndef CBT_GRPC_SERVICE_H_
#define CBT_GRPC_SERVICE_H_

#if __has_include(<grpcpp/impl/service_type.h>)
#include <grpcpp/impl/service_type.h>
#else
#include <grpcpp/impl/codegen/service_type.h>
#endif

#include <chrono>
#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/provider.h"
#include "cbt/rpc/service_options.h"

namespace cbt::rpc {

// Give it to grpc::ServerBuilder::RegisterService(). Thread safe.
class GrpcService final : public grpc::Service {
 public:
  // `provider` must outlive the service.
  // Errors: INVALID_ARGUMENT for options out of range, RESOURCE_EXHAUSTED if the system is out of
  // memory or threads.
  static absl::StatusOr<std::unique_ptr<GrpcService>> Create(SnapshotProvider& provider,
                                                             const ServiceOptions& options);

  // Only after the gRPC server is gone, or has been shut down and has returned from Wait().
  ~GrpcService() override;

  // Drains: new streams are refused with UNAVAILABLE at once; open ones continue for up to `grace`
  // and then end with UNAVAILABLE. Call it before grpc::Server::Shutdown(), which would wait for
  // the streams, or cancel them. Returns when no stream is open, at the latest a few seconds after
  // the grace. May be called more than once.
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));

  // Number of open streams.
  size_t open_streams() const noexcept;

 private:
  class Impl;
  explicit GrpcService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_GRPC_SERVICE_H_
