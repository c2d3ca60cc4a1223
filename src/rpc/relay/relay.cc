#include "cbt/rpc/relay.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "cbt/version.h"
#include "net/address.h"
#include "net/loop_threads.h"
#include "rpc/client/connect.h"
#include "rpc/contract/status.h"
#include "rpc/http2/server.h"
#include "rpc/relay/plugin_errors.h"
#include "rpc/relay/plugin_watch.h"
#include "rpc/relay/relay_feed.h"
#include "rpc/relay/remote_provider.h"
#include "rpc/server/service_host.h"
#include "rpc/server/services.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// Buffer memory of relayed streams whose messages are reencoded.
constexpr size_t kIdleMessageMemory = 8 * kMiB;

std::optional<milliseconds> StallOf(const RelayOptions& options) {
  if (options.plugin_stall_timeout.count() == 0) return std::nullopt;
  return options.plugin_stall_timeout;
}

ServiceOptions ServiceOptionsOf(const RelayOptions& options) {
  ServiceOptions service = options.service;
  service.identity = true;
  service.plugin_name = "relay.libcbt.example.com";
  service.vendor_version = kVersion;
  if (service.page_token_key.empty()) service.page_token_key = "cbt page tokens of a relay";
  return WithDefaults(std::move(service), Api::kKubernetes, true);
}

}  // namespace

class Relay::Impl {
 public:
  // `plugin`: a channel for each of `loops`.
  Impl(const RelayOptions& options, const ServiceOptions& service,
       std::unique_ptr<net::LoopThreads> loops, std::vector<std::shared_ptr<Channel>> plugin)
      : loops_(std::move(loops)),
        host_(service),
        plugin_(std::move(plugin)),
        plan_{.upstream = kCsiContract,
              .check_tuples = options.check_tuples,
              .require_message = options.require_message,
              .message_bytes = service.stream.message_bytes,
              .pool = SlicePool::Create(service.stream.message_bytes, kIdleMessageMemory),
              .calls = calls_,
              .errors = PluginErrors(service.telemetry.log)},
        pages_(MakeRemoteProvider(plugin_.front(), Api::kCsi, plan_.errors, StallOf(options))),
        services_(host_.Limited(service), *pages_, host_.registry(), host_.small_calls(), Feeds()),
        watch_(options.plugin_stall_timeout) {
    host_.SetServing(options.serving);
  }

  // Calls refer to the services, which are destroyed first.
  ~Impl() { host_.Shutdown(milliseconds{0}); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Listen(const RelayOptions& options) {
    return host_.Listen(options.listen, options.tls, options.connection, services_.services(),
                        loops_.get());
  }

  ServiceHost& host() noexcept { return host_; }

 private:
  FeedFactory Feeds() {
    return [this](const Contract& contract, AdmittedRequest request,
                  std::shared_ptr<ServerStream> stream) {
      const std::stop_token stop = stream->stop_token();
      const auto deadline = stream->deadline();
      Channel& plugin = *plugin_[stream->loop()];
      auto feed = std::make_shared<RelayFeed>(plan_, plugin, contract, std::move(request),
                                              std::move(stream), stop, deadline);
      watch_.Add(feed);
      return feed;
    };
  }

  const std::unique_ptr<net::LoopThreads> loops_;  // of both sides
  ServiceHost host_;
  // In the loop of its client's connection, a message is passed on without a hand-over.
  const std::vector<std::shared_ptr<Channel>> plugin_;
  const RelayPlan plan_;
  // Streams that have ended for their clients may still have a call of the plugin.
  OpenCalls calls_;
  std::unique_ptr<SnapshotProvider> pages_;
  ServiceSet services_;
  PluginWatch watch_;  // last: its thread checks streams
};

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(const RelayOptions& options) try {
  const ServiceOptions service = ServiceOptionsOf(options);
  if (absl::Status status = CheckServiceOptions(service); !status.ok()) return status;
  if (absl::Status status = CheckConnectionOptions(options.connection); !status.ok()) return status;
  if (options.plugin_stall_timeout < milliseconds(0)) {
    return absl::InvalidArgumentError("plugin_stall_timeout: expected 0 or more");
  }
  absl::StatusOr<net::Address> plugin = net::ParseAddress(options.plugin);
  if (!plugin.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("plugin: ", plugin.status().message()));
  }
  absl::StatusOr<std::unique_ptr<net::LoopThreads>> loops =
      net::LoopThreads::Create(http2::ServerLimits().loops);
  if (!loops.ok()) return loops.status();
  absl::StatusOr<std::vector<std::shared_ptr<Channel>>> channels =
      ConnectInLoops(*plugin, options.plugin_tls, **loops);
  if (!channels.ok()) return channels.status();
  auto impl = std::make_unique<Impl>(options, service, *std::move(loops), *std::move(channels));
  if (absl::Status status = impl->Listen(options); !status.ok()) return status;
  return std::unique_ptr<Relay>(new Relay(std::move(impl)));
} catch (const std::system_error&) {
  return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                           "threads: the system can't start more");
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

Relay::Relay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Relay::~Relay() = default;

int Relay::port() const noexcept { return impl_->host().port(); }

const std::string& Relay::address() const noexcept { return impl_->host().address(); }

void Relay::Shutdown(milliseconds grace) { impl_->host().Shutdown(grace); }

void Relay::SetServing(bool serving) { impl_->host().SetServing(serving); }

size_t Relay::open_streams() const noexcept { return impl_->host().registry().open_streams(); }

}  // namespace cbt::rpc
