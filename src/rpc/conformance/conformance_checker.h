// The rules behind cbt/rpc/conformance.h, in several files by what they are about.
#ifndef CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_
#define CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/rpc/conformance.h"
#include "rpc/conformance/probe.h"
#include "rpc/contract/contract.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

using absl::StatusCode;
using absl::StrCat;

// Clients refuse larger messages unless told otherwise.
inline constexpr size_t kClientMessageLimit = size_t{4} << 20;

inline constexpr char kUnknownSnapshot[] = "cbt-conform-no-such-snapshot";
inline constexpr char kCanary[] = "cbt-conform-canary-4f1d";

// What a rule found: nothing when it is kept.
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

inline std::string Text(const absl::Status& status) {
  return status.ok() ? "OK"
                     : StrCat(absl::StatusCodeToString(status.code()), " (", status.message(), ")");
}

inline std::string Text(Extent tuple) {
  return StrCat("[byte_offset ", tuple.offset, ", size_bytes ", tuple.length, "]");
}

// What came, in few words.
inline std::string Text(const ProbeAnswer& answer) {
  if (!answer.decoding.ok()) return StrCat("an invalid message: ", answer.decoding.message());
  return StrCat(Text(answer.status), " after ", answer.messages.size(), " messages and ",
                answer.tuples.size(), " tuples");
}

// The bytes that tuples cover, as maximal ranges cut to [from, capacity).
inline std::vector<Extent> Coverage(const TupleList& tuples, uint64_t from, uint64_t capacity) {
  std::vector<Extent> ranges;
  for (size_t i = 0; i < tuples.size(); ++i) {
    const uint64_t begin = std::max(tuples[i].offset, from);
    const uint64_t end = std::min(tuples[i].end(), capacity);
    if (begin >= end) continue;
    if (!ranges.empty() && ranges.back().end() >= begin) {
      ranges.back().length = std::max(ranges.back().end(), end) - ranges.back().offset;
    } else {
      ranges.push_back({begin, end - begin});
    }
  }
  return ranges;
}

// The first range of `expected` that `got` lacks, or the other way round.
inline std::optional<std::string> Difference(const std::vector<Extent>& expected,
                                             const std::vector<Extent>& got) {
  for (size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    if (i < expected.size() && i < got.size() && expected[i] == got[i]) continue;
    const std::string want = i < expected.size() ? Text(expected[i]) : "nothing";
    const std::string have = i < got.size() ? Text(got[i]) : "nothing";
    return StrCat("the complete answer has ", want, " there, this one ", have);
  }
  return std::nullopt;
}

inline bool SameTuples(const TupleList& a, const TupleList& b) { return a == b; }

// Asks one server.
class ConformanceChecker {
 public:
  ConformanceChecker(const ConformanceOptions& options, const Address& address)
      : options_(options),
        contract_(ContractOf(options.request.api)),
        channel_(ConnectForGood(address, options.request.tls)),
        address_(address) {}

  absl::StatusOr<std::vector<RuleReport>> Run() {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    if (contract_.api == Api::kCsi) CheckIdentity();
    std::vector<bool> methods = {false};
    if (options_.request.base_snapshot_id.has_value()) methods.push_back(true);
    for (const bool delta : methods) {
      delta_ = delta;
      method_ = contract_.api == Api::kPaged ? (delta ? "pages of a delta" : "pages")
                                             : (delta ? "delta" : "allocated");
      full_ = Ask(Request());
      if (full_.too_large) {
        return absl::ResourceExhaustedError(
            StrCat(method_, ": the answer has more than ", options_.max_tuples, " tuples"));
      }
      Rule("answers", "the stream of the snapshot ends with OK",
           [&] { return full_.ok() ? Pass() : Fail(Text(full_)); });
      CheckAnswer();
      if (contract_.api == Api::kPaged) {
        CheckPages();
      } else {
        CheckMessages();
        CheckOffsets();
        CheckResumption();
        CheckEnds();
      }
      CheckArguments();
      CheckAccess();
      CheckStrangeRequests();
      CheckRepetition();
    }
    return std::move(reports_);
  }

 private:
  // --- asking ----------------------------------------------------------------------------------

  // Whether there is anybody to judge.
  absl::Status Connect() const;

  const MethodContract& method() const { return delta_ ? contract_.delta : contract_.allocated; }

  MetadataRequest Request() const {
    const ListRequest& asked = options_.request;
    MetadataRequest request;
    request.token = Secret(asked.token);
    request.name_space = asked.name_space;
    request.volume_id = asked.volume_id;
    if (delta_) request.base_snapshot_id = asked.base_snapshot_id;
    request.target_snapshot_id = asked.snapshot_id;
    for (const auto& [key, value] : asked.secrets) request.secrets.Set(key, value);
    return request;
  }

  ProbeLimits Limits() const {
    return {.timeout = options_.call_timeout, .max_tuples = options_.max_tuples};
  }

  ProbeAnswer AskBytes(const std::string& bytes, const ProbeLimits& limits) const {
    return Probe(channel_, contract_, method().path, bytes, limits);
  }
  ProbeAnswer Ask(const MetadataRequest& request) const {
    return AskBytes(EncodeRequest(method(), request), Limits());
  }
  ProbeAnswer AskFrom(int64_t offset, int64_t max_results = 0) const {
    MetadataRequest request = Request();
    request.starting_offset = offset;
    request.max_results = max_results;
    return Ask(request);
  }

  template <typename Test>
  void Rule(const char* id, const char* rule, Test test) {
    const Finding finding = test();
    reports_.push_back({.id = id,
                        .method = method_,
                        .rule = rule,
                        .result = finding.result,
                        .evidence = finding.evidence});
    if (options_.on_report) options_.on_report(reports_.back());
  }

  // Most rules say nothing where there is no answer to begin with.
  std::optional<Finding> WithoutAnswer() const {
    if (full_.ok()) return std::nullopt;
    return Skip("no complete answer to compare with");
  }

  static Finding ExpectCode(const std::string& what, const ProbeAnswer& answer,
                            const std::set<StatusCode>& codes) {
    if (codes.contains(answer.status.code()) && answer.messages.empty()) return Pass();
    std::string wanted;
    for (const StatusCode code : codes) {
      StrAppendCode(wanted, code);
    }
    return Fail(StrCat(what, ": expected ", wanted, ", got ", Text(answer)));
  }
  static void StrAppendCode(std::string& text, StatusCode code) {
    absl::StrAppend(&text, text.empty() ? "" : " or ", absl::StatusCodeToString(code));
  }

  // --- one answer ------------------------------------------------------------------------------

  // Rules about messages say nothing where none came.
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

  // Tuples at which to cut: the first, the last and some between.
  std::vector<size_t> CutPoints() const;

  Finding CheckFrom(uint64_t offset, int64_t max_results) const;

  template <typename OffsetOf>
  Finding CheckCuts(OffsetOf offset_of, int64_t max_results = 0) const {
    if (const auto skip = WithoutAnswer()) return *skip;
    const std::vector<size_t> cuts = CutPoints();
    if (cuts.empty()) return Skip("the stream has no tuples");
    bool tried = false;
    for (const size_t cut : cuts) {
      const std::optional<uint64_t> offset = offset_of(cut);
      if (!offset.has_value() || *offset > full_.capacity()) continue;
      tried = true;
      if (Finding finding = CheckFrom(*offset, max_results); finding.result != RuleResult::kPass) {
        return finding;
      }
    }
    return tried ? Pass() : Skip("the answer has no suitable offset");
  }

  void CheckResumption();

  // --- ends that are none ----------------------------------------------------------------------

  void CheckEnds();

  // --- arguments -------------------------------------------------------------------------------

  void CheckArguments();

  void CheckAccess();

  // --- strange requests ------------------------------------------------------------------------

  Finding StillAnswers() const;

  void CheckStrangeRequests();

  void CheckRepetition();

  // --- pages -----------------------------------------------------------------------------------

  // All pages of `most` entries from `token` on.
  ProbeAnswer AllPages(int64_t most, std::string token, std::string* second_token,
                       std::string& evidence) const;

  void CheckPages();

  // --- csi.v1.Identity -------------------------------------------------------------------------

  void CheckIdentity();

  const ConformanceOptions& options_;
  const Contract& contract_;
  const std::shared_ptr<grpc::Channel> channel_;
  const Address address_;
  std::vector<RuleReport> reports_;
  bool delta_ = false;
  std::string method_;
  ProbeAnswer full_;   // the whole answer to the plain request
  ProbeAnswer pages_;  // the same in pages
  uint64_t allocated_capacity_ = 0;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_CONFORMANCE_CHECKER_H_
