#include "programs/cosi/node/node.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/version.h"
#include "net/address.h"
#include "programs/cluster/component.h"
#include "programs/cosi/node/unary_service.h"
#include "programs/cosi/node/volumes.h"
#include "rpc/http2/server.h"

namespace cbt::kube::cosi {
namespace {

constexpr char kDriverName[] = "cosi.sigs.k8s.io";
// Calls at once: each waits for the API server.
constexpr size_t kCalls = 16;
// Kubelet's own limit of a call is two minutes.
constexpr uint32_t kMaxRequest = 1024 * 1024;

}  // namespace

class Node::Impl final : public cluster::Component {
 public:
  explicit Impl(NodeOptions options)
      : Component(options.component), options_(std::move(options)), service_(kCalls) {}

  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    // Ends what is still asked; the answers find everything else in place.
    client_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (options_.node_id.empty() || options_.state_directory.empty()) {
      return absl::InvalidArgumentError("node ID and state directory: are missing");
    }
    const absl::StatusOr<net::Address> address = net::ParseAddress(options_.socket);
    if (!address.ok()) return address.status();
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Create(options_.cluster.Copy(), options_.client);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    events_.emplace(*client_, "cosi-node", log());
    volumes_.emplace(*client_, *events_, options_.state_directory, log());
    if (absl::Status status = volumes_->Prepare(); !status.ok()) return status;
    if (absl::Status status = StartPages(); !status.ok()) return status;
    AddMethods();
    absl::StatusOr<std::unique_ptr<rpc::http2::Server>> server = rpc::http2::Server::Start(
        *address, {.loops = 1, .request_bytes = kMaxRequest}, {&service_}, {}, {});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    SetStarted();
    return absl::OkStatus();
  }

  std::string address() const { return options_.socket; }

 private:
  using Request = std::span<const uint8_t>;
  using Answer = absl::StatusOr<std::string>;

  void Stop(std::chrono::milliseconds grace) override {
    StopPages();
    if (server_ != nullptr) server_->Shutdown(grace);
  }

  ops::HttpAnswer Readiness() const override {
    return cluster::ProbeAnswer(draining() ? "not ready" : "");
  }

  // What is not here is UNIMPLEMENTED: nothing is staged, and nothing has a controller (S1).
  void AddMethods() {
    const auto constant = [this](const char* path, std::string answer) {
      service_.Add(path, [answer = std::move(answer)](Request) -> Answer { return answer; });
    };
    constant("/csi.v1.Identity/GetPluginInfo", EncodePluginInfo(kDriverName, kVersion));
    constant("/csi.v1.Identity/GetPluginCapabilities", "");
    constant("/csi.v1.Identity/Probe", EncodeReady());
    constant("/csi.v1.Node/NodeGetInfo", EncodeNodeInfo(options_.node_id));
    constant("/csi.v1.Node/NodeGetCapabilities", EncodeNodeCapabilities());
    service_.Add("/csi.v1.Node/NodePublishVolume", [this](Request bytes) -> Answer {
      const absl::StatusOr<PublishRequest> request = DecodePublish(bytes);
      if (!request.ok()) return request.status();
      return Empty(volumes_->Publish(*request));
    });
    service_.Add("/csi.v1.Node/NodeUnpublishVolume", [this](Request bytes) -> Answer {
      const absl::StatusOr<UnpublishRequest> request = DecodeUnpublish(bytes);
      if (!request.ok()) return request.status();
      return Empty(volumes_->Unpublish(*request));
    });
  }

  static Answer Empty(const absl::Status& status) {
    if (!status.ok()) return status;
    return std::string();
  }

  const NodeOptions options_;
  // Used by what the client answers, so they outlive it.
  std::optional<Events> events_;
  std::optional<Volumes> volumes_;
  std::unique_ptr<Client> client_;
  UnaryService service_;
  std::unique_ptr<rpc::http2::Server> server_;
};

absl::StatusOr<std::unique_ptr<Node>> Node::Start(NodeOptions options) {
  return cluster::Start<Impl, Node>(std::move(options), [](std::unique_ptr<Impl> impl) {
    return std::unique_ptr<Node>(new Node(std::move(impl)));
  });
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Node::~Node() = default;

int Node::http_port() const noexcept { return impl_->http_port(); }

std::string Node::address() const { return impl_->address(); }

void Node::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::kube::cosi
