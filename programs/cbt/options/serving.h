// Shared by `serve` and `relay`: options of services, and running a server in the foreground.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_SERVING_H_
#define CBT_PROGRAMS_CBT_OPTIONS_SERVING_H_

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/ops/log.h"
#include "cbt/ops/metrics.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/server.h"
#include "ops/http_page.h"

namespace cbt::cli {

struct ServingArguments {
  std::string listen;
  std::vector<rpc::Api> apis;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  std::string tokens;
  std::string snapshots;
  std::string secrets;
  std::string sessions;
  std::string page_key;
  bool base_is_name = false;
  std::string metrics;
  std::optional<rpc::LogLevel> log_level;
  std::string log_file;
  std::optional<uint64_t> max_streams;
  rpc::ConnectionOptions connection;
  std::chrono::milliseconds stream_time{0};
  std::chrono::milliseconds stall_time = std::chrono::minutes(5);
  std::optional<int> ready_descriptor;
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// Adds an option for a time in seconds; `shown`: the default in the help text.
void AddTime(CLI::App& subcommand, const char* option, std::chrono::milliseconds& time,
             const char* what, const char* shown);

// Adds --log-level and --log-file, and --ready-fd and --grace: options of every process that
// serves. `level` and `grace` are the help texts of the two options of that name.
void AddLogOptions(CLI::App& subcommand, ServingArguments& arguments, const char* level);
void AddLifeOptions(CLI::App& subcommand, ServingArguments& arguments, const char* grace);

// Adds --http-endpoint, and who may read /metrics there.
void AddPageOptions(CLI::App& subcommand, std::string& endpoint, ops::PageAccess& access);

// Adds the options; `arguments` must outlive the parsing. `apis`: the default of --api.
void AddServingOptions(CLI::App& subcommand, ServingArguments& arguments,
                       std::vector<rpc::Api> apis);

// The objects that the options describe; must outlive the server.
struct ServingParts {
  std::unique_ptr<rpc::TokenAccess> tokens;
  std::unique_ptr<rpc::SnapshotResolver> resolver;
  std::unique_ptr<rpc::SecretProvider> secrets;
  std::unique_ptr<rpc::SessionStore> sessions;
  std::unique_ptr<ops::Metrics> metrics;
  std::unique_ptr<rpc::LogSink> log;

  rpc::AccessControl access;
  rpc::Telemetry telemetry;
  rpc::TlsOptions tls;
  rpc::StreamOptions stream;
  std::string page_token_key;
};

// Reads the files and opens the listeners. Errors name the option.
absl::StatusOr<ServingParts> PrepareServing(const ServingArguments& arguments);

// What rpc::ServerOptions and rpc::RelayOptions have in common.
template <typename Options>
Options OptionsOf(const ServingArguments& arguments, const ServingParts& parts) {
  Options options;
  options.listen = arguments.listen;
  options.service = {.apis = arguments.apis,
                     .access = parts.access,
                     .base_is_handle = !arguments.base_is_name,
                     .sessions = parts.sessions.get(),
                     .page_token_key = parts.page_token_key,
                     .stream = parts.stream,
                     .telemetry = parts.telemetry};
  options.tls = parts.tls;
  options.connection = arguments.connection;
  return options;
}

// Call before any thread starts. Reserves stop signals for RunUntilStopped(), makes created files
// private, and raises the limit on open descriptors.
// `stop_signals`: those that stop the server.
void PrepareProcess(const std::vector<int>& stop_signals = {SIGINT, SIGTERM, SIGHUP});

// Errors: INVALID_ARGUMENT for a --ready-fd that can't be written.
absl::Status CheckReadyDescriptor(const ServingArguments& arguments);

// What a server says while RunUntilStopped() waits, asked a few times a second; null: yes, and no.
struct ServerProgress {
  std::function<bool()> ready = {};  // clients can be served now
  std::function<bool()> ended = {};  // it can never serve: stop
};

// Reports that the server is up at `address`, waits for a stop signal, then drains with
// `shutdown`. A second signal ends the process at once, even after this has returned. `name`: of
// the subcommand; `what`: what is served.
void RunUntilStopped(const ServingArguments& arguments, const std::string& name,
                     const std::string& what, const std::string& address,
                     const std::function<void(std::chrono::milliseconds grace)>& shutdown,
                     const ServerProgress& progress = {});

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_SERVING_H_
