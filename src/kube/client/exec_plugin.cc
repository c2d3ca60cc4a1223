#include "kube/client/exec_plugin.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/kube/object.h"
#include "cbt/units.h"
#include "kube/client/run_program.h"
#include "kube/object/field_reader.h"
#include "kube/object/wiped_buffer.h"

namespace cbt::kube {
namespace {

// What the plugin gets to know, in KUBERNETES_EXEC_INFO.
std::string ExecInfo(const Config& config, bool interactive) {
  Object info(config.exec->api_version, "ExecCredential");
  info.SetBool({"spec", "interactive"}, interactive);
  if (config.exec->provide_cluster_info) {
    info.SetString({"spec", "cluster", "server"}, config.server);
    if (!config.tls_server_name.empty()) {
      info.SetString({"spec", "cluster", "tls-server-name"}, config.tls_server_name);
    }
    if (config.insecure_skip_tls_verify) {
      info.SetBool({"spec", "cluster", "insecure-skip-tls-verify"}, true);
    }
    if (!config.ca.empty()) {
      info.SetBytes({"spec", "cluster", "certificate-authority-data"}, config.ca);
    }
    if (!config.proxy_url.empty()) {
      info.SetString({"spec", "cluster", "proxy-url"}, config.proxy_url);
    }
  }
  return info.ToJson();
}

}  // namespace

absl::StatusOr<PluginCredentials> ParseExecCredential(const ExecPlugin& plugin,
                                                      std::string_view json) {
  const absl::StatusOr<Object> object = Object::Parse(json);
  if (!object.ok()) return object.status();
  if (object->kind() != "ExecCredential" || object->api_version() != plugin.api_version) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an ExecCredential of ", plugin.api_version));
  }
  PluginCredentials credentials;
  FieldReader reader(*object);
  reader.Read(object->SecretString({"status", "token"}), credentials.token);
  reader.Read(object->SecretString({"status", "clientCertificateData"}), credentials.certificate);
  reader.Read(object->SecretString({"status", "clientKeyData"}), credentials.key);
  reader.Read(object->OptionalTime({"status", "expirationTimestamp"}), credentials.expires);
  if (!reader.ok()) return reader.status();
  if (credentials.certificate.empty() != credentials.key.empty()) {
    return absl::InvalidArgumentError(
        "status: clientCertificateData without clientKeyData, or the other way round");
  }
  if (credentials.token.empty() && credentials.certificate.empty()) {
    return absl::InvalidArgumentError("status: holds neither a token nor a certificate");
  }
  return credentials;
}

absl::StatusOr<PluginCredentials> RunExecPlugin(const Config& config, const std::stop_token& stop) {
  const ExecPlugin& plugin = *config.exec;
  const auto failed = [&](const absl::Status& status) -> absl::Status {
    if (absl::IsCancelled(status)) return status;
    // Never the code of the failure: NOT_FOUND, for one, would be taken for the server's.
    std::string text = absl::StrCat("credential plugin ", std::string(status.message()));
    if (absl::IsNotFound(status) && !plugin.install_hint.empty()) {
      absl::StrAppend(&text, "; ", plugin.install_hint);
    }
    return absl::UnavailableError(text);
  };
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (plugin.interactive == ExecPlugin::Interactive::kAlways && !terminal) {
    return failed(absl::FailedPreconditionError(
        plugin.command + ": needs a terminal, and standard input is not one"));
  }
  Program program;
  program.command = plugin.command;
  // A path with a slash is relative to the file that it was read from.
  if (!plugin.directory.empty() && plugin.command.find('/') != std::string::npos &&
      !plugin.command.starts_with('/')) {
    program.command = plugin.directory + "/" + plugin.command;
  }
  program.args = plugin.args;
  program.env = plugin.env;
  program.interactive = terminal && plugin.interactive != ExecPlugin::Interactive::kNever;
  program.env.emplace_back("KUBERNETES_EXEC_INFO", ExecInfo(config, program.interactive));
  program.timeout = plugin.timeout;
  program.max_output = kMiB;
  const absl::StatusOr<WipedBuffer> output = RunProgram(program, stop);
  if (!output.ok()) return failed(output.status());
  absl::StatusOr<PluginCredentials> credentials = ParseExecCredential(plugin, output->view());
  if (!credentials.ok()) {
    return failed(absl::Status(credentials.status().code(),
                               absl::StrCat(plugin.command, ": what it printed is unusable: ",
                                            std::string(credentials.status().message()))));
  }
  return credentials;
}

}  // namespace cbt::kube
