// `cbtctl conform`: checks whether a server keeps the contract.

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/rpc/conformance.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/conform_cosi.h"
#include "programs/cbt/commands/rule_printer.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct ConformArguments {
  RemoteArguments remote;
  std::string foreign_base;
  ConformCosiArguments cosi;
  bool json = false;
  bool verbose = false;
};

int Conform(const ConformArguments& arguments) {
  if (arguments.cosi.cosi) {
    return ConformCosi(arguments.remote.address, arguments.cosi, arguments.remote.timeout,
                       arguments.json, arguments.verbose);
  }
  rpc::ConformanceOptions options;
  absl::StatusOr<rpc::ListRequest> request = RemoteRequest(arguments.remote, "conform");
  if (!request.ok()) return Report("conform", request.status());
  options.request = *std::move(request);
  options.foreign_base = arguments.foreign_base;
  if (options.request.timeout.has_value()) options.call_timeout = *options.request.timeout;
  RulePrinter printer(arguments.json, arguments.verbose);
  options.on_report = [&printer](const rpc::RuleReport& report) { printer.Add(report); };
  return printer.Finish(rpc::CheckConformance(options).status());
}

}  // namespace

void AddConform(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("conform", "Check any server against the contract");
  const auto arguments = std::make_shared<ConformArguments>();
  sub->add_option("ADDR", arguments->remote.address, kAddressHelp)->required();
  AddRemoteOptions(*sub, arguments->remote);
  sub->add_option("--foreign-base", arguments->foreign_base,
                  "Snapshot id, with k8s: its handle, of another volume, which must be no base")
      ->type_name("ID");
  sub->add_flag("--cosi", arguments->cosi.cosi,
                "Check a driver of COSI, each revision that it serves, with buckets and accounts "
                "that are made and removed");
  sub->add_option("--bucket-parameter", arguments->cosi.bucket_parameters,
                  "For --cosi: a parameter of the buckets, as a class has it; any number")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_option("--access-parameter", arguments->cosi.access_parameters,
                  "For --cosi: a parameter of access, as a class has it; any number")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_option("--store-ca", arguments->cosi.ca_file,
                  "For --cosi: certificates that the store's must come from (PEM)")
      ->type_name("FILE");
  AddTime(*sub, "--settle", arguments->cosi.settle_time,
          "For --cosi: how long a change of access may take to count", "10");
  sub->add_flag("--json", arguments->json, "One JSON object per rule and line");
  sub->add_flag("-v,--verbose", arguments->verbose, "List the rules that the server keeps, too");
  sub->footer(
      "Lists rules that do not apply, then those that the server breaks.\n"
      "Exit status 0 if the server keeps every rule, else 1. --timeout applies to each call.\n"
      "A snapshot with both scattered and adjacent blocks tests the most.\n"
      "Example: a plugin before it is released\n"
      "  cbtctl conform unix:///csi/csi.sock --snapshot vol1/tuesday --base vol1/monday\n"
      "The plugin and its sidecar in a Kubernetes cluster\n"
      "  cbtctl conform k8s:prod/tuesday --base monday\n"
      "A driver of object storage\n"
      "  cbtctl conform --cosi unix:///var/lib/cosi/cosi.sock");
  sub->callback([arguments, &command] { command = [arguments] { return Conform(*arguments); }; });
}

}  // namespace cbt::cli
