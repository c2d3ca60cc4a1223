// Options that name a stream of a service, for `list`, `verify` and `conform`.
#ifndef CBT_CLI_OPTIONS_REMOTE_OPTIONS_H_
#define CBT_CLI_OPTIONS_REMOTE_OPTIONS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/client.h"

namespace cbt::cli {

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
  bool tls = false;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
  std::string secrets_file;
};

// Adds all but the address; `arguments` must outlive the parsing.
void AddRemoteOptions(CLI::App& subcommand, RemoteArguments& arguments);

// `--retry-for SECONDS`; `arguments` must outlive the parsing.
void AddRetryOption(CLI::App& subcommand, RemoteArguments& arguments);

// `--api A,B,...`; without the option, `apis` stays as it is.
void AddApisOption(CLI::App& subcommand, std::vector<rpc::Api>& apis);

// The request that the options describe; on_resume warns the user. `name`: of the subcommand.
absl::StatusOr<rpc::ListRequest> RemoteRequest(const RemoteArguments& arguments,
                                               const std::string& name);

}  // namespace cbt::cli

#endif  // CBT_CLI_OPTIONS_REMOTE_OPTIONS_H_
