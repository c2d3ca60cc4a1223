// A plugin with an existing gRPC server: the metadata service joins Identity, Controller and Node
// on its socket. Usage: plugin [ADDRESS]
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/bitmap.h"
#include "cbt/grpc/service.h"
#include "cbt/units.h"
#include "csi.grpc.pb.h"

// Stands in for your storage, which is asked for the bits of each request: one for each block.
namespace storage {

constexpr uint64_t kBlock = 4 * cbt::kKiB;
constexpr uint64_t kBlocks = 64;
using Bits = std::vector<uint8_t>;

const std::map<std::string, Bits, std::less<>> kAllocated = {
    {"monday", {0xff, 0x0f, 0, 0, 0, 0, 0, 0}},
    {"tuesday", {0xff, 0x0f, 0, 0, 0, 0x11, 0, 0x80}},
};

absl::StatusOr<Bits> Allocated(std::string_view id) {
  const auto found = kAllocated.find(id);
  if (found == kAllocated.end()) return absl::NotFoundError("no such snapshot");
  return found->second;
}

absl::StatusOr<Bits> Changed(std::string_view base, std::string_view target) {
  if (!kAllocated.contains(base) || !kAllocated.contains(target)) {
    return absl::NotFoundError("no such snapshot");
  }
  if (base == target) return Bits(kBlocks / 8);
  if (base == "monday") return Bits{0x03, 0, 0, 0, 0, 0x11, 0, 0x80};
  return absl::InvalidArgumentError("the base is newer than the target");
}

}  // namespace storage

class MyProvider : public cbt::SnapshotProvider {
  absl::StatusOr<cbt::MetadataSource> OpenAllocated(std::string_view id,
                                                    const cbt::StreamContext&) override {
    return Serve(storage::Allocated(id));
  }

  absl::StatusOr<cbt::MetadataSource> OpenDelta(std::string_view base, std::string_view target,
                                                const cbt::StreamContext&) override {
    return Serve(storage::Changed(base, target));
  }

  // The bits were fetched for this stream: the cursor keeps them, and reads them in place.
  static absl::StatusOr<cbt::MetadataSource> Serve(absl::StatusOr<std::vector<uint8_t>> bits) {
    if (!bits.ok()) return bits.status();
    auto bitmap = cbt::Bitmap::Create(*std::move(bits), /*first_bit=*/0, storage::kBlocks);
    if (!bitmap.ok()) return bitmap.status();  // too short: a missing bit says nothing
    auto cursor = cbt::MakeBitmapCursor(
        *bitmap, {.capacity = storage::kBlocks * storage::kBlock, .granularity = storage::kBlock});
    if (!cursor.ok()) return cursor.status();
    return cbt::MetadataSource{.cursor = *std::move(cursor)};
  }
};

// Existing code. Any style works: this class uses callbacks, the others block.
class Identity final : public csi::v1::Identity::CallbackService {
  grpc::ServerUnaryReactor* GetPluginInfo(grpc::CallbackServerContext* context,
                                          const csi::v1::GetPluginInfoRequest*,
                                          csi::v1::GetPluginInfoResponse* response) override {
    response->set_name("embedded.example.com");
    response->set_vendor_version("1.0");
    return Done(context);
  }
  grpc::ServerUnaryReactor* GetPluginCapabilities(
      grpc::CallbackServerContext* context, const csi::v1::GetPluginCapabilitiesRequest*,
      csi::v1::GetPluginCapabilitiesResponse* response) override {
    using Service = csi::v1::PluginCapability::Service;
    // New: without the second one, sidecars do not ask for metadata.
    for (const auto type : {Service::CONTROLLER_SERVICE, Service::SNAPSHOT_METADATA_SERVICE}) {
      response->add_capabilities()->mutable_service()->set_type(type);
    }
    return Done(context);
  }
  grpc::ServerUnaryReactor* Probe(grpc::CallbackServerContext* context,
                                  const csi::v1::ProbeRequest*,
                                  csi::v1::ProbeResponse* response) override {
    response->mutable_ready()->set_value(true);
    return Done(context);
  }
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class Controller final : public csi::v1::Controller::Service {
  grpc::Status ControllerGetCapabilities(
      grpc::ServerContext*, const csi::v1::ControllerGetCapabilitiesRequest*,
      csi::v1::ControllerGetCapabilitiesResponse* response) override {
    response->add_capabilities()->mutable_rpc()->set_type(
        csi::v1::ControllerServiceCapability::RPC::LIST_SNAPSHOTS);
    return grpc::Status::OK;
  }
  grpc::Status ListSnapshots(grpc::ServerContext*, const csi::v1::ListSnapshotsRequest*,
                             csi::v1::ListSnapshotsResponse* response) override {
    for (const auto& [name, bits] : storage::kAllocated) {
      csi::v1::Snapshot* const snapshot = response->add_entries()->mutable_snapshot();
      snapshot->set_snapshot_id(name);
      snapshot->set_source_volume_id("vol1");
      snapshot->set_size_bytes(storage::kBlocks * storage::kBlock);
      snapshot->set_ready_to_use(true);
    }
    return grpc::Status::OK;
  }
};

class Node final : public csi::v1::Node::Service {
  grpc::Status NodeGetCapabilities(grpc::ServerContext*, const csi::v1::NodeGetCapabilitiesRequest*,
                                   csi::v1::NodeGetCapabilitiesResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status NodeGetInfo(grpc::ServerContext*, const csi::v1::NodeGetInfoRequest*,
                           csi::v1::NodeGetInfoResponse* response) override {
    response->set_node_id("node-1");
    return grpc::Status::OK;
  }
};

int main(int argc, char** argv) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);  // before the first thread starts

  const std::string address = argc > 1 ? argv[1] : "unix:///csi/csi.sock";
  Identity identity;
  Controller controller;
  Node node;
  // [serve]
  MyProvider provider;
  auto metadata = cbt::rpc::GrpcService::Create(provider, {});
  if (!metadata.ok()) {
    std::fprintf(stderr, "%s\n", metadata.status().ToString().c_str());
    return 1;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&identity);
  builder.RegisterService(&controller);
  builder.RegisterService(&node);
  builder.RegisterService(metadata->get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  // [/serve]
  if (server == nullptr) {
    std::fprintf(stderr, "%s: the server can't listen there\n", address.c_str());
    return 1;
  }
  std::fprintf(stderr, "serving on %s\n", address.c_str());
  int signal = 0;
  sigwait(&stop, &signal);
  // [shutdown]
  (*metadata)->Shutdown();  // refuses new streams and gives open ones five seconds
  server->Shutdown();
  // [/shutdown]
  return 0;
}
