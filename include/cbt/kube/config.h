// Where the API server is, how it is recognised, and who asks. Part of cbt::kube.
#ifndef CBT_KUBE_CONFIG_H_
#define CBT_KUBE_CONFIG_H_

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

// A program that prints credentials: `exec` of a kubeconfig file. It is started directly, without a
// shell, when a call needs credentials and there are none that are still valid. What it writes to
// standard error goes where that of this process goes.
struct ExecPlugin {
  std::string command = {};  // a path, or a name that is looked up in PATH
  std::vector<std::string> args = {};
  // Added to the environment of this process, in place of variables of the same name.
  std::vector<std::pair<std::string, std::string>> env = {};
  // "client.authentication.k8s.io/v1" or ".../v1beta1".
  std::string api_version = {};
  // Passes server, CA and proxy to the plugin (KUBERNETES_EXEC_INFO).
  bool provide_cluster_info = false;
  // The program may ask its user on this terminal (interactiveMode). Only if standard input is one.
  enum class Interactive { kNever, kIfAvailable, kAlways };
  Interactive interactive = Interactive::kNever;
  std::string install_hint = {};  // part of the error if the program is missing
  std::string directory = {};     // where a relative `command` with a slash starts; empty: here
  // A program that takes longer, or prints more than 1 MiB, is killed.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
};

// Whom to act as instead of the one whose credentials these are; RBAC must allow it.
struct Impersonation {
  std::string user = {};
  std::string uid = {};
  std::vector<std::string> groups = {};
  std::map<std::string, std::vector<std::string>> extra = {};
};

// Everything that a Client needs to reach an API server. Moves; Copy() copies. Of token,
// token_file, user name and exec, at most one is used: exec before token_file before token before
// user name.
struct Config {
  // "https://host:port", or with a path in front of /api and /apis. Plain "http://" is accepted
  // without credentials only.
  std::string server = {};

  // PEM of the authorities that sign the server's certificate; nothing else is trusted then. The
  // file is read again when it changes, and wins. Both empty: the system's authorities.
  std::string ca = {};
  std::string ca_file = {};
  // The name that the certificate must have; empty: the server's.
  std::string tls_server_name = {};
  // Accepts any certificate: anyone on the way can then read the credentials.
  bool insecure_skip_tls_verify = false;
  // "http://host:port", https or socks5; empty: none. Variables such as HTTPS_PROXY have no effect.
  std::string proxy_url = {};

  // PEM. The files are read again when they change, and win.
  std::string client_certificate = {};
  Secret client_key = {};
  std::string client_certificate_file = {};
  std::string client_key_file = {};

  Secret token = {};
  // Read again every 50 seconds, and at once after the server has answered 401. If it can't be
  // read, the token before it is used on.
  std::string token_file = {};
  std::string username = {};
  Secret password = {};
  std::optional<ExecPlugin> exec = {};

  Impersonation as = {};

  // The namespace for those who name none.
  std::string name_space = "default";

  Config Copy() const;
};

struct InClusterOptions {
  // Holds `token`, `ca.crt` and `namespace`, as the kubelet mounts them.
  std::string directory = "/var/run/secrets/kubernetes.io/serviceaccount";
  // Empty: the variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.
  std::string host = {};
  std::string port = {};
};

// The configuration of a process in a pod.
// Errors: NOT_FOUND if this is not in a pod; those of reading the files.
absl::StatusOr<Config> LoadInClusterConfig(const InClusterOptions& options = {});

struct KubeconfigOptions {
  // Merged: what an earlier file says wins, and a file that does not exist is passed over as long
  // as there is another. Empty: DefaultKubeconfigFiles().
  std::vector<std::string> files = {};
  // Empty: current-context.
  std::string context = {};
};

// The files of the variable KUBECONFIG, separated by colons; without it, ~/.kube/config.
std::vector<std::string> DefaultKubeconfigFiles();

// Reads kubeconfig files. At most 4 MiB each, YAML or JSON.
// Errors name the file and the place in it, never a value: NOT_FOUND if there is no file;
// INVALID_ARGUMENT for what can't be used; those of reading the files that it names.
absl::StatusOr<Config> LoadKubeconfig(const KubeconfigOptions& options = {});

// What programs use. `kubeconfig`: the file that the user named; errors of that file are final. If
// it is empty: the files of KUBECONFIG, or ~/.kube/config, if there is any; otherwise the pod's.
absl::StatusOr<Config> LoadDefaultConfig(const std::string& kubeconfig = {},
                                         const std::string& context = {});

}  // namespace cbt::kube

#endif  // CBT_KUBE_CONFIG_H_
