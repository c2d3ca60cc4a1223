// The program's own gRPC server with the metadata services.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cbt/grpc/service.h"
#include "cbt/rpc/client.h"
#include "cbt/source/directory_provider.h"

int main() {
  auto provider = cbt::MakeDirectoryProvider(".");
  if (!provider.ok()) return 1;
  auto metadata = cbt::rpc::GrpcService::Create(**provider, {});
  if (!metadata.ok()) {
    std::fprintf(stderr, "%s\n", metadata.status().ToString().c_str());
    return 1;
  }
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(metadata->get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;

  cbt::rpc::ListRequest request;
  request.address = "127.0.0.1:" + std::to_string(port);
  request.snapshot_id = "nothing/here";
  const auto stream = cbt::rpc::RemoteCursor::Open(request);
  std::printf("%s\n", absl::StatusCodeToString(stream.status().code()).c_str());
  (*metadata)->Shutdown();
  server->Shutdown();
  return 0;
}
