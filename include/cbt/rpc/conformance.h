// Asks a server of any of the contracts, whoever wrote it, questions whose answers the contract
// decides, and says rule by rule how it did. Part of cbt::rpc; `cbt conform` is the command.
#ifndef CBT_RPC_CONFORMANCE_H_
#define CBT_RPC_CONFORMANCE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"

namespace cbt::rpc {

enum class RuleResult {
  kPass,
  kFail,           // the evidence says what was asked and what came
  kNotApplicable,  // the evidence says why it could not be tried
};

// "pass", "fail" or "not applicable".
std::string_view RuleResultName(RuleResult result) noexcept;

struct RuleReport {
  std::string id = {};      // the same from version to version: "order", "resume-cut-points"
  std::string method = {};  // "allocated", "delta", "pages" or "service"
  std::string rule = {};    // in words
  RuleResult result = RuleResult::kNotApplicable;
  std::string evidence = {};
};

struct ConformanceOptions {
  // Address, contract, snapshots, token, secrets. A base, if there is one, has the delta method
  // checked beside the other. A snapshot with some tuples, in gaps and in rows, shows most.
  ListRequest request = {};

  // For one call; a server that takes longer has failed the rule.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(60);
  // Answers of more tuples are refused, memory is 16 bytes for each.
  size_t max_tuples = 4'000'000;
  // Places at which a stream is resumed at most, spread over the answer.
  size_t cut_points = 24;
  // Equal streams at the same time.
  size_t concurrent = 8;
  // How long clients that don't read stay.
  std::chrono::milliseconds stall{700};

  // Called with each report as soon as it is made.
  std::function<void(const RuleReport& report)> on_report = {};
};

// Errors: INVALID_ARGUMENT for an address that can't be one, RESOURCE_EXHAUSTED for an answer that
//         is too large, UNAVAILABLE when there is nobody to connect to, or who takes connections
//         does not speak HTTP/2. A server that does and answers no call fails rules.
absl::StatusOr<std::vector<RuleReport>> CheckConformance(const ConformanceOptions& options);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_H_
