#include "programs/cbt/commands/conform_cosi.h"

#include "absl/status/statusor.h"
#include "programs/cbt/commands/rule_printer.h"
#include "programs/cbt/support/status.h"
#include "programs/cosi/conform/conformance.h"

namespace cbt::cli {
namespace {

absl::StatusOr<cosi::Parameters> ParametersFrom(const char* option,
                                                const std::vector<std::string>& texts) {
  cosi::Parameters parameters;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return UsageError(option, "expected KEY=VALUE");
    parameters[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return parameters;
}

}  // namespace

int ConformCosi(const std::string& address, const ConformCosiArguments& arguments,
                std::optional<std::chrono::milliseconds> timeout, bool json, bool verbose) {
  cosi::ConformanceOptions options{
      .address = address, .ca_file = arguments.ca_file, .settle_time = arguments.settle_time};
  if (timeout.has_value()) options.call_timeout = *timeout;
  absl::StatusOr<cosi::Parameters> bucket =
      ParametersFrom("--bucket-parameter", arguments.bucket_parameters);
  if (!bucket.ok()) return Report("conform", bucket.status());
  options.bucket_parameters = *std::move(bucket);
  absl::StatusOr<cosi::Parameters> access =
      ParametersFrom("--access-parameter", arguments.access_parameters);
  if (!access.ok()) return Report("conform", access.status());
  options.access_parameters = *std::move(access);
  RulePrinter printer(json, verbose);
  options.on_report = [&printer](const rpc::RuleReport& report) { printer.Add(report); };
  return printer.Finish(cosi::CheckCosiDriver(options).status());
}

}  // namespace cbt::cli
