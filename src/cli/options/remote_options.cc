#include "cli/options/remote_options.h"

#include <utility>

#include "cli/options/choices.h"
#include "cli/support/numbers.h"
#include "cli/support/status.h"
#include "cli/support/text_file.h"
#include "cli/support/verbosity.h"

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

std::vector<std::string> ApiNames() {
  std::vector<std::string> names;
  for (NamedApi& api : NamedApis()) names.push_back(std::move(api.first));
  return names;
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

bool HasToken(rpc::Api api) noexcept {
  return api == rpc::Api::kKubernetes || api == rpc::Api::kSession;
}

}  // namespace

void AddApisOption(CLI::App& subcommand, std::vector<rpc::Api>& apis) {
  std::string shown;
  for (const rpc::Api api : apis) shown.append(shown.empty() ? "" : ",").append(rpc::ApiName(api));
  subcommand
      .add_option_function<std::vector<std::string>>(
          "--api",
          [&apis](const std::vector<std::string>& names) {
            apis.clear();
            for (const std::string& name : names) apis.push_back(rpc::ParseApi(name).value());
          },
          "Contracts to serve: csi, kubernetes, session, paged; separate several with commas")
      ->type_name("API")
      ->check(IsOneOf(ApiNames()))
      ->delimiter(',')
      ->default_str(shown);
}

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
                  "Snapshot id or name: what is allocated in it")
      ->type_name("ID")
      ->required();
  subcommand
      .add_option_function<std::string>(
          "-B,--base", [&arguments](const std::string& id) { arguments.base = id; },
          "Base snapshot id: what changed since then")
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
}

absl::StatusOr<rpc::ListRequest> RemoteRequest(const RemoteArguments& arguments,
                                               const std::string& name) {
  rpc::ListRequest request;
  request.address = arguments.address;
  request.api = arguments.api;
  request.snapshot_id = arguments.snapshot;
  request.base_snapshot_id = arguments.base;
  request.name_space = arguments.name_space;
  request.volume_id = arguments.volume;
  request.timeout = arguments.timeout;
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
    request.token = *std::move(token);
  }
  if (!arguments.secrets_file.empty()) {
    absl::StatusOr<std::map<std::string, std::string>> secrets =
        ReadSecrets("--secrets-file", arguments.secrets_file);
    if (!secrets.ok()) return secrets.status();
    request.secrets = *std::move(secrets);
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
  if (arguments.retry_for.has_value()) request.retry_for = *arguments.retry_for;
  request.on_resume = [name, last = LastWarning()](uint64_t offset,
                                                   const absl::Status& reason) mutable {
    if (!last.IsNews(offset, reason)) return;
    const std::string what = offset == 0 ? "trying again" : "resuming at " + std::to_string(offset);
    Note(name, "warning: " + what + " after: " + MessageOf(reason));
  };
  return request;
}

}  // namespace cbt::cli
