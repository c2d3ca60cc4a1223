// Uses every component once: images in a directory, a server for them, a client of it.
#include <cstdio>

#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "cbt/source/directory_provider.h"

int main() {
  auto provider = cbt::MakeDirectoryProvider(".");
  if (!provider.ok()) return 1;
  cbt::rpc::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.service.plugin_name = "block.example.com";
  auto server = cbt::rpc::Server::Start(**provider, options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  cbt::rpc::ListRequest request;
  request.address = (*server)->address();
  request.snapshot_id = "nothing/here";
  const auto stream = cbt::rpc::RemoteCursor::Open(request);
  std::printf("%s\n", absl::StatusCodeToString(stream.status().code()).c_str());
  (*server)->Shutdown();
  return 0;
}
