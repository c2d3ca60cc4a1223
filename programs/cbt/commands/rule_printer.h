// Prints what a check of rules finds, for `conform`.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_RULE_PRINTER_H_
#define CBT_PROGRAMS_CBT_COMMANDS_RULE_PRINTER_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "cbt/rpc/conformance.h"
#include "programs/cbt/output/output.h"

namespace cbt::cli {

class RulePrinter {
 public:
  // `verbose`: rules that are kept, too.
  RulePrinter(bool json, bool verbose);

  void Add(const rpc::RuleReport& report);
  // `end`: of the whole check. The exit status: 0 if every rule is kept.
  int Finish(const absl::Status& end);

 private:
  const bool json_;
  const bool verbose_;
  Output output_;
  size_t passed_ = 0;
  size_t failed_ = 0;
  size_t skipped_ = 0;
  // For people, failures come last, where they are seen first.
  std::string failures_;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_RULE_PRINTER_H_
