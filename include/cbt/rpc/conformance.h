// Checks a server against its contract, rule by rule: sends requests whose answers the contract
// decides, and judges what comes. Part of cbt::rpc; the command is `cbtctl conform`.
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
  kFail,           // the evidence names the request and the answer
  kNotApplicable,  // the evidence names the reason
};

// "pass", "fail" or "not applicable".
std::string_view RuleResultName(RuleResult result) noexcept;

struct RuleReport {
  std::string id = {};      // stable across versions: "order", "resume-cut-points"
  std::string method = {};  // "allocated", "delta", "pages" or "service"
  std::string rule = {};    // in words
  RuleResult result = RuleResult::kNotApplicable;
  std::string evidence = {};
};

struct ConformanceOptions {
  // Address, contract, snapshots, token, secrets. With a base, the delta method is checked too. A
  // snapshot with several tuples, some adjacent and some apart, exercises the most rules.
  ListRequest request = {};
  // Id of a snapshot of another volume, which is tried as a base; empty: none. A driver that gives
  // deltas from deleted bases decides alone which volume they were of.
  std::string foreign_base = {};

  // Time limit for one call; exceeding it fails the rule.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(60);
  // Answers with more tuples are refused. Each takes 16 bytes of memory.
  size_t max_tuples = 4'000'000;
  // At most this many offsets at which a stream is resumed, spread over the answer.
  size_t cut_points = 24;
  // Number of identical streams run at the same time.
  size_t concurrent = 8;
  // How long clients that do not read stay connected.
  std::chrono::milliseconds stall{700};

  // Called with each report as soon as it is made.
  std::function<void(const RuleReport& report)> on_report = {};
};

// Errors: INVALID_ARGUMENT for an address that can't be one, RESOURCE_EXHAUSTED for an answer that
//         is too large, UNAVAILABLE if nothing listens at the address or the listener does not
//         speak HTTP/2. A server that speaks HTTP/2 but answers no call fails rules.
absl::StatusOr<std::vector<RuleReport>> CheckConformance(const ConformanceOptions& options);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_H_
