// `cbt list`: the client.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "cbt/transform.h"
#include "cli/command.h"
#include "cli/map_output.h"
#include "cli/numbers.h"
#include "cli/print_stream.h"
#include "cli/status.h"
#include "cli/stream_options.h"
#include "cli/text_file.h"

namespace cbt::cli {
namespace {

struct ListArguments {
  std::string address;
  std::string snapshot;
  std::optional<std::string> base;
  std::optional<std::chrono::milliseconds> timeout;
  bool tls = false;
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
  std::string secrets_file;
  StreamOptions stream;
  MapOutput output;
};

absl::StatusOr<rpc::ListRequest> RequestOf(const ListArguments& arguments) {
  rpc::ListRequest request;
  request.address = arguments.address;
  request.snapshot_id = arguments.snapshot;
  request.base_snapshot_id = arguments.base;
  request.starting_offset = arguments.stream.starting_offset;
  request.max_results = arguments.stream.max_results;
  request.timeout = arguments.timeout;
  if (!arguments.secrets_file.empty()) {
    absl::StatusOr<std::map<std::string, std::string>> secrets =
        ReadSecrets("--secrets-file", arguments.secrets_file);
    if (!secrets.ok()) return secrets.status();
    request.secrets = *std::move(secrets);
  }
  const auto load = [&request](const char* option, const std::string& path, std::string& text) {
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> read = ReadTextFile(option, path);
    if (!read.ok()) return read.status();
    text = *std::move(read);
    // Who names any of these wants no plain connection.
    request.tls.enabled = true;
    return absl::OkStatus();
  };
  request.tls.enabled = arguments.tls;
  for (absl::Status loaded :
       {load("--tls-ca", arguments.tls_ca, request.tls.ca),
        load("--tls-cert", arguments.tls_certificate, request.tls.certificate),
        load("--tls-key", arguments.tls_key, request.tls.private_key)}) {
    if (!loaded.ok()) return loaded;
  }
  request.on_resume = [](uint64_t offset, const absl::Status& reason) {
    PrintLine("list", "warning: the stream broke and goes on at " + std::to_string(offset) + ": " +
                          MessageOf(reason));
  };
  return request;
}

absl::Status List(const ListArguments& arguments) {
  const absl::StatusOr<rpc::ListRequest> request = RequestOf(arguments);
  if (!request.ok()) return request.status();
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> remote = rpc::RemoteCursor::Open(*request);
  if (!remote.ok()) return remote.status();

  PrintOptions print = {.stream = arguments.stream,
                        .type = arguments.stream.type.value_or((*remote)->type()),
                        .label = "receiving",
                        .adjective = arguments.base.has_value() ? "changed" : "allocated"};
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = *std::move(remote);
  if (arguments.output.wanted()) {
    return WriteMap(
        **cursor, arguments.stream.block_size.value_or(kDefaultBlockSize),
        arguments.output.names.Over(IdentityOfIds(arguments.base.value_or(""), arguments.snapshot)),
        arguments.output.path, print.label);
  }
  // Block size and style are the server's choice; it is translated only on request.
  if (arguments.stream.block_size.has_value() || arguments.stream.type.has_value()) {
    cursor =
        print.type == BlockMetadataType::kFixedLength
            ? ToBlocks(*std::move(cursor), arguments.stream.block_size.value_or(kDefaultBlockSize))
            : AlignOutward(*std::move(cursor), arguments.stream.block_size.value_or(1));
    if (!cursor.ok()) return cursor.status();
  }
  return PrintStream(**cursor, print);
}

}  // namespace

void AddList(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("list", "Stream metadata from a service, resume after failures, print it");
  const auto arguments = std::make_shared<ListArguments>();
  sub->add_option("ADDR", arguments->address, "unix:///path/to.sock or host:port")->required();
  sub->add_option("--snapshot", arguments->snapshot, "Snapshot id: what is allocated in it")
      ->type_name("ID")
      ->required();
  sub->add_option_function<std::string>(
         "--base", [arguments](const std::string& id) { arguments->base = id; },
         "Base snapshot id: what changed since then")
      ->type_name("ID");
  AddStreamOptions(*sub, arguments->stream);
  AddMapOutput(*sub, arguments->output);
  sub->add_option_function<std::string>(
         "--timeout",
         [arguments](const std::string& text) {
           const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
           if (!value.ok()) throw CLI::ValidationError("--timeout", MessageOf(value.status()));
           arguments->timeout = *value;
         },
         "Time for the whole stream; no limit if not given")
      ->type_name("SECONDS");
  sub->add_flag("--tls", arguments->tls, "Use TLS; implied by the options below");
  sub->add_option("--tls-ca", arguments->tls_ca, "Authorities to trust (PEM), else the system's")
      ->type_name("FILE");
  CLI::Option* const certificate =
      sub->add_option("--tls-cert", arguments->tls_certificate, "Client certificate (PEM)")
          ->type_name("FILE");
  CLI::Option* const key =
      sub->add_option("--tls-key", arguments->tls_key, "Its private key (PEM)")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  sub->add_option("--secrets-file", arguments->secrets_file,
                  "Lines KEY=VALUE that are passed on as the request's secrets")
      ->type_name("FILE");
  sub->footer(
      "Without --block-size and --style the stream is printed as the server tells it.\n"
      "Example: what changed from Monday to Tuesday\n"
      "  cbt list unix:///run/cbt.sock --snapshot vol1/tuesday --base vol1/monday");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("list", List(*arguments)); };
  });
}

}  // namespace cbt::cli
