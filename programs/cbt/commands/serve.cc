// `cbtctl serve`: a directory of images as a SnapshotMetadata service.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "cbt/rpc/server.h"
#include "cbt/source/directory_provider.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct ServeArguments {
  ServingArguments serving;
  std::string root;
  std::optional<uint64_t> block_size;
  std::optional<BlockMetadataType> type;
  std::string plugin_name = "images.cbt.example.com";
  std::vector<std::string> allowed_sources;
  std::chrono::milliseconds source_time = DirectoryProviderOptions{}.source_time;
};

absl::Status Serve(const ServeArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  absl::StatusOr<ServingParts> parts = PrepareServing(serving);
  if (!parts.ok()) return parts.status();

  // Separate threads: those of the service wait for what these read.
  ThreadPool readers(WorkerThreads());
  const absl::StatusOr<std::unique_ptr<SnapshotProvider>> provider = MakeDirectoryProvider(
      arguments.root, {.type = arguments.type.value_or(BlockMetadataType::kVariableLength),
                       .block_size = arguments.block_size.value_or(kDefaultBlockSize),
                       .executor = &readers,
                       .allowed_sources = arguments.allowed_sources,
                       .source_time = arguments.source_time});
  if (!provider.ok()) return provider.status();
  rpc::ServerOptions options = OptionsOf<rpc::ServerOptions>(serving, *parts);
  options.service.plugin_name = arguments.plugin_name;
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
  sub->add_option(
         "--allow-source", arguments->allowed_sources,
         "What *.source files may name outside of DIR: a path with everything below it, or an "
         "NBD address; repeatable")
      ->type_name("PATH|ADDR")
      ->allow_extra_args(false);
  sub->add_option_function<std::string>(
         "--source-time",
         [arguments](const std::string& text) {
           const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
           if (!value.ok()) {
             throw CLI::ValidationError("--source-time", MessageOf(value.status()));
           }
           if (value->count() == 0) throw CLI::ValidationError("--source-time", "not above 0");
           arguments->source_time = *value;
         },
         "Total time limit for such a source per stream")
      ->type_name("SECONDS")
      ->default_str("600");
  sub->footer(
      "Example: snapshots vol1/monday and vol1/tuesday from /snapshots/vol1/*.img\n"
      "  cbtctl serve --root /snapshots --listen unix:///run/cbt.sock");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("serve", Serve(*arguments)); };
  });
}

}  // namespace cbt::cli
