#include "rpc/conformance/conformance_checker.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "rpc/client/connect.h"

namespace cbt::rpc {
namespace {

constexpr char kStaysUp[] = "stays-up";
constexpr char kStaysUpRule[] = "the server is still there after every rule";

}  // namespace

std::string Text(const absl::Status& status) {
  return status.ok() ? "OK"
                     : StrCat(absl::StatusCodeToString(status.code()), " (", status.message(), ")");
}

std::string Text(Extent tuple) {
  return StrCat("[byte_offset ", tuple.offset, ", size_bytes ", tuple.length, "]");
}

std::string Text(const ProbeAnswer& answer) {
  if (!answer.decoding.ok()) return StrCat("an invalid message: ", answer.decoding.message());
  return StrCat(Text(answer.status), " after ", answer.messages.size(), " messages and ",
                answer.tuples.size(), " tuples");
}

std::vector<Extent> Coverage(const TupleList& tuples, uint64_t from, uint64_t capacity) {
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

std::optional<std::string> Difference(const std::vector<Extent>& expected,
                                      const std::vector<Extent>& got) {
  for (size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    if (i < expected.size() && i < got.size() && expected[i] == got[i]) continue;
    const std::string want = i < expected.size() ? Text(expected[i]) : "nothing";
    const std::string have = i < got.size() ? Text(got[i]) : "nothing";
    return StrCat("the complete answer has ", want, " there, this one ", have);
  }
  return std::nullopt;
}

ConformanceChecker::ConformanceChecker(const ConformanceOptions& options,
                                       const net::Address& address,
                                       std::shared_ptr<Channel> channel)
    : options_(options),
      contract_(ContractOf(options.request.api)),
      channel_(std::move(channel)),
      address_(address) {}

absl::StatusOr<std::vector<RuleReport>> ConformanceChecker::Run() {
  if (absl::Status connected = Connect(); !connected.ok()) return connected;
  if (contract_.api == Api::kCsi) CheckIdentity();
  std::vector<bool> methods = {false};
  if (options_.request.base_snapshot_id.has_value()) methods.push_back(true);
  bool wire_checked = false;
  for (const bool delta : methods) {
    delta_ = delta;
    method_ = contract_.api == Api::kPaged ? (delta ? "pages of a delta" : "pages")
                                           : (delta ? "delta" : "allocated");
    full_ = Ask(Request());
    if (full_.too_large) {
      return absl::ResourceExhaustedError(
          StrCat(method_, ": the answer has more than ", options_.max_tuples, " tuples"));
    }
    // A plugin may only know changes. Without a delta, nothing would be left to judge.
    const bool absent = !delta && methods.size() > 1 && full_.messages.empty() &&
                        full_.status.code() == StatusCode::kUnimplemented;
    Rule("answers", "the stream of the snapshot ends with OK", [&] {
      return full_.ok() ? Pass()
             : absent   ? Skip(StrCat("the server does not offer this method: ", Text(full_)))
                        : Fail(Text(full_));
    });
    if (absent) continue;
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
    if (!wire_checked) CheckWire();
    wire_checked = true;
    if (ended_) break;
  }
  if (!ended_) Report(kStaysUp, kStaysUpRule, Pass());
  return std::move(reports_);
}

MetadataRequest ConformanceChecker::Request() const {
  const ListRequest& asked = options_.request;
  MetadataRequest request;
  request.token = asked.token.Copy();
  if (asked.token_source) {
    // A server that does not take the old one shows what a new one would have been for.
    absl::StatusOr<Secret> token = asked.token_source();
    if (token.ok()) request.token = *std::move(token);
  }
  request.name_space = asked.name_space;
  request.volume_id = asked.volume_id;
  if (delta_) request.base_snapshot_id = asked.base_snapshot_id;
  request.target_snapshot_id = asked.snapshot_id;
  request.secrets = asked.secrets.Copy();
  return request;
}

ProbeAnswer ConformanceChecker::AskFrom(int64_t offset, int64_t max_results) const {
  MetadataRequest request = Request();
  request.starting_offset = offset;
  request.max_results = max_results;
  return Ask(request);
}

absl::Status ConformanceChecker::CheckStillThere(bool failed) const {
  constexpr std::chrono::milliseconds kPause{50};
  constexpr int kTries = 20;  // a queue of connections may be full for a while
  if (failed) std::this_thread::sleep_for(kPause);
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    status = WireClient::Connect(address_, options_.request.tls, {.timeout = options_.call_timeout})
                 .status();
    if (status.ok()) return status;
  }
  return status;
}

void ConformanceChecker::Rule(const char* id, const char* rule, absl::FunctionRef<Finding()> test) {
  if (ended_) return;
  const Finding finding = test();
  Report(id, rule, finding);
  const absl::Status there = CheckStillThere(finding.result == RuleResult::kFail);
  if (there.ok()) return;
  ended_ = true;
  Report(kStaysUp, kStaysUpRule,
         Fail(StrCat("after the rule \"", id,
                     "\" it can't be reached any more, so that the other "
                     "rules were not checked: ",
                     there.message())));
}

void ConformanceChecker::Report(const char* id, const char* rule, const Finding& finding) {
  reports_.push_back({.id = id,
                      .method = method_,
                      .rule = rule,
                      .result = finding.result,
                      .evidence = finding.evidence});
  if (options_.on_report) options_.on_report(reports_.back());
}

Finding ConformanceChecker::ExpectCode(const std::string& what, const ProbeAnswer& answer,
                                       const std::set<StatusCode>& codes) {
  if (codes.contains(answer.status.code()) && answer.messages.empty()) return Pass();
  std::string wanted;
  for (const StatusCode code : codes) {
    absl::StrAppend(&wanted, wanted.empty() ? "" : " or ", absl::StatusCodeToString(code));
  }
  return Fail(StrCat(what, ": expected ", wanted, ", got ", Text(answer)));
}

Finding ConformanceChecker::CheckCuts(absl::FunctionRef<std::optional<uint64_t>(size_t)> offset_of,
                                      int64_t max_results) const {
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

}  // namespace cbt::rpc
