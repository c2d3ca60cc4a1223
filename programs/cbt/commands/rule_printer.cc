#include "programs/cbt/commands/rule_printer.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

std::string RuleRow(const rpc::RuleReport& report, bool json) {
  const std::string result(rpc::RuleResultName(report.result));
  if (json) {
    JsonBuilder line;
    line.BeginObject().Field("id", report.id).Field("method", report.method);
    line.Field("rule", report.rule).Field("result", result).Field("evidence", report.evidence);
    return line.EndObject().Take() + "\n";
  }
  const char* const mark = report.result == rpc::RuleResult::kPass   ? "pass"
                           : report.result == rpc::RuleResult::kFail ? "FAIL"
                                                                     : "n/a ";
  std::string row = absl::StrCat(mark, "  ", report.method, "  ", report.id, ": ", report.rule);
  if (!report.evidence.empty()) absl::StrAppend(&row, "\n      ", OneLine(report.evidence));
  return row + "\n";
}

}  // namespace

RulePrinter::RulePrinter(bool json, bool verbose)
    : json_(json), verbose_(verbose), output_(STDOUT_FILENO, "stdout") {}

void RulePrinter::Add(const rpc::RuleReport& report) {
  const bool pass = report.result == rpc::RuleResult::kPass;
  const bool fail = report.result == rpc::RuleResult::kFail;
  (pass ? passed_ : fail ? failed_ : skipped_)++;
  if (fail && !json_) {
    failures_ += RuleRow(report, false);
  } else if (!pass || json_ || verbose_) {
    output_.Append(RuleRow(report, json_));
    output_.FlushIfDue();
  }
}

int RulePrinter::Finish(const absl::Status& end) {
  output_.Append(failures_);
  if (end.ok() && !json_) {
    output_.Append(
        absl::StrCat(passed_, " passed, ", failed_, " failed, ", skipped_, " not applicable\n"));
  }
  if (const int status = Report("conform", output_.Close()); status != kExitDone) return status;
  if (!end.ok()) return Report("conform", end, Origin::kServer);
  return failed_ == 0 ? kExitDone : kExitNo;
}

}  // namespace cbt::cli
