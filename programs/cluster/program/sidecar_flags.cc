#include "programs/cluster/program/sidecar_flags.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/config.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "programs/sidecar/go_tls.h"

namespace cbt::cli {
namespace {

using kube::sidecar::BasePolicy;
using kube::sidecar::MissingCode;
using std::chrono::milliseconds;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread runs yet
  return value == nullptr ? "" : value;
}

// A time as Go writes it, or in seconds as other commands take it.
GoFlags::Flag Time(std::string name, milliseconds* target, std::string shown, std::string usage) {
  return {.name = std::move(name),
          .type = "duration",
          .shown = std::move(shown),
          .usage = std::move(usage),
          .set = [target](std::string_view text) {
            absl::StatusOr<milliseconds> time = ParseGoDuration(text);
            if (!time.ok()) time = ParseSeconds(text);
            if (!time.ok()) return time.status();
            if (time->count() < 0) return absl::InvalidArgumentError("negative");
            *target = *time;
            return absl::OkStatus();
          }};
}

GoFlags::Flag Count(std::string name, size_t* target, uint64_t most, std::string shown,
                    std::string usage) {
  return {.name = std::move(name),
          .type = "N",
          .shown = std::move(shown),
          .usage = std::move(usage),
          .set = [target, most](std::string_view text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, most);
            if (!value.ok()) return value.status();
            if (*value == 0) return absl::InvalidArgumentError("not above 0");
            *target = static_cast<size_t>(*value);
            return absl::OkStatus();
          }};
}

// One of several words.
template <typename Value>
GoFlags::Flag Choice(std::string name, Value* target,
                     std::vector<std::pair<std::string, Value>> choices, std::string usage) {
  std::string type;
  std::string shown;
  for (const auto& [word, value] : choices) {
    absl::StrAppend(&type, type.empty() ? "" : "|", word);
    if (value == *target) shown = word;
  }
  return {.name = std::move(name),
          .type = type,
          .shown = std::move(shown),
          .usage = std::move(usage),
          .set = [target, type, choices = std::move(choices)](std::string_view text) {
            for (const auto& [word, value] : choices) {
              if (word != text) continue;
              *target = value;
              return absl::OkStatus();
            }
            return absl::InvalidArgumentError("expected " + type);
          }};
}

absl::Status SetApis(std::string_view text, std::vector<rpc::Api>& apis) {
  std::vector<rpc::Api> chosen = {rpc::Api::kKubernetes};
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::optional<rpc::Api> api = rpc::ParseApi(std::string(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (!api.has_value()) {
      return absl::InvalidArgumentError("expected kubernetes, session, csi or paged");
    }
    if (std::find(chosen.begin(), chosen.end(), *api) == chosen.end()) chosen.push_back(*api);
  }
  apis = std::move(chosen);
  return absl::OkStatus();
}

// Flags of klog that change nothing here: there is one log, to stderr or --log-file.
void AddIgnored(GoFlags& flags) {
  for (const char* const name :
       {"logtostderr", "alsologtostderr", "add_dir_header", "skip_headers", "skip_log_headers",
        "one_output", "legacy_stderr_threshold_behavior"}) {
    flags.Add({.name = name,
               .type = "",
               .shown = "",
               .usage = "Of klog; accepted without effect",
               .set = [](std::string_view text) { return ParseGoBool(text).status(); }});
  }
  for (const char* const name : {"vmodule", "log_dir", "log_file", "log_file_max_size",
                                 "log_backtrace_at", "stderrthreshold"}) {
    flags.Add({.name = name,
               .type = "string",
               .shown = "",
               .usage = "Of klog; accepted without effect",
               .set = [](std::string_view) { return absl::OkStatus(); }});
  }
}

// klog's level 4 is where the Go program begins to log calls.
constexpr int64_t kDebugFrom = 4;

absl::Status NamedError(const char* flag, const absl::Status& status) {
  return {status.code(), absl::StrCat("-", flag, ": ", status.message())};
}

absl::StatusOr<rpc::TlsOptions> TlsOf(const SidecarFlags& flags,
                                      std::vector<std::string>& warnings) {
  rpc::TlsOptions tls;
  tls.certificate_file = flags.tls_cert;
  tls.private_key_file = flags.tls_key;
  tls.client_ca_file = flags.serving.tls_client_ca;
  const absl::StatusOr<rpc::TlsVersion> version =
      kube::sidecar::ParseTlsVersion(flags.tls_min_version);
  if (!version.ok()) return NamedError("tls-min-version", version.status());
  tls.min_version = *version;
  const auto take = [&warnings](const char* flag,
                                const absl::StatusOr<kube::sidecar::OpenSslNames>& names,
                                std::string& target) {
    if (!names.ok()) return NamedError(flag, names.status());
    target = names->names;
    for (const std::string& dropped : names->dropped) {
      warnings.push_back(absl::StrCat("-", flag, ": ", dropped, " is left out"));
    }
    return absl::OkStatus();
  };
  if (absl::Status status =
          take("tls-cipher-suites", kube::sidecar::ParseCipherSuites(flags.tls_cipher_suites),
               tls.ciphers);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          take("tls-curve-preferences",
               kube::sidecar::ParseCurvePreferences(flags.tls_curve_preferences), tls.groups);
      !status.ok()) {
    return status;
  }
  return tls;
}

bool Serves(const SidecarFlags& flags, rpc::Api api) {
  const std::vector<rpc::Api>& apis = flags.serving.apis;
  return std::find(apis.begin(), apis.end(), api) != apis.end();
}

absl::Status CheckFlags(const SidecarFlags& flags) {
  if (flags.csi_address.empty()) return UsageError("-csi-address", "missing");
  if (flags.timeout.count() <= 0) return UsageError("-timeout", "must be greater than 0");
  if (flags.port <= 0 || flags.port > 65535) return UsageError("-port", "expected 1 to 65535");
  if (flags.tls_cert.empty()) return UsageError("-tls-cert", "missing");
  if (flags.tls_key.empty()) return UsageError("-tls-key", "missing");
  if (flags.kube_api_qps < 0) return UsageError("-kube-api-qps", "negative");
  if (flags.kube_api_burst < 1 || flags.kube_api_burst > 1'000'000) {
    return UsageError("-kube-api-burst", "expected 1 to 1000000");
  }
  // These check no token: any Pod that reaches the port could read everything.
  if ((Serves(flags, rpc::Api::kCsi) || Serves(flags, rpc::Api::kPaged)) &&
      flags.serving.tls_client_ca.empty()) {
    return UsageError("-api", "csi and paged check no token, and need -tls-client-ca");
  }
  const bool has_cluster_flags = !flags.publish_sessions.empty() ||
                                 !flags.session_configuration.empty() ||
                                 !flags.session_namespace.empty();
  if (has_cluster_flags &&
      (!Serves(flags, rpc::Api::kSession) || !flags.serving.sessions.empty())) {
    return UsageError("-publish-sessions, -session-configuration, -session-namespace",
                      "only with -api session, and without -sessions");
  }
  if (!flags.session_configuration.empty() && flags.publish_sessions.empty()) {
    return UsageError("-session-configuration", "only with -publish-sessions");
  }
  return absl::OkStatus();
}

absl::StatusOr<kube::Config> ClusterOf(const std::string& kubeconfig) {
  if (kubeconfig.empty()) return kube::LoadInClusterConfig();
  return kube::LoadKubeconfig({.files = {kubeconfig}});
}

}  // namespace

void SidecarFlags::AddTo(GoFlags& flags) {
  tls_cert = Environment("TLS_CERT_PATH");
  tls_key = Environment("TLS_KEY_PATH");
  serving.apis = {rpc::Api::kKubernetes};
  serving.grace = std::chrono::seconds(25);
  flags.Add("csi-address", &csi_address, "The plugin's socket: a path, or unix:///path");
  flags.Add("timeout", &timeout, "Time limit of short calls to the plugin");
  flags.Add("port", &port, "The port of the service, on every address");
  flags.Add("tls-cert", &tls_cert, "Certificate chain (PEM); or the variable TLS_CERT_PATH",
            "FILE");
  flags.Add("tls-key", &tls_key, "Its private key (PEM); or the variable TLS_KEY_PATH", "FILE");
  flags.Add("tls-min-version", &tls_min_version, "VersionTLS12 or VersionTLS13");
  flags.Add("tls-cipher-suites", &tls_cipher_suites,
            "Ciphers of TLS 1.2 by Go's names, separated by commas");
  flags.Add("tls-curve-preferences", &tls_curve_preferences,
            "X25519, CurveP256, CurveP384, CurveP521, X25519MLKEM768, separated by commas");
  flags.Add("audience", &audience,
            "Audience of tokens; default: that of the driver's SnapshotMetadataService object");
  flags.Add("max-streaming-duration-min", &max_streaming_duration_min,
            "Time limit of a stream in minutes");
  const auto limited = [this](GoFlags::Set set) {
    return [this, set = std::move(set)](std::string_view text) {
      limit_callers = true;
      return set(text);
    };
  };
  flags.Add({.name = "kube-api-qps",
             .type = "float",
             .shown = "5",
             .usage = "Requests a second to the API server for watches; if given, also for callers",
             .set = limited([this](std::string_view text) {
               const absl::StatusOr<double> value = ParseGoFloat(text);
               if (value.ok()) kube_api_qps = *value;
               return value.status();
             })});
  flags.Add({.name = "kube-api-burst",
             .type = "int",
             .shown = "10",
             .usage = "How many of these at once",
             .set = limited([this](std::string_view text) {
               const absl::StatusOr<int64_t> value = ParseGoInt(text);
               if (value.ok()) kube_api_burst = *value;
               return value.status();
             })});
  flags.Add("kubeconfig", &kubeconfig, "How to reach the API server; default: as in a Pod", "FILE");
  flags.Add("http-endpoint", &http_endpoint, "Where /health and the metrics are: host:port",
            "ADDR");
  flags.Add("metrics-path", &metrics_path, "The path of the metrics", "PATH");
  flags.Add("disable-metrics", &disable_metrics, "Serve no metrics");
  flags.Add("version", &version, "Print the version");
  flags.Add("v", &v, "Level of the log as klog counts: 4 and above is --log-level debug");
  AddIgnored(flags);

  flags.Add("publish", &publish,
            "Keep the driver's SnapshotMetadataService object current: host:port for clients",
            "ADDR");
  flags.Add(
      "publish-sessions", &publish_sessions,
      "Keep the driver's SnapshotServicesConfiguration object current (session): host:port for "
      "clients",
      "ADDR");
  flags.Add("session-configuration", &session_configuration,
            "Name of that object; default: the driver's", "NAME");
  flags.Add("session-namespace", &session_namespace,
            "Namespace of the sessions' data (session); default: that of the Pod or the kubeconfig",
            "NAME");
  flags.Add("publish-ca", &publish_ca,
            "The CA to publish (PEM); default: ca.crt beside --tls-cert, or --tls-cert itself",
            "FILE");
  flags.Add(
      Choice<BasePolicy>("base-policy", &base_policy,
                         {{"handle-in-namespace", BasePolicy::kHandleInNamespace},
                          {"handle", BasePolicy::kHandle},
                          {"name", BasePolicy::kName}},
                         "The base of a delta: the handle of a snapshot of the namespace, any "
                         "handle, or a name"));
  flags.Add(Choice<MissingCode>(
      "missing-snapshot-code", &missing_code,
      {{"not-found", MissingCode::kNotFound}, {"unavailable", MissingCode::kUnavailable}},
      "The code for a snapshot that does not exist"));
  flags.Add("events", &events,
            "Say what an operator must see in Events, too: of the SnapshotMetadataService object");
  flags.Add(
      "metrics-token", &page_access.token_file,
      "Scrapers need the token in this file for /metrics: Authorization: Bearer; default: none",
      "FILE");
  flags.Add("metrics-tls-cert", &page_access.certificate_file,
            "HTTPS for the pages of --http-endpoint: certificate chain (PEM); default: HTTP",
            "FILE");
  flags.Add("metrics-tls-key", &page_access.private_key_file, "Its private key (PEM)", "FILE");
  flags.Add("no-check", &no_check, "Forward tuples without checking them");
  flags.Add("require-message", &require_message,
            "Refuse a plugin's answer without a message, instead of taking it for an empty one");
  flags.Add({.name = "api",
             .type = "LIST",
             .shown = "kubernetes",
             .usage = "Further contracts, separated by commas: session, csi, paged",
             .set = [this](std::string_view text) { return SetApis(text, serving.apis); }});
  flags.Add("sessions", &serving.sessions,
            "Sessions (session): lines of token, namespace, snapshots, expiry; default: those "
            "of the session manager",
            "FILE");
  flags.Add("page-key", &serving.page_key, "Secret that seals page tokens (paged)", "FILE");
  flags.Add("tls-client-ca", &serving.tls_client_ca,
            "Require client certificates of this authority (PEM)", "FILE");
  flags.Add(Choice<std::optional<rpc::LogLevel>>("log-level", &serving.log_level,
                                                 {{"debug", rpc::LogLevel::kDebug},
                                                  {"info", rpc::LogLevel::kInfo},
                                                  {"warning", rpc::LogLevel::kWarning},
                                                  {"error", rpc::LogLevel::kError}},
                                                 "Level of the log; default: info, or see -v"));
  flags.Add("log-file", &serving.log_file, "Append the log to this file instead of stderr", "FILE");
  flags.Add({.name = "max-streams",
             .type = "N",
             .shown = "1024",
             .usage = "Maximum number of open streams",
             .set = [this](std::string_view text) {
               size_t value = 0;
               const absl::Status status = Count("", &value, 1 << 20, "", "").set(text);
               if (status.ok()) serving.max_streams = value;
               return status;
             }});
  flags.Add(Time("stall-time", &serving.stall_time, "5m",
                 "Cancel a stream whose client reads nothing for this long"));
  flags.Add(Time("plugin-stall-time", &plugin_stall_time, "30m",
                 "End a stream whose plugin sends nothing for this long; 0: no limit"));
  flags.Add(Count("max-connections", &serving.connection.max_connections, 1 << 20, "6000",
                  "Maximum number of connections"));
  flags.Add(Count("memory", &serving.connection.memory_quota, kTiB, "256M",
                  "Bytes that all connections may hold"));
  flags.Add(Time("handshake-time", &serving.connection.handshake_time, "20s",
                 "Time limit of the handshakes of TLS and HTTP/2"));
  flags.Add(Time("idle-time", &serving.connection.idle_time, "0",
                 "Close a connection that has had no stream for this long; 0: never"));
  flags.Add(Time("connection-age", &serving.connection.max_age, "0",
                 "A connection of this age takes no new streams; 0: no limit"));
  flags.Add({.name = "ready-fd",
             .type = "N",
             .shown = "",
             .usage = "When ready, write the address to this descriptor and close it",
             .set = [this](std::string_view text) {
               const absl::StatusOr<uint64_t> value = ParseNumber(text, 1 << 20);
               if (value.ok()) serving.ready_descriptor = static_cast<int>(*value);
               return value.status();
             }});
  flags.Add(
      Time("grace", &serving.grace, "25s", "Time for open streams to finish after a stop signal"));
}

absl::StatusOr<kube::sidecar::Options> SidecarFlags::ToOptions(
    std::vector<std::string>& warnings) const {
  if (absl::Status status = CheckFlags(*this); !status.ok()) return status;
  kube::sidecar::Options options;
  absl::StatusOr<rpc::TlsOptions> tls = TlsOf(*this, warnings);
  if (!tls.ok()) return tls.status();
  rpc::RelayOptions& relay = options.relay;
  relay.tls = *std::move(tls);
  relay.listen = absl::StrCat("[::]:", port);
  relay.service.apis = serving.apis;
  relay.plugin = csi_address.starts_with('/') ? "unix://" + csi_address : csi_address;
  relay.check_tuples = !no_check;
  relay.require_message = require_message;
  relay.plugin_stall_timeout = plugin_stall_time;
  relay.connection = serving.connection;
  if (serving.max_streams.has_value()) relay.service.stream.max_streams = *serving.max_streams;
  relay.service.stream.stall_timeout = serving.stall_time;
  constexpr int64_t kMaxMinutes = 60 * 24 * 365;
  relay.service.stream.total_time = std::chrono::minutes(
      max_streaming_duration_min <= 0 ? 10 : std::min(max_streaming_duration_min, kMaxMinutes));
  if (!serving.page_key.empty()) {
    absl::StatusOr<std::string> key = ReadTextFile("-page-key", serving.page_key);
    if (!key.ok()) return key.status();
    if (key->size() < 16) {
      return UsageError("-page-key: " + serving.page_key, "a key needs at least 16 bytes");
    }
    relay.service.page_token_key = *std::move(key);
  }
  options.plugin_timeout = timeout;
  absl::StatusOr<kube::Config> cluster = ClusterOf(kubeconfig);
  if (!cluster.ok()) return NamedError("kubeconfig", cluster.status());
  if (serving.sessions.empty() && Serves(*this, rpc::Api::kSession)) {
    options.sessions = {
        .name_space = session_namespace.empty() ? cluster->name_space : session_namespace,
        .address = publish_sessions,
        .configuration = session_configuration};
  }
  options.cluster = *std::move(cluster);
  options.client.qps = kube_api_qps;
  options.client.burst = static_cast<int>(kube_api_burst);
  options.client.user_agent = "csi-snapshot-metadata";
  options.limit_callers = limit_callers;
  options.audience = audience;
  options.base_policy = base_policy;
  options.missing_code = missing_code;
  options.publication = {.address = publish, .ca_file = publish_ca};
  options.http_endpoint = http_endpoint;
  options.page_access = page_access;
  options.events = events;
  options.metrics_path = disable_metrics ? "" : metrics_path;
  return options;
}

}  // namespace cbt::cli
