// `cbt serve`: a directory of images as a SnapshotMetadata service.

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/directory_provider.h"
#include "cbt/executor.h"
#include "cbt/rpc/server.h"
#include "cli/command.h"
#include "cli/serving.h"
#include "cli/status.h"
#include "cli/stream_options.h"
#include "cli/threads.h"

namespace cbt::cli {
namespace {

struct ServeArguments {
  ServingArguments serving;
  std::string root;
  std::optional<uint64_t> block_size;
  std::optional<BlockMetadataType> type;
  std::string plugin_name = "images.cbt.example.com";
};

absl::Status Serve(const ServeArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  absl::StatusOr<ServingParts> parts = PrepareServing(serving);
  if (!parts.ok()) return parts.status();

  // Threads of its own: the service's threads wait for what these read.
  ThreadPool readers(WorkerThreads());
  const absl::StatusOr<std::unique_ptr<SnapshotProvider>> provider = MakeDirectoryProvider(
      arguments.root, {.type = arguments.type.value_or(BlockMetadataType::kVariableLength),
                       .block_size = arguments.block_size.value_or(kDefaultBlockSize),
                       .executor = &readers});
  if (!provider.ok()) return provider.status();
  rpc::ServerOptions options;
  options.listen = serving.listen;
  options.apis = serving.apis;
  options.plugin_name = arguments.plugin_name;
  options.access = parts->access;
  options.base_is_handle = !serving.base_is_name;
  options.sessions = parts->sessions.get();
  options.page_token_key = parts->page_token_key;
  options.tls = parts->tls;
  options.stream = parts->stream;
  options.telemetry = parts->telemetry;
  const absl::StatusOr<std::unique_ptr<rpc::Server>> server =
      rpc::Server::Start(**provider, options);
  if (!server.ok()) return server.status();
  RunUntilStopped(serving, "serve", arguments.root, (*server)->address(),
                  [&server](std::chrono::milliseconds grace) { (*server)->Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("serve", "Serve a directory of snapshot images (CSI SnapshotMetadata)");
  const auto arguments = std::make_shared<ServeArguments>();
  sub->add_option("--root", arguments->root, "Directory of images; DIR/vol1/mon.img is vol1/mon")
      ->type_name("DIR")
      ->required();
  AddServingOptions(*sub, arguments->serving, {rpc::Api::kCsi});
  AddStyleOption(*sub, arguments->type);
  AddBlockSizeOption(*sub, arguments->block_size);
  sub->add_option("--plugin-name", arguments->plugin_name, "Name that Identity reports")
      ->type_name("NAME")
      ->capture_default_str();
  sub->footer(
      "Example: snapshots vol1/monday and vol1/tuesday from /snapshots/vol1/*.img\n"
      "  cbt serve --root /snapshots --listen unix:///run/cbt.sock");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("serve", Serve(*arguments)); };
  });
}

}  // namespace cbt::cli
