#include "cbt/kube/config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/watched_file.h"

namespace cbt::kube {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): only read
  return value == nullptr ? std::string() : std::string(value);
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string TrimmedText(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

Config Config::Copy() const {
  Config copy;
  copy.server = server;
  copy.ca = ca;
  copy.ca_file = ca_file;
  copy.tls_server_name = tls_server_name;
  copy.insecure_skip_tls_verify = insecure_skip_tls_verify;
  copy.proxy_url = proxy_url;
  copy.client_certificate = client_certificate;
  copy.client_key = client_key.Copy();
  copy.client_certificate_file = client_certificate_file;
  copy.client_key_file = client_key_file;
  copy.token = token.Copy();
  copy.token_file = token_file;
  copy.username = username;
  copy.password = password.Copy();
  copy.exec = exec;
  copy.as = as;
  copy.name_space = name_space;
  return copy;
}

absl::StatusOr<Config> LoadInClusterConfig(const InClusterOptions& options) {
  const std::string host =
      options.host.empty() ? Variable("KUBERNETES_SERVICE_HOST") : options.host;
  const std::string port =
      options.port.empty() ? Variable("KUBERNETES_SERVICE_PORT") : options.port;
  if (host.empty() || port.empty()) {
    return absl::NotFoundError(
        "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set");
  }
  Config config;
  const bool ipv6 = host.find(':') != std::string::npos;
  config.server = absl::StrCat("https://", ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
  config.token_file = options.directory + "/token";
  config.ca_file = options.directory + "/ca.crt";
  for (const std::string& file : {config.token_file, config.ca_file}) {
    if (absl::StatusOr<std::string> text = ReadSmallFile(file); text.ok()) {
      WipeWhole(*text);
    } else {
      return text.status();
    }
  }
  const std::string name_space_file = options.directory + "/namespace";
  if (Exists(name_space_file)) {
    absl::StatusOr<std::string> name_space = ReadSmallFile(name_space_file);
    if (!name_space.ok()) return name_space.status();
    if (std::string trimmed = TrimmedText(*std::move(name_space)); !trimmed.empty()) {
      config.name_space = std::move(trimmed);
    }
  }
  return config;
}

std::vector<std::string> DefaultKubeconfigFiles() {
  std::vector<std::string> files;
  const std::string list = Variable("KUBECONFIG");
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    if (end != at) files.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  if (!files.empty()) return files;
  if (const std::string home = Variable("HOME"); !home.empty()) {
    files.push_back(home + "/.kube/config");
  }
  return files;
}

absl::StatusOr<Config> LoadDefaultConfig(const std::string& kubeconfig,
                                         const std::string& context) {
  KubeconfigOptions options{.context = context};
  if (!kubeconfig.empty()) {
    options.files = {kubeconfig};
    return LoadKubeconfig(options);
  }
  options.files = DefaultKubeconfigFiles();
  for (const std::string& file : options.files) {
    if (Exists(file)) return LoadKubeconfig(options);
  }
  absl::StatusOr<Config> config = LoadInClusterConfig();
  if (absl::IsNotFound(config.status())) {
    std::string looked;
    for (const std::string& file : options.files) absl::StrAppend(&looked, file, ", ");
    return absl::NotFoundError(
        absl::StrCat("no configuration of a Kubernetes cluster: there is no ", looked,
                     "and this is ", std::string(config.status().message())));
  }
  return config;
}

}  // namespace cbt::kube
