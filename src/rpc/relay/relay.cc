#include "cbt/rpc/relay.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/executor.h"
#include "cbt/version.h"
#include "rpc/contract/status.h"
#include "rpc/relay/plugin_errors.h"
#include "rpc/relay/plugin_watch.h"
#include "rpc/relay/relay_feed.h"
#include "rpc/server/service_host.h"
#include "rpc/server/services.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// What relayed streams turn over where messages are encoded anew.
constexpr size_t kIdleMessageMemory = size_t{8} << 20;

// Somebody else's cursor, whose errors are not for clients as they are.
class PluginCursor final : public ExtentCursor {
 public:
  PluginCursor(std::unique_ptr<ExtentCursor> input, const PluginErrors& errors, Secrets secrets)
      : ExtentCursor(input->capacity(), input->granularity()),
        input_(std::move(input)),
        errors_(errors),
        secrets_(std::move(secrets)) {}

 private:
  void DoAllowPieces() override { input_->AllowPieces(); }
  absl::Status DoSeek(uint64_t offset) override {
    return errors_.ForClient(input_->Seek(offset), secrets_);
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return errors_.ForClient(step.status(), secrets_);
    return input_->covered();
  }

  const std::unique_ptr<ExtentCursor> input_;
  const PluginErrors errors_;
  const Secrets secrets_;
};

class RemoteProvider final : public SnapshotProvider {
 public:
  // One channel, or why there is none: a connection for each page would cost more than the page.
  RemoteProvider(absl::StatusOr<std::shared_ptr<grpc::Channel>> channel, Api api,
                 const PluginErrors& errors, std::optional<milliseconds> stall = {})
      : channel_(std::move(channel)), api_(api), errors_(errors), stall_(stall) {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    return OpenForClient(std::nullopt, snapshot_id, context);
  }
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    return OpenForClient(std::string(base_snapshot_id), target_snapshot_id, context);
  }

 private:
  absl::StatusOr<MetadataSource> OpenForClient(std::optional<std::string> base,
                                               std::string_view target,
                                               const StreamContext& context) {
    absl::StatusOr<MetadataSource> source = Open(std::move(base), target, context);
    if (!source.ok()) return errors_.ForClient(source.status(), context.secrets);
    source->cursor =
        std::make_unique<PluginCursor>(std::move(source->cursor), errors_, context.secrets.Copy());
    return source;
  }

  absl::StatusOr<MetadataSource> Open(std::optional<std::string> base, std::string_view target,
                                      const StreamContext& context) {
    ListRequest request;
    request.api = api_;
    request.snapshot_id = std::string(target);
    request.base_snapshot_id = std::move(base);
    request.stop = context.stop;
    request.stall_timeout = stall_;
    context.secrets.ForEach(
        [&](const std::string& key, const std::string& value) { request.secrets[key] = value; });
    if (context.deadline.has_value()) {
      request.timeout =
          std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(
                                        *context.deadline - std::chrono::system_clock::now()));
    }
    if (!channel_.ok()) return channel_.status();
    absl::StatusOr<std::unique_ptr<RemoteCursor>> cursor =
        OpenRemoteCursor(request, [channel = *channel_] { return channel; });
    if (!cursor.ok()) return cursor.status();
    MetadataSource source;
    source.type = (*cursor)->type();
    source.block_size = (*cursor)->granularity();
    // A block size that no block has shown is not known; extents say the same then.
    if (source.block_size == 1) source.type = BlockMetadataType::kVariableLength;
    source.version = (*cursor)->source_version();
    source.proven = [remote = cursor->get()] {
      return remote->completeness() == Completeness::kProven;
    };
    source.cursor = *std::move(cursor);
    return source;
  }

  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel_;
  const Api api_;
  const PluginErrors errors_;
  const std::optional<milliseconds> stall_;
};

std::optional<milliseconds> StallOf(const RelayOptions& options) {
  if (options.plugin_stall_timeout.count() == 0) return std::nullopt;
  return options.plugin_stall_timeout;
}

absl::Status CheckOptions(const RelayOptions& options) {
  for (absl::Status status :
       {CheckStreamOptions(options.stream), CheckConnectionOptions(options.connection),
        CheckApis(options.apis, options.access, options.sessions)}) {
    if (!status.ok()) return status;
  }
  if (options.plugin_stall_timeout < milliseconds(0)) {
    return absl::InvalidArgumentError("plugin_stall_timeout: below 0");
  }
  return absl::OkStatus();
}

ServicePlan PlanOf(const RelayOptions& options) {
  return {.apis = options.apis,
          .access = options.access,
          .base_is_handle = options.base_is_handle,
          .sessions = options.sessions,
          .page_token_key = options.page_token_key.empty() ? "cbt page tokens of a relay"
                                                           : options.page_token_key,
          .plugin_name = "relay.libcbt.example.com",
          .vendor_version = kVersion,
          .stream = options.stream,
          .reflection = options.reflection,
          .telemetry = options.telemetry};
}

}  // namespace

class Relay::Impl {
 public:
  Impl(const RelayOptions& options, const Address& plugin)
      : host_(options.stream, options.telemetry),
        plan_{.channel = ConnectForGood(plugin, options.plugin_tls),
              .upstream = kCsiContract,
              .check_tuples = options.check_tuples,
              .message_bytes = options.stream.message_bytes,
              .pool = SlicePool::Create(options.stream.message_bytes, kIdleMessageMemory),
              .calls = calls_,
              .errors = PluginErrors(options.telemetry.log)},
        pages_(plan_.channel, Api::kCsi, plan_.errors, StallOf(options)),
        executor_(options.stream.threads),
        services_(PlanOf(options), Feeds(), pages_, host_.registry(), host_.small_calls(),
                  executor_),
        watch_(options.plugin_stall_timeout) {}

  // Calls know the services, which die first.
  ~Impl() { host_.Shutdown(milliseconds{0}); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Listen(const RelayOptions& options) {
    return host_.Listen(options.listen, options.tls, options.connection, options.stream.max_streams,
                        services_.services());
  }

  ServiceHost& host() noexcept { return host_; }

 private:
  FeedFactory Feeds() {
    return [this](const Contract& contract, AdmittedRequest request,
                  std::shared_ptr<StreamReactor> stream) {
      const std::stop_token stop = stream->stop_token();
      const auto deadline = stream->deadline();
      auto feed = std::make_shared<RelayFeed>(plan_, contract, std::move(request),
                                              std::move(stream), stop, deadline);
      watch_.Add(feed);
      return feed;
    };
  }

  ServiceHost host_;
  const RelayPlan plan_;
  // Streams that have ended for their clients may still have a call on the plan's channel.
  OpenCalls calls_;
  RemoteProvider pages_;
  ThreadPool executor_;
  ServiceSet services_;
  PluginWatch watch_;  // last: its thread looks at streams
};

absl::StatusOr<std::unique_ptr<Relay>> Relay::Start(const RelayOptions& options) try {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  absl::StatusOr<Address> plugin = ParseAddress(options.plugin);
  if (!plugin.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("plugin: ", plugin.status().message()));
  }
  auto impl = std::make_unique<Impl>(options, *plugin);
  if (absl::Status status = impl->Listen(options); !status.ok()) return status;
  return std::unique_ptr<Relay>(new Relay(std::move(impl)));
} catch (const std::system_error&) {
  return BareIfNeedBe(absl::StatusCode::kResourceExhausted, "threads: the system gives no more");
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

Relay::Relay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Relay::~Relay() = default;

int Relay::port() const noexcept { return impl_->host().port(); }

const std::string& Relay::address() const noexcept { return impl_->host().address(); }

void Relay::Shutdown(milliseconds grace) { impl_->host().Shutdown(grace); }

size_t Relay::open_streams() const noexcept { return impl_->host().registry().open_streams(); }

std::unique_ptr<SnapshotProvider> MakeRemoteProvider(const std::string& address, Api api,
                                                     const ClientTlsOptions& tls, LogSink* log) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = nullptr;
  if (const absl::StatusOr<Address> parsed = ParseAddress(address); parsed.ok()) {
    channel = ConnectForGood(*parsed, tls);
  } else {
    channel = parsed.status();
  }
  return std::make_unique<RemoteProvider>(std::move(channel), api, PluginErrors(log));
}

}  // namespace cbt::rpc
