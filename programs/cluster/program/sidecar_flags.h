// The flags of the sidecar: those of the Go program that it replaces, and its own.
#ifndef CBT_PROGRAMS_CLUSTER_PROGRAM_SIDECAR_FLAGS_H_
#define CBT_PROGRAMS_CLUSTER_PROGRAM_SIDECAR_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/cbt/options/go_flags.h"
#include "programs/cbt/options/serving.h"
#include "programs/sidecar/options.h"

namespace cbt::cli {

struct SidecarFlags {
  // As in the Go program.
  std::string csi_address = "/run/csi/socket";
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  int64_t port = 50051;
  std::string tls_cert;  // default: the variable TLS_CERT_PATH
  std::string tls_key;   // TLS_KEY_PATH
  std::string tls_min_version;
  std::string tls_cipher_suites;
  std::string tls_curve_preferences;
  std::string audience;
  int64_t max_streaming_duration_min = 10;
  double kube_api_qps = 5;
  int64_t kube_api_burst = 10;
  bool limit_callers = false;  // one of the two above was given
  std::string kubeconfig;
  std::string http_endpoint = ":8080";
  std::string metrics_path = "/metrics";
  bool disable_metrics = false;
  bool version = false;

  // Of klog.
  int64_t v = 0;

  // Our own.
  std::string publish;
  std::string publish_ca;
  std::string publish_sessions;
  std::string session_configuration;
  std::string session_namespace;
  kube::sidecar::BasePolicy base_policy = kube::sidecar::BasePolicy::kHandleInNamespace;
  kube::sidecar::MissingCode missing_code = kube::sidecar::MissingCode::kNotFound;
  ops::PageAccess page_access;
  bool events = false;
  bool no_check = false;
  bool require_message = false;
  std::chrono::milliseconds plugin_stall_time = rpc::RelayOptions().plugin_stall_timeout;
  // Those of `cbtctl relay`: contracts, sessions, limits, log, --ready-fd, --grace.
  ServingArguments serving = {};

  // Adds every flag to `flags`. Must outlive the parsing.
  void AddTo(GoFlags& flags);

  // What the flags amount to; `warnings` get what is accepted and has no effect. Reads the files of
  // the API server's configuration.
  // Errors: INVALID_ARGUMENT that names the flag, those of reading the configuration.
  absl::StatusOr<kube::sidecar::Options> ToOptions(std::vector<std::string>& warnings) const;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CLUSTER_PROGRAM_SIDECAR_FLAGS_H_
