#include "programs/cbt/options/remote_options.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/options/kube_address.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

using NamedApi = std::pair<std::string, rpc::Api>;

std::vector<NamedApi> NamedApis() {
  std::vector<NamedApi> named;
  for (const rpc::Api api :
       {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kPaged}) {
    named.emplace_back(rpc::ApiName(api), api);
  }
  return named;
}

// A wait of minutes is many attempts for one reason: one warning in half a minute is enough.
class LastWarning {
 public:
  bool IsNews(uint64_t offset, const absl::Status& reason) {
    constexpr std::chrono::seconds kInterval{30};
    const auto now = std::chrono::steady_clock::now();
    if (offset_ == offset && reason_ == reason && now - at_ < kInterval) return false;
    offset_ = offset;
    reason_ = reason;
    at_ = now;
    return true;
  }

 private:
  std::optional<uint64_t> offset_;
  absl::Status reason_;
  std::chrono::steady_clock::time_point at_;
};

std::string SecondsText(std::chrono::milliseconds time) {
  return absl::StrCat(static_cast<double>(time.count()) / 1000, " s");
}

bool HasToken(rpc::Api api) noexcept {
  return api == rpc::Api::kKubernetes || api == rpc::Api::kSession;
}

void AddKubeOptions(CLI::App& subcommand, KubeArguments& arguments) {
  subcommand
      .add_option_function<std::string>(
          "--base-handle",
          [&arguments](const std::string& handle) { arguments.base_handle = handle; },
          "With k8s: handle of the base in its storage, instead of a name")
      ->type_name("HANDLE")
      ->excludes(subcommand.get_option("--base"));
  subcommand
      .add_option(
          "--kubeconfig", arguments.kubeconfig,
          "With k8s: how to reach the cluster; default: KUBECONFIG, ~/.kube/config, or the pod's")
      ->type_name("FILE");
  subcommand
      .add_option("--service-account", arguments.service_account,
                  "With k8s: account that asks for metadata; default: the one of the kubeconfig")
      ->type_name("NAMESPACE/NAME");
  subcommand
      .add_option_function<std::string>(
          "--token-expiry",
          [&arguments](const std::string& text) {
            // API servers make none for less.
            constexpr uint64_t kShortest = 600;
            const absl::StatusOr<uint64_t> value = ParseNumber(text, UINT32_MAX);
            if (!value.ok())
              throw CLI::ValidationError("--token-expiry", MessageOf(value.status()));
            if (*value < kShortest) {
              throw CLI::ValidationError("--token-expiry", "expected 600 seconds or more");
            }
            arguments.token_expiry = static_cast<uint32_t>(*value);
          },
          "With k8s: life of the tokens that are made; they are replaced in time")
      ->type_name("SECONDS")
      ->default_str("600");
}

// Options that say what `k8s:` finds out by itself, or the other way round, are errors: one of the
// two would have no effect.
absl::Status CheckOptionsFit(const RemoteArguments& arguments) {
  const KubeArguments& kube = arguments.kube;
  struct Given {
    const char* option;
    bool given;
  };
  if (arguments.in_kube()) {
    const bool other_api =
        arguments.api != rpc::Api::kCsi && arguments.api != rpc::Api::kKubernetes;
    for (const Given& one :
         {Given{"--snapshot", !arguments.snapshot.empty()}, Given{"--api", other_api},
          Given{"--token-file", !arguments.token_file.empty()},
          Given{"--namespace", !arguments.name_space.empty()},
          Given{"--volume", !arguments.volume.empty()}, Given{"--tls", arguments.tls},
          Given{"--tls-ca", !arguments.tls_ca.empty()},
          Given{"--tls-cert", !arguments.tls_certificate.empty()},
          Given{"--secrets-file", !arguments.secrets_file.empty()}}) {
      if (one.given) return UsageError(one.option, "not with k8s:, which finds it by itself");
    }
    return absl::OkStatus();
  }
  for (const Given& one : {Given{"--base-handle", kube.base_handle.has_value()},
                           Given{"--kubeconfig", !kube.kubeconfig.empty()},
                           Given{"--service-account", !kube.service_account.empty()},
                           Given{"--token-expiry", kube.token_expiry.has_value()}}) {
    if (one.given) return UsageError(one.option, "only with k8s:NAMESPACE/SNAPSHOT");
  }
  if (arguments.snapshot.empty()) return UsageError("usage", "--snapshot is required");
  return absl::OkStatus();
}

}  // namespace

void AddRetryOption(CLI::App& subcommand, RemoteArguments& arguments) {
  subcommand
      .add_option_function<std::string>(
          "--retry-for",
          [&arguments](const std::string& text) {
            const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
            if (!value.ok()) throw CLI::ValidationError("--retry-for", MessageOf(value.status()));
            arguments.retry_for = *value;
          },
          "Try again this long without progress while the service is unavailable; 0: do not")
      ->type_name("SECONDS")
      ->default_str("300");
}

void AddRemoteOptions(CLI::App& subcommand, RemoteArguments& arguments) {
  AddChoiceOption<rpc::Api>(subcommand, "--api", arguments.api, NamedApis(),
                            "Contract of the service: csi, kubernetes, session or paged")
      ->type_name("API")
      ->default_str("csi");
  subcommand
      .add_option("-s,--snapshot", arguments.snapshot,
                  "Snapshot id or name: what is allocated in it; required but with k8s:")
      ->type_name("ID");
  subcommand
      .add_option_function<std::string>(
          "-B,--base", [&arguments](const std::string& id) { arguments.base = id; },
          "Base snapshot id, with k8s: a name: what changed since then")
      ->type_name("ID");
  subcommand
      .add_option("--token-file", arguments.token_file,
                  "Security token (kubernetes) or session token (session)")
      ->type_name("FILE");
  subcommand
      .add_option("--namespace", arguments.name_space, "Namespace of the snapshot (kubernetes)")
      ->type_name("NAME");
  subcommand.add_option("--volume", arguments.volume, "Volume id (session)")->type_name("ID");
  subcommand
      .add_option_function<std::string>(
          "--timeout",
          [&arguments](const std::string& text) {
            const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
            if (!value.ok()) throw CLI::ValidationError("--timeout", MessageOf(value.status()));
            arguments.timeout = *value;
          },
          "Time limit for the whole stream; default: none")
      ->type_name("SECONDS");
  subcommand.add_flag("--tls", arguments.tls, "Use TLS; implied by the options below");
  subcommand
      .add_option("--tls-ca", arguments.tls_ca, "Authorities to trust (PEM); default: the system's")
      ->type_name("FILE");
  CLI::Option* const certificate =
      subcommand.add_option("--tls-cert", arguments.tls_certificate, "Client certificate (PEM)")
          ->type_name("FILE");
  CLI::Option* const key =
      subcommand.add_option("--tls-key", arguments.tls_key, "Private key of the certificate (PEM)")
          ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  subcommand
      .add_option("--secrets-file", arguments.secrets_file,
                  "KEY=VALUE lines, sent as the request's secrets (csi, paged)")
      ->type_name("FILE");
  AddKubeOptions(subcommand, arguments.kube);
}

absl::StatusOr<SnapshotName> ParseKubeAddress(const std::string& address) {
  const std::string rest = address.substr(std::min(kKubeScheme.size(), address.size()));
  const size_t slash = rest.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == rest.size() ||
      rest.find('/', slash + 1) != std::string::npos) {
    return UsageError(address, "expected k8s:NAMESPACE/SNAPSHOT");
  }
  return SnapshotName{.name_space = rest.substr(0, slash), .name = rest.substr(slash + 1)};
}

absl::StatusOr<rpc::ListRequest> RemoteRequest(const RemoteArguments& arguments,
                                               const std::string& name) {
  if (absl::Status fit = CheckOptionsFit(arguments); !fit.ok()) return fit;
  rpc::ListRequest request;
  request.address = arguments.address;
  request.api = arguments.api;
  request.snapshot_id = arguments.snapshot;
  request.base_snapshot_id = arguments.base;
  request.name_space = arguments.name_space;
  request.volume_id = arguments.volume;
  request.timeout = arguments.timeout;
  if (arguments.retry_for.has_value()) request.retry_for = *arguments.retry_for;
  request.capacity = arguments.capacity;
  request.on_resume = [name, limit = SecondsText(request.retry_for), last = LastWarning()](
                          uint64_t offset, const absl::Status& reason) mutable {
    if (!last.IsNews(offset, reason)) return;
    const std::string what = offset == 0 ? "trying again" : "resuming at " + std::to_string(offset);
    Note(name, "warning: " + what + " after: " + MessageOf(reason) + "; for at most " + limit +
                   " without progress (--retry-for)");
  };
  if (arguments.in_kube()) return FindInKube(arguments, std::move(request));
  if (HasToken(arguments.api) && arguments.token_file.empty()) {
    return UsageError("--api " + std::string(rpc::ApiName(arguments.api)), "needs --token-file");
  }
  if (arguments.api == rpc::Api::kKubernetes && arguments.name_space.empty()) {
    return UsageError("--api kubernetes", "needs --namespace");
  }
  if (!arguments.token_file.empty()) {
    absl::StatusOr<std::string> token = ReadTextFile("--token-file", arguments.token_file);
    if (!token.ok()) return token.status();
    // Editors end files with a newline; tokens have none.
    while (!token->empty() && (token->back() == '\n' || token->back() == '\r')) token->pop_back();
    if (token->empty()) {
      return UsageError("--token-file: " + arguments.token_file, "the file is empty");
    }
    request.token = Secret(*token);
  }
  if (!arguments.secrets_file.empty()) {
    absl::StatusOr<std::map<std::string, std::string>> secrets =
        ReadSecrets("--secrets-file", arguments.secrets_file);
    if (!secrets.ok()) return secrets.status();
    for (const auto& [key, value] : *secrets) request.secrets.Set(key, value);
  }
  const auto load = [&request](const char* option, const std::string& path, std::string& text) {
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> read = ReadTextFile(option, path);
    if (!read.ok()) return read.status();
    text = *std::move(read);
    // Any of these options implies TLS.
    request.tls.enabled = true;
    return absl::OkStatus();
  };
  request.tls.enabled = arguments.tls;
  for (absl::Status loaded :
       {load("--tls-ca", arguments.tls_ca, request.tls.ca),
        load("--tls-cert", arguments.tls_certificate, request.tls.certificate),
        load("--tls-key", arguments.tls_key, request.tls.private_key)}) {
    if (!loaded.ok()) return loaded;
  }
  return request;
}

}  // namespace cbt::cli
