// Options that name a stream of a service, for `list`, `verify` and `conform`.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_REMOTE_OPTIONS_H_
#define CBT_PROGRAMS_CBT_OPTIONS_REMOTE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/options.h"

namespace cbt::cli {

// `k8s:NAMESPACE/SNAPSHOT`: an address by which a service and everything that it asks for is found.
inline constexpr std::string_view kKubeScheme = "k8s:";

// Options for such an address only.
struct KubeArguments {
  std::string kubeconfig;       // empty: the default files, then the pod's
  std::string service_account;  // NAMESPACE/NAME; empty: the account of the kubeconfig
  std::optional<std::string> base_handle;
  std::optional<uint32_t> token_expiry;  // seconds; default: the library's
};

struct RemoteArguments {
  std::string address;
  rpc::Api api = rpc::Api::kCsi;
  std::string snapshot;
  std::optional<std::string> base;
  std::string token_file;
  std::string name_space;
  std::string volume;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> retry_for;  // default: the library's
  std::optional<uint64_t> capacity;                    // bytes
  bool tls = false;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
  std::string secrets_file;
  KubeArguments kube;

  bool has_base() const noexcept { return base.has_value() || kube.base_handle.has_value(); }
  bool in_kube() const noexcept { return address.starts_with(kKubeScheme); }
};

// Shown in help for an option or argument that takes an address.
inline constexpr char kAddressHelp[] = "unix:///path/to.sock, host:port or k8s:NAMESPACE/SNAPSHOT";

// The part after `k8s:`. Errors: INVALID_ARGUMENT.
struct SnapshotName {
  std::string name_space = {};
  std::string name = {};
};
absl::StatusOr<SnapshotName> ParseKubeAddress(const std::string& address);

// Adds all but the address; `arguments` must outlive the parsing.
void AddRemoteOptions(CLI::App& subcommand, RemoteArguments& arguments);

// `--retry-for SECONDS`; `arguments` must outlive the parsing.
void AddRetryOption(CLI::App& subcommand, RemoteArguments& arguments);

// The request that the options describe; on_resume warns the user. `name`: of the subcommand.
// Waits for the API server if the address begins with `k8s:`.
absl::StatusOr<rpc::ListRequest> RemoteRequest(const RemoteArguments& arguments,
                                               const std::string& name);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_REMOTE_OPTIONS_H_
