// Credentials from a program.
#ifndef CBT_KUBE_CLIENT_EXEC_PLUGIN_H_
#define CBT_KUBE_CLIENT_EXEC_PLUGIN_H_

#include <optional>
#include <stop_token>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/kube/config.h"
#include "cbt/kube/object.h"
#include "cbt/secrets.h"

namespace cbt::kube {

struct PluginCredentials {
  Secret token = {};        // empty: none
  Secret certificate = {};  // PEM; empty: none, and no key
  Secret key = {};
  std::optional<Time> expires = {};
};

// Reads an ExecCredential of the version that `plugin` has. Errors: INVALID_ARGUMENT, without
// values.
absl::StatusOr<PluginCredentials> ParseExecCredential(const ExecPlugin& plugin,
                                                      std::string_view json);

// Runs the plugin of `config` and reads what it prints. Blocks.
// Errors: UNAVAILABLE, with the name of the program; CANCELLED by `stop`.
absl::StatusOr<PluginCredentials> RunExecPlugin(const Config& config, const std::stop_token& stop);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_EXEC_PLUGIN_H_
