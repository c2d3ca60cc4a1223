// `cbtctl conform`: checks whether a server keeps the contract.

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/rpc/conformance.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct ConformArguments {
  RemoteArguments remote;
  bool json = false;
  bool verbose = false;
};

std::string Row(const rpc::RuleReport& report, bool json) {
  const std::string result(rpc::RuleResultName(report.result));
  if (json) {
    return absl::StrCat("{\"id\":", JsonString(report.id),
                        ",\"method\":", JsonString(report.method),
                        ",\"rule\":", JsonString(report.rule), ",\"result\":", JsonString(result),
                        ",\"evidence\":", JsonString(report.evidence), "}\n");
  }
  const char* const mark = report.result == rpc::RuleResult::kPass   ? "pass"
                           : report.result == rpc::RuleResult::kFail ? "FAIL"
                                                                     : "n/a ";
  std::string row = absl::StrCat(mark, "  ", report.method, "  ", report.id, ": ", report.rule);
  if (!report.evidence.empty()) absl::StrAppend(&row, "\n      ", OneLine(report.evidence));
  return row + "\n";
}

int Conform(const ConformArguments& arguments) {
  rpc::ConformanceOptions options;
  absl::StatusOr<rpc::ListRequest> request = RemoteRequest(arguments.remote, "conform");
  if (!request.ok()) return Report("conform", request.status());
  options.request = *std::move(request);
  if (options.request.timeout.has_value()) options.call_timeout = *options.request.timeout;
  Output output(STDOUT_FILENO, "stdout");
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  // For people, failures come last, where they are seen first.
  std::string failures;
  options.on_report = [&](const rpc::RuleReport& report) {
    const bool pass = report.result == rpc::RuleResult::kPass;
    const bool fail = report.result == rpc::RuleResult::kFail;
    (pass ? passed : fail ? failed : skipped)++;
    if (fail && !arguments.json) {
      failures += Row(report, false);
    } else if (!pass || arguments.json || arguments.verbose) {
      output.Append(Row(report, arguments.json));
      output.FlushIfDue();
    }
  };
  const auto reports = rpc::CheckConformance(options);
  output.Append(failures);
  if (reports.ok() && !arguments.json) {
    output.Append(
        absl::StrCat(passed, " passed, ", failed, " failed, ", skipped, " not applicable\n"));
  }
  if (const int status = Report("conform", output.Close()); status != kExitDone) return status;
  if (!reports.ok()) return Report("conform", reports.status(), Origin::kServer);
  return failed == 0 ? kExitDone : kExitNo;
}

}  // namespace

void AddConform(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("conform", "Check any server against the contract");
  const auto arguments = std::make_shared<ConformArguments>();
  sub->add_option("ADDR", arguments->remote.address, kAddressHelp)->required();
  AddRemoteOptions(*sub, arguments->remote);
  sub->add_flag("--json", arguments->json, "One JSON object per rule and line");
  sub->add_flag("-v,--verbose", arguments->verbose, "List the rules that the server keeps, too");
  sub->footer(
      "Lists rules that do not apply, then those that the server breaks.\n"
      "Exit status 0 if the server keeps every rule, else 1. --timeout applies to each call.\n"
      "A snapshot with both scattered and adjacent blocks tests the most.\n"
      "Example: a plugin before it is released\n"
      "  cbtctl conform unix:///csi/csi.sock --snapshot vol1/tuesday --base vol1/monday\n"
      "The plugin and its sidecar in a Kubernetes cluster\n"
      "  cbtctl conform k8s:prod/tuesday --base monday");
  sub->callback([arguments, &command] { command = [arguments] { return Conform(*arguments); }; });
}

}  // namespace cbt::cli
