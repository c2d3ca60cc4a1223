#include "cbt/c/server.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "base/text.h"
#include "c/abandoned.h"
#include "c/service_handle.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::c {
namespace {

using std::chrono::milliseconds;

// The greatest time that no clock overflows with: a year.
constexpr uint64_t kMaxServerMs = uint64_t{366} * 24 * 3600 * 1000;
constexpr uint64_t kMaxGraceMs = uint64_t{24} * 3600 * 1000;

}  // namespace

// The caller's function for log records.
class CallbackLog final : public rpc::LogSink {
 public:
  explicit CallbackLog(const cbt_server_options& options) noexcept : options_(options) {}
  ~CallbackLog() override {
    if (owns_) Release(options_.release, options_.user);
  }
  CallbackLog(const CallbackLog&) = delete;
  CallbackLog& operator=(const CallbackLog&) = delete;

  // From here on it calls `release`.
  void Own() noexcept { owns_ = true; }

  bool Wants(rpc::LogLevel level) const noexcept override {
    return options_.log != nullptr && NumberOf(level) >= options_.log_level;
  }

  // What it throws is dropped, like a record for which there is no memory.
  void Write(rpc::LogLevel level, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override try {
    std::vector<std::string> keys;
    std::vector<cbt_metadata> entries;
    keys.reserve(fields.size());
    for (const rpc::LogField& field : fields) {
      keys.emplace_back(field.key);
      entries.push_back({.key = keys.back().c_str(), .value = field.value.c_str()});
    }
    options_.log(options_.user, NumberOf(level), std::string(event).c_str(), entries.data(),
                 entries.size());
  } catch (...) {
    return;
  }

 private:
  static int32_t NumberOf(rpc::LogLevel level) noexcept {
    switch (level) {
      case rpc::LogLevel::kDebug:
        return CBT_LOG_DEBUG;
      case rpc::LogLevel::kInfo:
        return CBT_LOG_INFO;
      case rpc::LogLevel::kWarning:
        return CBT_LOG_WARNING;
      case rpc::LogLevel::kError:
        break;
    }
    return CBT_LOG_ERROR;
  }

  const cbt_server_options options_;
  bool owns_ = false;
};

// A server or a relay, and what both must not outlive.
struct Serving {
  explicit Serving(const cbt_server_options& options) noexcept : log(options) {}

  CallbackLog log;
  std::shared_ptr<StreamService> service;
  std::unique_ptr<rpc::TokenAccess> tokens;
  std::unique_ptr<rpc::SnapshotResolver> resolver;
  std::unique_ptr<rpc::SecretProvider> secrets;
  // One of them.
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<rpc::Relay> relay;
};

namespace {

absl::Status TooLong(std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ": expected at most a year"));
}

// Checks what the engine would not, and fills what a server and a relay have in common.
template <typename Options>
absl::Status Common(const cbt_server_options& given, Serving& parts, Options& options) {
  if (given.listen == nullptr) return IsNull("listen");
  if (given.log_level < 0 || given.log_level > CBT_LOG_ERROR) {
    return absl::InvalidArgumentError("log_level: unknown");
  }
  if (given.stall_ms > kMaxServerMs) return TooLong("stall_ms");
  if (given.stream_ms > kMaxServerMs) return TooLong("stream_ms");
  options.listen = given.listen;
  options.tls.certificate_file = Text(given.tls_certificate_file);
  options.tls.private_key_file = Text(given.tls_key_file);
  options.tls.client_ca_file = Text(given.tls_client_ca_file);
  rpc::StreamOptions& stream = options.service.stream;
  if (given.threads != 0) stream.threads = static_cast<size_t>(given.threads);
  if (given.max_streams != 0) stream.max_streams = static_cast<size_t>(given.max_streams);
  if (given.stall_ms != 0) stream.stall_timeout = milliseconds(given.stall_ms);
  stream.total_time = milliseconds(given.stream_ms);
  if (given.max_connections != 0) {
    options.connection.max_connections = static_cast<size_t>(given.max_connections);
  }
  options.service.reflection = given.no_reflection == 0;
  options.service.telemetry.log = &parts.log;
  return absl::OkStatus();
}

absl::StatusOr<cbt_server_options> ServerOptionsOf(const cbt_server_options* options) {
  if (options == nullptr) return IsNull("options");
  cbt_server_options copy;
  if (absl::Status status = ReadOptions(options, "options", copy); !status.ok()) return status;
  if (copy.log_level == 0) copy.log_level = CBT_LOG_WARNING;
  return copy;
}

absl::StatusOr<std::shared_ptr<Serving>> StartServer(const cbt_service& service,
                                                     const cbt_server_options& given) {
  auto parts = std::make_shared<Serving>(given);
  parts->service = service.service;
  rpc::ServerOptions options;
  options.service.stream = parts->service->stream;
  if (absl::Status status = Common(given, *parts, options); !status.ok()) return status;
  options.service.identity = !parts->service->plugin_name.empty();
  if (*options.service.identity) {
    options.service.plugin_name = parts->service->plugin_name;
    options.service.vendor_version = parts->service->vendor_version;
  }
  auto started = rpc::Server::Start(parts->service->provider, options);
  if (!started.ok()) return started.status();
  parts->server = *std::move(started);
  return parts;
}

// Who may ask a relay of the Kubernetes contract, and what their names mean.
absl::Status ReadAccess(const cbt_relay_options& given, Serving& parts,
                        rpc::AccessControl& access) {
  if (given.tokens_file == nullptr) {
    return absl::InvalidArgumentError(
        "tokens_file: CBT_CONTRACT_KUBERNETES needs it: it says who may ask");
  }
  absl::StatusOr<std::unique_ptr<rpc::TokenAccess>> tokens =
      rpc::MakeTokenFileAccess(given.tokens_file);
  if (!tokens.ok()) return tokens.status();
  parts.tokens = *std::move(tokens);
  if (given.snapshots_file == nullptr) {
    parts.resolver = rpc::MakeDirectoryResolver();
  } else {
    absl::StatusOr<std::unique_ptr<rpc::SnapshotResolver>> resolver =
        rpc::MakeFileResolver(given.snapshots_file);
    if (!resolver.ok()) return resolver.status();
    parts.resolver = *std::move(resolver);
  }
  if (given.secrets_file != nullptr) {
    absl::StatusOr<std::unique_ptr<rpc::SecretProvider>> secrets =
        rpc::MakeFileSecrets(given.secrets_file);
    if (!secrets.ok()) return secrets.status();
    parts.secrets = *std::move(secrets);
  }
  access.authenticator = parts.tokens.get();
  access.authorizer = parts.tokens.get();
  access.resolver = parts.resolver.get();
  access.secrets = parts.secrets.get();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Serving>> StartRelay(const cbt_relay_options& relay,
                                                    const cbt_server_options& given) {
  auto parts = std::make_shared<Serving>(given);
  rpc::RelayOptions options;
  if (absl::Status status = Common(given, *parts, options); !status.ok()) return status;
  if (relay.plugin == nullptr) return IsNull("plugin");
  if (relay.reserved != 0) return TooNew("relay");
  if (relay.plugin_stall_ms > kMaxServerMs) return TooLong("plugin_stall_ms");
  switch (relay.contract) {
    case CBT_CONTRACT_CSI:
      // They would have no effect, and their writer expects that they refuse strangers.
      if (relay.tokens_file != nullptr || relay.snapshots_file != nullptr ||
          relay.secrets_file != nullptr) {
        return absl::InvalidArgumentError(
            "tokens_file, snapshots_file and secrets_file: only CBT_CONTRACT_KUBERNETES has them");
      }
      options.service.apis = {rpc::Api::kCsi};
      break;
    case CBT_CONTRACT_KUBERNETES:
      options.service.apis = {rpc::Api::kKubernetes};
      if (absl::Status status = ReadAccess(relay, *parts, options.service.access); !status.ok()) {
        return status;
      }
      break;
    default:
      return absl::InvalidArgumentError(
          "contract: expected CBT_CONTRACT_CSI or CBT_CONTRACT_KUBERNETES");
  }
  options.plugin = relay.plugin;
  options.plugin_tls = {.enabled = relay.plugin_tls != 0,
                        .ca = Text(relay.plugin_ca),
                        .certificate = Text(relay.plugin_certificate),
                        .private_key = Text(relay.plugin_key)};
  options.service.base_is_handle = relay.base_is_name == 0;
  options.check_tuples = relay.unchecked == 0;
  options.require_message = relay.require_message != 0;
  if (relay.plugin_stall_ms != 0) {
    options.plugin_stall_timeout = milliseconds(relay.plugin_stall_ms);
  }
  auto started = rpc::Relay::Start(options);
  if (!started.ok()) return started.status();
  parts->relay = *std::move(started);
  return parts;
}

}  // namespace
}  // namespace cbt::c

struct cbt_server : cbt::c::Handle {
  explicit cbt_server(std::shared_ptr<cbt::c::Serving> started)
      : Handle(&kKind<cbt_server>), parts(std::move(started)) {}
  ~cbt_server() {
    if (!mark.IsOurs()) cbt::c::Abandon(std::move(parts));
  }
  cbt_server(const cbt_server&) = delete;
  cbt_server& operator=(const cbt_server&) = delete;

  const cbt::ProcessMark mark;
  std::shared_ptr<cbt::c::Serving> parts;
};

namespace cbt::c {
namespace {

absl::Status ReturnServer(absl::StatusOr<std::shared_ptr<Serving>> started, cbt_server** server) {
  if (!started.ok()) return started.status();
  Serving& parts = **started;
  *server = new cbt_server(*std::move(started));
  parts.log.Own();
  return absl::OkStatus();
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_server_start(const cbt_service* service, const cbt_server_options* options,
                          cbt_server** server, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (server == nullptr) return cbt::c::IsNull("server");
    *server = nullptr;
    if (absl::Status status = cbt::c::Check(service, "service"); !status.ok()) return status;
    const absl::StatusOr<cbt_server_options> how = cbt::c::ServerOptionsOf(options);
    if (!how.ok()) return how.status();
    return cbt::c::ReturnServer(cbt::c::StartServer(*service, *how), server);
  });
}

cbt_code cbt_relay_start(const cbt_relay_options* relay, const cbt_server_options* options,
                         cbt_server** server, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (server == nullptr) return cbt::c::IsNull("server");
    *server = nullptr;
    if (relay == nullptr) return cbt::c::IsNull("relay");
    cbt_relay_options copy;
    if (absl::Status status = cbt::c::ReadOptions(relay, "relay", copy); !status.ok()) {
      return status;
    }
    const absl::StatusOr<cbt_server_options> how = cbt::c::ServerOptionsOf(options);
    if (!how.ok()) return how.status();
    return cbt::c::ReturnServer(cbt::c::StartRelay(copy, *how), server);
  });
}

const char* cbt_server_address_borrowed(const cbt_server* server) noexcept {
  if (!cbt::c::Usable(server)) return nullptr;
  const cbt::c::Serving& parts = *server->parts;
  return parts.server != nullptr ? parts.server->address().c_str() : parts.relay->address().c_str();
}

uint64_t cbt_server_open_streams(const cbt_server* server) noexcept {
  if (!cbt::c::Usable(server) || !server->mark.IsOurs()) return 0;
  const cbt::c::Serving& parts = *server->parts;
  return parts.server != nullptr ? parts.server->open_streams() : parts.relay->open_streams();
}

cbt_code cbt_server_shutdown(cbt_server* server, uint64_t grace_ms, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(server, "server"); !status.ok()) return status;
    if (grace_ms > cbt::c::kMaxGraceMs) {
      return absl::InvalidArgumentError("grace_ms: expected at most a day");
    }
    if (!server->mark.IsOurs()) return cbt::c::IsParents("server");
    const std::chrono::milliseconds grace(grace_ms);
    cbt::c::Serving& parts = *server->parts;
    if (parts.server != nullptr) {
      parts.server->Shutdown(grace);
    } else {
      parts.relay->Shutdown(grace);
    }
    return absl::OkStatus();
  });
}

void cbt_server_free(cbt_server* server) noexcept { cbt::c::Free(server); }
