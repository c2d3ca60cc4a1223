#include "programs/driver/driver.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/grpc/service.h"
#include "cbt/ops/metrics.h"
#include "net/address.h"
#include "net/socket_file.h"
#include "ops/certificate_end.h"
#include "ops/http_page.h"
#include "ops/metric_set.h"
#include "programs/driver/controller_service.h"
#include "programs/driver/group_service.h"
#include "programs/driver/identity_service.h"
#include "programs/driver/metadata_provider.h"
#include "programs/driver/node_service.h"

namespace cbt::driver {
namespace {

constexpr size_t kMaxNodeIdBytes = 192;  // what the contract allows every plugin

absl::Status CheckOptions(const DriverOptions& options) {
  if (options.node_id.empty() || options.node_id.size() > kMaxNodeIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("node id: expected 1 to ", kMaxNodeIdBytes, " bytes"));
  }
  if (options.state_directory.empty() || options.state_directory.front() != '/') {
    return absl::InvalidArgumentError("state directory: expected an absolute path");
  }
  return CheckDriverName(options.driver_name);
}

// A path as Kubernetes' components take it is an address too.
absl::StatusOr<net::Address> AddressOf(const std::string& endpoint) {
  absl::StatusOr<net::Address> address =
      net::ParseAddress(endpoint.starts_with('/') ? "unix://" + endpoint : endpoint);
  if (address.ok() && !address->is_unix) {
    return absl::InvalidArgumentError("endpoint: expected unix:///path");
  }
  return address;
}

}  // namespace

class Driver::Impl {
 public:
  explicit Impl(const DriverOptions& options)
      : options_(options), calls_(options.driver_name, options.log) {}

  ~Impl() {
    Shutdown(std::chrono::milliseconds(0));
    page_.reset();
    server_.reset();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status valid = CheckOptions(options_); !valid.ok()) return valid;
    const absl::StatusOr<net::Address> address = AddressOf(options_.endpoint);
    if (!address.ok()) return address.status();
    address_ = *address;
    if (!options_.http_endpoint.empty()) {
      absl::StatusOr<std::unique_ptr<ops::HttpPage>> page =
          ops::HttpPage::Serve({.endpoint = options_.http_endpoint, .access = options_.page_access},
                               [this](std::string_view path) { return Page(path); });
      if (!page.ok()) return page.status();
      page_ = *std::move(page);
    }
    absl::StatusOr<std::unique_ptr<Store>> store =
        Store::Open({.state_directory = options_.state_directory,
                     .capacity = options_.capacity,
                     .marks = options_.marks,
                     .report = [this](const std::string& id, const absl::Status& why) {
                       calls_.log().Failed("volume problem", why, {{.key = "volume", .value = id}});
                     }});
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    node_.emplace(*store_,
                  NodeOptions{.device = options_.device,
                              .volume_host = options_.volume_host,
                              .changed = [this](const std::string& id, const VolumeHealth& health) {
                                LogHealth(id, health);
                              }});
    AddVolumeMetrics();
    node_->Start();
    provider_.emplace(*store_);
    return Serve();
  }

  std::string address() const { return address_.ToString(); }

  void Shutdown(std::chrono::milliseconds grace) {
    ready_ = false;
    const std::lock_guard lock(shutdown_);
    if (server_ == nullptr || stopped_) return;
    stopped_ = true;
    const auto latest = std::chrono::system_clock::now() + grace;
    // The server would wait for the streams.
    metadata_->Shutdown(grace);
    server_->Shutdown(latest);
    server_->Wait();
  }

 private:
  absl::Status Serve() {
    const NodeTopology topology = {.key = "topology." + options_.driver_name + "/node",
                                   .node_id = options_.node_id};
    identity_.emplace(calls_, options_.driver_name, options_.device, options_.marks.count > 0,
                      [this] { return ready_.load(); });
    controller_.emplace(
        calls_, *store_, topology,
        [this](const std::string& id) { return node_->host().health(id); },
        [this](const std::string& id) { return node_->Expand(id, "a device").status(); });
    groups_.emplace(calls_, *store_, topology);
    node_service_.emplace(calls_, *node_, topology);
    absl::StatusOr<std::unique_ptr<rpc::GrpcService>> metadata = rpc::GrpcService::Create(
        *provider_, {.telemetry = {.observer = streams_.get(), .log = options_.log}});
    if (!metadata.ok()) return metadata.status();
    metadata_ = *std::move(metadata);
    absl::StatusOr<std::unique_ptr<net::SocketFile>> socket = net::SocketFile::Claim(address_.path);
    if (!socket.ok()) return socket.status();
    socket_ = *std::move(socket);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_.GrpcTarget(), grpc::InsecureServerCredentials());
    builder.RegisterService(&*identity_);
    builder.RegisterService(&*controller_);
    builder.RegisterService(&*groups_);
    builder.RegisterService(&*node_service_);
    builder.RegisterService(metadata_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("endpoint: ", options_.endpoint, ": can't listen on this socket"));
    }
    if (absl::Status mode = socket_->SetMode(); !mode.ok()) return mode;
    if (options_.socket_group.has_value()) {
      if (absl::Status given = socket_->SetGroup(*options_.socket_group); !given.ok()) return given;
    }
    ready_ = true;
    return absl::OkStatus();
  }

  std::optional<ops::HttpAnswer> Page(std::string_view path) const {
    if (path == "/healthz" || path == "/livez") return ops::HttpAnswer{.text = "ok"};
    if (path == "/readyz") {
      return ready_ ? ops::HttpAnswer{.ok = true, .text = "ok"}
                    : ops::HttpAnswer{.ok = false, .text = "not ready"};
    }
    if (path == "/metrics") {
      return ops::HttpAnswer{.text = streams_->Text() + calls_.Text() +
                                     (ready_ ? volumes_.Text() : std::string())};
    }
    return std::nullopt;
  }

  // A server that has ended is started again; that it did end is for an operator to know.
  void LogHealth(const std::string& id, const VolumeHealth& health) {
    if (id.empty()) {
      calls_.log().Write(rpc::LogLevel::kWarning, health.serving() ? "volume host answers again"
                                                                   : "volume host does not answer");
    } else if (health.serving()) {
      calls_.log().Write(rpc::LogLevel::kWarning, "volume served again",
                         {{.key = "volume", .value = id},
                          {.key = "restarts", .value = absl::StrCat(health.restarts)}});
    } else {
      calls_.log().Failed("volume not served", absl::UnavailableError(health.error),
                          {{.key = "volume", .value = id},
                           {.key = "restarts", .value = absl::StrCat(health.restarts)}});
    }
    if (options_.changed) options_.changed(id, health);
  }

  void AddVolumeMetrics() {
    ops::AddCertificateEnd(volumes_, options_.page_access.certificate_file);
    const HostClient& host = node_->host();
    volumes_.AddGauge("cbt_volumes_not_served", "Attached volumes whose requests wait or fail",
                      [&host] { return static_cast<double>(host.unserved()); });
    volumes_.AddCounter("cbt_volume_server_restarts_total",
                        "Servers of volumes that ended and were started again",
                        [&host] { return static_cast<double>(host.restarts()); });
  }

  const DriverOptions options_;
  net::Address address_;
  Calls calls_;
  const std::unique_ptr<ops::Metrics> streams_ = ops::Metrics::Create();
  ops::MetricSet volumes_;  // shown once ready
  std::atomic<bool> ready_ = false;
  std::mutex shutdown_;
  bool stopped_ = false;

  // Each uses those before it.
  std::unique_ptr<ops::HttpPage> page_;
  std::unique_ptr<Store> store_;
  std::optional<Node> node_;
  std::optional<MetadataProvider> provider_;
  std::optional<IdentityService> identity_;
  std::optional<ControllerService> controller_;
  std::optional<GroupService> groups_;
  std::optional<NodeService> node_service_;
  std::unique_ptr<rpc::GrpcService> metadata_;
  std::unique_ptr<net::SocketFile> socket_;
  std::unique_ptr<grpc::Server> server_;
};

Driver::Driver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Driver::~Driver() = default;

absl::StatusOr<std::unique_ptr<Driver>> Driver::Start(const DriverOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<Driver>(new Driver(std::move(impl)));
}

std::string Driver::address() const { return impl_->address(); }

void Driver::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::driver
