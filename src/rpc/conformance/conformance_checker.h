// The rules of cbt/rpc/conformance.h, in several files by topic.
#ifndef CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_
#define CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/rpc/conformance.h"
#include "cbt/units.h"
#include "net/address.h"
#include "rpc/conformance/probe.h"
#include "rpc/conformance/wire_client.h"
#include "rpc/contract/contract.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

using absl::StatusCode;
using absl::StrCat;

// By default clients refuse larger messages.
inline constexpr size_t kClientMessageLimit = 4 * kMiB;

inline constexpr char kUnknownSnapshot[] = "cbt-conform-no-such-snapshot";
inline constexpr char kCanary[] = "cbt-conform-canary-4f1d";

// The result of a rule; no evidence if it passes.
struct Finding {
  RuleResult result = RuleResult::kPass;
  std::string evidence = {};
};
inline Finding Pass() { return {}; }
inline Finding Fail(std::string evidence) {
  return {.result = RuleResult::kFail, .evidence = std::move(evidence)};
}
inline Finding Skip(std::string why) {
  return {.result = RuleResult::kNotApplicable, .evidence = std::move(why)};
}

std::string Text(const absl::Status& status);
std::string Text(Extent tuple);
// A summary of the answer.
std::string Text(const ProbeAnswer& answer);

// The bytes that tuples cover, as maximal ranges cut to [from, capacity).
std::vector<Extent> Coverage(const TupleList& tuples, uint64_t from, uint64_t capacity);

// Describes the first range in which the two differ; empty if they are equal.
std::optional<std::string> Difference(const std::vector<Extent>& expected,
                                      const std::vector<Extent>& got);

inline bool SameTuples(const TupleList& a, const TupleList& b) { return a == b; }

// Checks one server.
class ConformanceChecker {
 public:
  ConformanceChecker(const ConformanceOptions& options, const net::Address& address,
                     std::shared_ptr<Channel> channel);

  absl::StatusOr<std::vector<RuleReport>> Run();

 private:
  // --- asking ----------------------------------------------------------------------------------

  // OK if the server is reachable.
  absl::Status Connect() const;
  // Why no new connection is accepted any more; OK if one is. A server that has failed a rule may
  // be about to end.
  absl::Status CheckStillThere(bool failed) const;
  void Report(const char* id, const char* rule, const Finding& finding);

  const MethodContract& method() const { return delta_ ? contract_.delta : contract_.allocated; }

  MetadataRequest Request() const;

  ProbeLimits Limits() const {
    return {.timeout = options_.call_timeout, .max_tuples = options_.max_tuples};
  }

  ProbeAnswer AskBytes(const std::string& bytes, const ProbeLimits& limits) const {
    return Probe(*channel_, contract_, method().path, bytes, limits);
  }
  ProbeAnswer Ask(const MetadataRequest& request) const {
    return AskBytes(EncodeRequest(method(), request), Limits());
  }
  ProbeAnswer AskFrom(int64_t offset, int64_t max_results = 0) const;

  // Runs a test and reports its finding. Does nothing once a rule has ended the server.
  void Rule(const char* id, const char* rule, absl::FunctionRef<Finding()> test);

  // Most rules do not apply without a complete answer.
  std::optional<Finding> WithoutAnswer() const {
    if (full_.ok()) return std::nullopt;
    return Skip("no complete answer to compare with");
  }

  static Finding ExpectCode(const std::string& what, const ProbeAnswer& answer,
                            const std::set<StatusCode>& codes);

  // --- one answer ------------------------------------------------------------------------------

  // Rules about messages do not apply without one.
  std::optional<Finding> WithoutMessages() const {
    if (!full_.messages.empty()) return std::nullopt;
    return Skip("no message was received");
  }

  void CheckAnswer();

  static Finding CheckOrder(const ProbeAnswer& answer);

  static Finding CheckInside(const ProbeAnswer& answer);

  static Finding CheckProofOf(const ProbeAnswer& answer, uint64_t offset);

  // --- messages --------------------------------------------------------------------------------

  void CheckMessages();

  // --- starting offsets ------------------------------------------------------------------------

  void CheckOffsets();

  // --- resuming --------------------------------------------------------------------------------

  // Indexes of tuples at which to resume: the first, the last and some between.
  std::vector<size_t> CutPoints() const;

  Finding CheckFrom(uint64_t offset, int64_t max_results) const;

  // Resumes at offset_of() of each cut point; an empty offset skips it.
  Finding CheckCuts(absl::FunctionRef<std::optional<uint64_t>(size_t)> offset_of,
                    int64_t max_results = 0) const;

  void CheckResumption();

  // --- premature ends --------------------------------------------------------------------------

  void CheckEnds();

  // --- arguments -------------------------------------------------------------------------------

  void CheckArguments();

  void CheckAccess();

  // --- strange requests ------------------------------------------------------------------------

  Finding StillAnswers() const;

  void CheckStrangeRequests();

  void CheckRepetition();

  // --- pages -----------------------------------------------------------------------------------

  // All pages with at most `most` entries, from `token` on.
  ProbeAnswer AllPages(int64_t most, std::string token, std::string* second_token,
                       std::string& evidence) const;

  void CheckPages();

  // --- frames ----------------------------------------------------------------------------------

  // A rule about gRPC over HTTP/2: runs the test on a separate connection, with a window of this
  // size for each stream.
  void WireRule(const char* id, const char* rule, uint32_t window,
                absl::FunctionRef<Finding(WireClient&)> test);

  const char* Path() const { return method().path; }
  std::string Message() const { return EncodeRequest(method(), Request()); }

  // Whether the stream has received the complete answer.
  Finding IsWhole(const WireClient& client, uint32_t stream) const;
  // Sends the plain request with these fields, then IsWhole().
  Finding Serves(WireClient& client, uint32_t stream) const;
  // Waits for an end that is an error.
  static Finding IsRefused(WireClient& client, uint32_t stream, const std::string& what);
  // Waits for any end; passes if that is an error or a complete OK.
  Finding IsOver(WireClient& client, uint32_t stream) const;
  // Sends the plain request, and waits until part of its answer has arrived.
  static Finding Begins(WireClient& client, uint32_t stream);

  void CheckWire();
  void CheckWireConnection();
  void CheckWireRequests();
  void CheckWireErrors();
  void CheckWireStreams();

  // --- csi.v1.Identity -------------------------------------------------------------------------

  void CheckIdentity();

  const ConformanceOptions& options_;
  const Contract& contract_;
  const std::shared_ptr<Channel> channel_;
  const net::Address address_;
  std::vector<RuleReport> reports_;
  bool delta_ = false;
  std::string method_;
  ProbeAnswer full_;   // the complete answer to the plain request
  ProbeAnswer pages_;  // the same in pages
  std::optional<uint64_t> allocated_capacity_;
  bool ended_ = false;  // no more rules
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_
