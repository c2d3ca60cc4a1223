#include "programs/cosi/driver/driver.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/stop_wait.h"
#include "cbt/executor.h"
#include "net/address.h"
#include "ops/certificate_end.h"
#include "ops/event_log.h"
#include "ops/http_page.h"
#include "ops/metric_set.h"
#include "ops/operation_seconds.h"
#include "programs/cosi/driver/names.h"
#include "programs/cosi/driver/service.h"
#include "rpc/http2/server.h"

namespace cbt::cosi {
namespace {

constexpr uint32_t kMaxRequestBytes = 256 * 1024;  // 128 bucket IDs, and a policy's text

absl::StatusOr<net::Address> SocketOf(const std::string& endpoint) {
  absl::StatusOr<net::Address> address =
      net::ParseAddress(endpoint.starts_with('/') ? "unix://" + endpoint : endpoint);
  if (address.ok() && !address->is_unix) {
    return absl::InvalidArgumentError("endpoint: expected unix:///path");
  }
  return address;
}

}  // namespace

class CosiDriver::Impl {
 public:
  explicit Impl(const CosiDriverOptions& options)
      : options_(options),
        log_(options.log),
        seconds_("cbt_cosi_driver_operations_seconds",
                 "Time of calls of COSI's sidecars, with gRPC's code"),
        executor_(std::max<size_t>(1, options.threads)) {}

  ~Impl() { Shutdown(std::chrono::milliseconds(0)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Start() {
    if (absl::Status valid = CheckCosiDriverName(options_.driver_name); !valid.ok()) return valid;
    const absl::StatusOr<net::Address> address = SocketOf(options_.endpoint);
    if (!address.ok()) return address.status();
    absl::StatusOr<std::unique_ptr<BucketStore>> store = options_.open_store(stop_.get_token());
    if (!store.ok()) return store.status();
    store_ = *std::move(store);
    service_.emplace(
        *store_, DriverInfo{.name = options_.driver_name, .protocols = {Protocol::kS3}}, executor_,
        [this](std::string_view path, const absl::Status& status, std::chrono::nanoseconds time) {
          Note(path, status, time);
        });
    rpc::http2::ServerLimits limits;
    limits.request_bytes = kMaxRequestBytes;
    limits.connection.max_streams = CosiService::kMaxCalls;
    absl::StatusOr<std::unique_ptr<rpc::http2::Server>> server =
        rpc::http2::Server::Start(*address, limits, {&*service_}, {}, {.log = options_.log});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    ready_ = true;
    if (options_.http_endpoint.empty()) return absl::OkStatus();
    ops::AddCertificateEnd(metrics_, options_.page_access.certificate_file);
    absl::StatusOr<std::unique_ptr<ops::HttpPage>> page =
        ops::HttpPage::Serve({.endpoint = options_.http_endpoint, .access = options_.page_access},
                             [this](std::string_view path) { return Page(path); });
    if (!page.ok()) return page.status();
    page_ = *std::move(page);
    return absl::OkStatus();
  }

  std::string address() const { return server_->address().ToString(); }

  void Shutdown(std::chrono::milliseconds grace) {
    ready_ = false;
    const std::lock_guard lock(shutdown_);
    if (server_ == nullptr || stopped_) return;
    stopped_ = true;
    {
      // The server waits for every call, and a call for the backend.
      const std::jthread end([this, grace](const std::stop_token& done) {
        if (WaitUnlessStopped(done, grace)) stop_.request_stop();
      });
      server_->Shutdown(grace);
    }
    page_.reset();
  }

 private:
  void Note(std::string_view path, const absl::Status& status, std::chrono::nanoseconds time) {
    seconds_.Observe(options_.driver_name, path, status.code(), time);
    // Texts name buckets and accounts, and never keys.
    if (!status.ok()) {
      log_.Failed("call failed", status, {{.key = "method", .value = std::string(path)}});
    }
  }

  std::optional<ops::HttpAnswer> Page(std::string_view path) const {
    if (path == "/healthz" || path == "/livez") return ops::HttpAnswer{.text = "ok"};
    if (path == "/readyz") {
      return ready_ ? ops::HttpAnswer{.text = "ok"}
                    : ops::HttpAnswer{.ok = false, .text = "not ready"};
    }
    if (path == "/metrics") return ops::HttpAnswer{.text = seconds_.Text() + metrics_.Text()};
    return std::nullopt;
  }

  const CosiDriverOptions options_;
  ops::EventLog log_;
  ops::OperationSeconds seconds_;
  ops::MetricSet metrics_;
  std::atomic<bool> ready_ = false;
  std::mutex shutdown_;
  bool stopped_ = false;
  std::stop_source stop_;

  // Each uses those before it.
  std::unique_ptr<BucketStore> store_;
  ThreadPool executor_;
  std::optional<CosiService> service_;
  std::unique_ptr<rpc::http2::Server> server_;
  std::unique_ptr<ops::HttpPage> page_;
};

CosiDriver::CosiDriver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CosiDriver::~CosiDriver() = default;

absl::StatusOr<std::unique_ptr<CosiDriver>> CosiDriver::Start(
    const CosiDriverOptions& options) try {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<CosiDriver>(new CosiDriver(std::move(impl)));
} catch (const std::system_error&) {
  return absl::ResourceExhaustedError("threads: the system can't start more");
}

std::string CosiDriver::address() const { return impl_->address(); }

void CosiDriver::Shutdown(std::chrono::milliseconds grace) { impl_->Shutdown(grace); }

}  // namespace cbt::cosi
