// `cbtctl serve`: a directory of images, or a plugin in another process, as a SnapshotMetadata
// service.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "cbt/rpc/external_provider.h"
#include "cbt/rpc/server.h"
#include "cbt/source/directory_provider.h"
#include "cbt/source/files_below.h"
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
  std::string provider;
  std::string provider_files;
  std::chrono::milliseconds provider_silence = rpc::ExternalProviderOptions{}.silence;
  std::optional<uint64_t> block_size;
  std::optional<BlockMetadataType> type;
  std::string plugin_name = "images.cbt.example.com";
  std::vector<std::string> allowed_sources;
  std::chrono::milliseconds source_time = DirectoryProviderOptions{}.source_time;
};

absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeExternal(const ServeArguments& arguments,
                                                               Executor& readers,
                                                               rpc::LogSink* log) {
  rpc::ExternalProviderOptions options;
  options.type = arguments.type;
  options.block_size = arguments.block_size;
  options.silence = arguments.provider_silence;
  options.log = log;
  if (!arguments.provider_files.empty()) {
    absl::StatusOr<std::unique_ptr<FilesBelow>> made = FilesBelow::Create(
        arguments.provider_files, {.block_size = arguments.block_size.value_or(kDefaultBlockSize),
                                   .executor = &readers,
                                   .time = arguments.source_time});
    if (!made.ok()) {
      return absl::Status(made.status().code(), "--provider-files: " + MessageOf(made.status()));
    }
    const std::shared_ptr<const FilesBelow> files = *std::move(made);
    options.open_files = [files](const rpc::ExternalFiles& names, const StreamContext& context) {
      return files->Open({names.path, names.base_path, names.format, names.delta}, context.stop);
    };
  }
  return rpc::MakeExternalProvider(arguments.provider, options);
}

absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeProvider(const ServeArguments& arguments,
                                                               Executor& readers,
                                                               rpc::LogSink* log) {
  if (!arguments.provider.empty()) return MakeExternal(arguments, readers, log);
  return MakeDirectoryProvider(arguments.root,
                               {.type = arguments.type.value_or(BlockMetadataType::kVariableLength),
                                .block_size = arguments.block_size.value_or(kDefaultBlockSize),
                                .executor = &readers,
                                .allowed_sources = arguments.allowed_sources,
                                .source_time = arguments.source_time});
}

absl::Status Serve(const ServeArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  absl::StatusOr<ServingParts> parts = PrepareServing(serving);
  if (!parts.ok()) return parts.status();

  // Separate threads: those of the service wait for what these read.
  ThreadPool readers(WorkerThreads());
  const absl::StatusOr<std::unique_ptr<SnapshotProvider>> provider =
      MakeProvider(arguments, readers, parts->telemetry.log);
  if (!provider.ok()) return provider.status();
  rpc::ServerOptions options = OptionsOf<rpc::ServerOptions>(serving, *parts);
  options.service.plugin_name = arguments.plugin_name;
  const absl::StatusOr<std::unique_ptr<rpc::Server>> server =
      rpc::Server::Start(**provider, options);
  if (!server.ok()) return server.status();
  RunUntilStopped(serving, "serve",
                  arguments.provider.empty() ? arguments.root : arguments.provider,
                  (*server)->address(),
                  [&server](std::chrono::milliseconds grace) { (*server)->Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("serve",
                         "Serve a directory of snapshot images, or what a plugin knows (CSI "
                         "SnapshotMetadata)");
  const auto arguments = std::make_shared<ServeArguments>();
  CLI::Option* const root = sub->add_option("--root", arguments->root,
                                            "Directory of images; DIR/vol1/mon.img is vol1/mon")
                                ->type_name("DIR");
  CLI::Option* const provider =
      sub->add_option("--provider", arguments->provider,
                      "Instead of a directory: the socket where a plugin serves cbt.provider.v1 "
                      "(provider.proto)")
          ->type_name("unix:///PATH")
          ->excludes(root);
  sub->add_option("--provider-files", arguments->provider_files,
                  "Directory of the files that the plugin may name: change maps and images")
      ->type_name("DIR")
      ->needs(provider);
  AddTime(*sub, "--provider-stall-time", arguments->provider_silence,
          "End a stream whose plugin sends nothing for this long; 0: no limit", "60");
  sub->get_option("--provider-stall-time")->needs(provider);
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
      ->allow_extra_args(false)
      ->needs(root);
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
         "Total time limit per stream for such a source, and for a plugin's files")
      ->type_name("SECONDS")
      ->default_str("600");
  sub->footer(
      "Example: snapshots vol1/monday and vol1/tuesday from /snapshots/vol1/*.img\n"
      "  cbtctl serve --root /snapshots --listen unix:///run/cbt.sock\n\n"
      "Example: beside a driver that knows what changed\n"
      "  cbtctl serve --provider unix:///csi/provider.sock --listen unix:///csi/csi.sock");
  sub->callback([arguments, &command] {
    if (arguments->root.empty() && arguments->provider.empty()) {
      throw CLI::RequiredError("--root or --provider");
    }
    command = [arguments] { return Report("serve", Serve(*arguments)); };
  });
}

}  // namespace cbt::cli
