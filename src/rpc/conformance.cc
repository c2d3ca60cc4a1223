#include "cbt/rpc/conformance.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/absl_view.h"
#include "rpc/channel.h"
#include "rpc/completeness.h"
#include "rpc/contract.h"
#include "rpc/identity_service.h"
#include "rpc/listen_address.h"
#include "rpc/probe.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

using absl::StatusCode;
using absl::StrCat;
using std::chrono::milliseconds;

// Clients refuse larger messages unless told otherwise.
constexpr size_t kClientMessageLimit = size_t{4} << 20;

constexpr char kUnknownSnapshot[] = "cbt-conform-no-such-snapshot";
constexpr char kCanary[] = "cbt-conform-canary-4f1d";

// What a rule found: nothing when it is kept.
struct Finding {
  RuleResult result = RuleResult::kPass;
  std::string evidence = {};
};
Finding Pass() { return {}; }
Finding Fail(std::string evidence) {
  return {.result = RuleResult::kFail, .evidence = std::move(evidence)};
}
Finding Skip(std::string why) {
  return {.result = RuleResult::kNotApplicable, .evidence = std::move(why)};
}

std::string Text(const absl::Status& status) {
  return status.ok() ? "OK"
                     : StrCat(absl::StatusCodeToString(status.code()), " (", status.message(), ")");
}

std::string Text(Extent tuple) {
  return StrCat("[byte_offset ", tuple.offset, ", size_bytes ", tuple.length, "]");
}

// What came, in few words.
std::string Text(const ProbeAnswer& answer) {
  if (!answer.decoding.ok()) return StrCat("a message that is none: ", answer.decoding.message());
  return StrCat(Text(answer.status), " after ", answer.messages.size(), " messages and ",
                answer.tuples.size(), " tuples");
}

// The bytes that tuples cover, as maximal ranges cut to [from, capacity).
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

// The first range of `expected` that `got` lacks, or the other way round.
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

bool SameTuples(const TupleList& a, const TupleList& b) { return a == b; }

class Checker {
 public:
  Checker(const ConformanceOptions& options, const Address& address)
      : options_(options),
        contract_(ContractOf(options.request.api)),
        channel_(ConnectForGood(address, options.request.tls)),
        address_(address) {}

  absl::StatusOr<std::vector<RuleReport>> Run() {
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
    return Skip("there is no complete answer to compare with");
  }

  static Finding ExpectCode(const std::string& what, const ProbeAnswer& answer,
                            std::set<StatusCode> codes) {
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

  void CheckAnswer() {
    Rule("well-formed", "every message is a protobuf message of the contract", [&] {
      return full_.decoding.ok() ? Pass() : Fail(std::string(full_.decoding.message()));
    });
    Rule("order", "tuples ascend and never overlap, also from message to message",
         [&] { return CheckOrder(full_); });
    Rule("sizes", "every tuple has a size above 0", [&] {
      for (size_t i = 0; i < full_.tuples.size(); ++i) {
        if (full_.tuples[i].length == 0)
          return Fail(StrCat("tuple ", i, ": ", Text(full_.tuples[i])));
      }
      return Pass();
    });
    Rule("inside", "tuples lie inside the capacity; the last of FIXED_LENGTH may reach past it",
         [&] { return CheckInside(full_); });
    if (contract_.api != Api::kPaged) {
      Rule("constant", "type and capacity are the same in every message of a stream", [&] {
        for (const ProbedMessage& message : full_.messages) {
          if (message.type != full_.messages.front().type ||
              message.capacity != full_.messages.front().capacity) {
            return Fail(StrCat("a message says ", AbslView(BlockMetadataTypeName(message.type)),
                               " and ", message.capacity, " after ",
                               AbslView(BlockMetadataTypeName(full_.messages.front().type)),
                               " and ", full_.messages.front().capacity));
          }
        }
        return Pass();
      });
      Rule("type", "the type is FIXED_LENGTH or VARIABLE_LENGTH", [&] {
        for (const ProbedMessage& message : full_.messages) {
          if (message.type == BlockMetadataType::kUnknown) return Fail("a message says UNKNOWN");
        }
        return Pass();
      });
      Rule("fixed-size", "every tuple of a FIXED_LENGTH stream has the same size", [&] {
        if (full_.messages.empty() ||
            full_.messages.front().type != BlockMetadataType::kFixedLength) {
          return Skip("the stream is not FIXED_LENGTH");
        }
        for (size_t i = 1; i < full_.tuples.size(); ++i) {
          if (full_.tuples[i].length != full_.tuples[0].length) {
            return Fail(StrCat("tuple ", i, " is ", Text(full_.tuples[i]), ", the first has ",
                               full_.tuples[0].length, " bytes"));
          }
        }
        return Pass();
      });
      Rule("first-message", "a stream carries at least one message", [&] {
        if (const auto skip = WithoutAnswer()) return *skip;
        return full_.messages.empty() ? Fail("OK without any message") : Pass();
      });
      Rule("proof", "a proof of completeness, where there is one, holds", [&] {
        if (const auto skip = WithoutAnswer()) return *skip;
        return CheckProofOf(full_, 0);
      });
    }
    Rule("capacity", "the capacity is the target snapshot's in both methods", [&] {
      if (!delta_) {
        allocated_capacity_ = full_.capacity();
        return Skip("needs a delta to compare with");
      }
      if (const auto skip = WithoutAnswer()) return *skip;
      if (full_.capacity() == allocated_capacity_) return Pass();
      return Fail(StrCat("allocated says ", allocated_capacity_, ", the delta ", full_.capacity()));
    });
  }

  static Finding CheckOrder(const ProbeAnswer& answer) {
    for (size_t i = 1; i < answer.tuples.size(); ++i) {
      if (answer.tuples[i].offset < answer.tuples[i - 1].end()) {
        return Fail(StrCat("tuple ", i, " ", Text(answer.tuples[i]), " after ",
                           Text(answer.tuples[i - 1])));
      }
    }
    return Pass();
  }

  static Finding CheckInside(const ProbeAnswer& answer) {
    const uint64_t capacity = answer.capacity();
    const bool fixed =
        !answer.messages.empty() && answer.messages.front().type == BlockMetadataType::kFixedLength;
    for (size_t i = 0; i < answer.tuples.size(); ++i) {
      const Extent tuple = answer.tuples[i];
      const bool last = i + 1 == answer.tuples.size();
      if (tuple.offset >= capacity || (tuple.end() > capacity && !(fixed && last))) {
        return Fail(StrCat("tuple ", i, " ", Text(tuple), ", capacity ", capacity));
      }
    }
    return Pass();
  }

  static Finding CheckProofOf(const ProbeAnswer& answer, uint64_t offset) {
    StreamDigest digest;
    digest.Add(answer.tuples.offsets(), answer.tuples.lengths());
    std::string what;
    switch (CheckProof(
        [&answer](std::string_view key) -> std::optional<std::string_view> {
          const auto found = answer.trailing.find(std::string(key));
          if (found == answer.trailing.end()) return std::nullopt;
          return found->second;
        },
        digest, offset, what)) {
      case ProofVerdict::kAbsent:
        return Skip("the server sends none");
      case ProofVerdict::kDiffers:
        return Fail(what);
      case ProofVerdict::kHolds:
        break;
    }
    return Pass();
  }

  // --- messages --------------------------------------------------------------------------------

  void CheckMessages() {
    Rule("max-results", "max_results caps the tuples of each message and never those of the stream",
         [&] {
           if (const auto skip = WithoutAnswer()) return *skip;
           const auto count = static_cast<int64_t>(full_.tuples.size());
           for (const int64_t most :
                {int64_t{1}, int64_t{2}, int64_t{7}, std::max<int64_t>(count, 1), count + 1,
                 int64_t{std::numeric_limits<int32_t>::max()}}) {
             const ProbeAnswer answer = AskFrom(0, most);
             if (!answer.ok()) return Fail(StrCat("max_results ", most, ": ", Text(answer)));
             for (const ProbedMessage& message : answer.messages) {
               if (message.count > static_cast<uint64_t>(most)) {
                 return Fail(StrCat("max_results ", most, ": a message of ", message.count));
               }
             }
             if (const auto difference = Difference(Coverage(full_.tuples, 0, full_.capacity()),
                                                    Coverage(answer.tuples, 0, full_.capacity()))) {
               return Fail(StrCat("max_results ", most, ": ", *difference));
             }
           }
           return Pass();
         });
    Rule("max-results-same-tuples", "max_results changes where messages end, not the tuples", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      const ProbeAnswer answer = AskFrom(0, 1);
      if (!answer.ok()) return Fail(Text(answer));
      if (SameTuples(answer.tuples, full_.tuples)) return Pass();
      return Fail(StrCat("max_results 1 gives ", answer.tuples.size(), " tuples, 0 gives ",
                         full_.tuples.size()));
    });
    Rule("message-bytes", "no message is as large as what clients refuse (4 MiB)", [&] {
      for (const int64_t most : {int64_t{0}, int64_t{std::numeric_limits<int32_t>::max()}}) {
        const ProbeAnswer answer = most == 0 ? full_ : AskFrom(0, most);
        if (answer.status.code() == StatusCode::kResourceExhausted) {
          return Fail(StrCat("max_results ", most, ": ", Text(answer)));
        }
        for (const ProbedMessage& message : answer.messages) {
          if (message.bytes > kClientMessageLimit * 3 / 4) {
            return Fail(StrCat("max_results ", most, ": a message of ", message.bytes, " bytes"));
          }
        }
      }
      return Pass();
    });
    Rule("no-idle-messages", "messages without tuples come only where the stream has none", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      if (full_.tuples.empty()) return Skip("the stream has no tuples");
      for (const ProbedMessage& message : full_.messages) {
        if (message.count == 0) return Skip("the server sends empty messages, which is allowed");
      }
      return Pass();
    });
  }

  // --- starting offsets ------------------------------------------------------------------------

  void CheckOffsets() {
    Rule("offset-negative", "a negative starting offset is OUT_OF_RANGE", [&] {
      for (const int64_t offset : {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
        const Finding finding = ExpectCode(StrCat("starting_offset ", offset), AskFrom(offset),
                                           {StatusCode::kOutOfRange});
        if (finding.result != RuleResult::kPass) return finding;
      }
      return Pass();
    });
    Rule("offset-past-capacity", "a starting offset greater than the capacity is OUT_OF_RANGE",
         [&] {
           if (const auto skip = WithoutAnswer()) return *skip;
           if (full_.messages.empty()) return Skip("the capacity is not known");
           std::set<int64_t> offsets = {std::numeric_limits<int64_t>::max()};
           if (full_.capacity() < kMaxCapacity) {
             offsets.insert(static_cast<int64_t>(full_.capacity()) + 1);
           }
           for (const int64_t offset : offsets) {
             if (static_cast<uint64_t>(offset) == full_.capacity()) continue;
             const Finding finding = ExpectCode(StrCat("starting_offset ", offset), AskFrom(offset),
                                                {StatusCode::kOutOfRange});
             if (finding.result != RuleResult::kPass) return finding;
           }
           return Pass();
         });
    Rule("offset-at-capacity", "a starting offset equal to the capacity is OK, without tuples",
         [&] {
           if (const auto skip = WithoutAnswer()) return *skip;
           if (full_.messages.empty()) return Skip("the capacity is not known");
           const ProbeAnswer answer = AskFrom(static_cast<int64_t>(full_.capacity()));
           if (answer.ok() && answer.tuples.empty()) return Pass();
           // A last block that reaches past the capacity ends after it.
           if (answer.ok() && answer.tuples.size() == 1 && !full_.tuples.empty() &&
               answer.tuples[0] == full_.tuples.back() &&
               full_.tuples.back().end() > full_.capacity()) {
             return Pass();
           }
           return Fail(Text(answer));
         });
    Rule("empty-stream", "a stream without tuples still carries type and capacity", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      if (full_.messages.empty()) return Skip("the capacity is not known");
      const ProbeAnswer answer = AskFrom(static_cast<int64_t>(full_.capacity()));
      if (!answer.ok()) return Skip("see offset-at-capacity");
      if (answer.messages.empty()) return Fail("no message at all");
      if (answer.messages.front().capacity != full_.capacity() ||
          answer.messages.front().type != full_.messages.front().type) {
        return Fail("type or capacity are others than those of the full stream");
      }
      return Pass();
    });
  }

  // --- resuming --------------------------------------------------------------------------------

  // Tuples at which to cut: the first, the last and some between.
  std::vector<size_t> CutPoints() const {
    const size_t count = full_.tuples.size();
    std::set<size_t> cuts;
    if (count == 0) return {};
    const size_t most = std::max<size_t>(options_.cut_points, 2);
    for (size_t i = 0; i < most; ++i) cuts.insert(i * (count - 1) / (most - 1));
    return {cuts.begin(), cuts.end()};
  }

  Finding CheckFrom(uint64_t offset, int64_t max_results) const {
    const std::string what = StrCat("starting_offset ", offset,
                                    max_results == 0 ? "" : StrCat(", max_results ", max_results));
    const ProbeAnswer answer = AskFrom(static_cast<int64_t>(offset), max_results);
    if (!answer.ok()) return Fail(StrCat(what, ": ", Text(answer)));
    if (!answer.tuples.empty() && answer.tuples.front().end() <= offset) {
      return Fail(StrCat(what, ": the first tuple is ", Text(answer.tuples.front()),
                         ", which ends before"));
    }
    if (const Finding order = CheckOrder(answer); order.result == RuleResult::kFail) {
      return Fail(StrCat(what, ": ", order.evidence));
    }
    for (const ProbedMessage& message : answer.messages) {
      if (message.capacity != full_.capacity() || message.type != full_.messages.front().type) {
        return Fail(StrCat(what, ": another type or capacity"));
      }
    }
    if (const auto difference = Difference(Coverage(full_.tuples, offset, full_.capacity()),
                                           Coverage(answer.tuples, offset, full_.capacity()))) {
      return Fail(StrCat(what, ": ", *difference));
    }
    return Pass();
  }

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
    return tried ? Pass() : Skip("the answer has no such place");
  }

  void CheckResumption() {
    const TupleList& tuples = full_.tuples;
    Rule("resume-cut-points", "resumed at the end of a tuple, the rest is what was still missing",
         [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end()); }); });
    Rule("resume-before-end", "resumed one byte before a tuple's end, that tuple is there again",
         [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end() - 1); }); });
    Rule("resume-in-gap", "resumed between two tuples, the next one is there", [&] {
      return CheckCuts([&](size_t i) -> std::optional<uint64_t> {
        const uint64_t before = i == 0 ? 0 : tuples[i - 1].end();
        if (tuples[i].offset - before < 2) return std::nullopt;
        return before + (tuples[i].offset - before) / 2;
      });
    });
    Rule("resume-unaligned", "resumed at an odd byte inside a tuple, nothing is lost", [&] {
      return CheckCuts([&](size_t i) -> std::optional<uint64_t> {
        if (tuples[i].length < 2) return std::nullopt;
        return tuples[i].offset + tuples[i].length / 2 + (tuples[i].length > 4 ? 1 : 0);
      });
    });
    Rule("resume-other-max-results", "resumed with another max_results, the rest is the same",
         [&] { return CheckCuts([&](size_t i) { return std::optional(tuples[i].end()); }, 3); });
    Rule("resume-proof", "the proof of a resumed stream holds for what it carried", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      if (tuples.empty()) return Skip("the stream has no tuples");
      const uint64_t offset = std::min(tuples[tuples.size() / 2].end(), full_.capacity());
      return CheckProofOf(AskFrom(static_cast<int64_t>(offset)), offset);
    });
  }

  // --- ends that are none ----------------------------------------------------------------------

  void CheckEnds() {
    Rule("deadline", "a deadline that passes ends the stream with an error, or it is complete",
         [&] {
           if (const auto skip = WithoutAnswer()) return *skip;
           for (const int wait : {1, 2, 5, 10, 20}) {
             ProbeLimits limits = Limits();
             limits.timeout = milliseconds(wait);
             const ProbeAnswer answer = AskBytes(EncodeRequest(method(), Request()), limits);
             if (answer.ok() && !SameTuples(answer.tuples, full_.tuples)) {
               return Fail(StrCat("deadline ", wait, " ms: ", Text(answer),
                                  ", the full answer has ", full_.tuples.size()));
             }
           }
           return Pass();
         });
    Rule("cancel", "after a cancelled stream the next one is complete", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      for (int i = 0; i < 5; ++i) {
        ProbeLimits limits = Limits();
        limits.cancel_after = 1;
        MetadataRequest request = Request();
        request.max_results = 1;
        AskBytes(EncodeRequest(method(), request), limits);
      }
      const ProbeAnswer answer = AskFrom(0);
      if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
      return Fail(Text(answer));
    });
    Rule("stalled-reader", "a client that does not read holds up nobody else", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      std::vector<std::thread> stalled;
      for (size_t i = 0; i < options_.concurrent; ++i) {
        stalled.emplace_back([this] {
          ProbeLimits limits = Limits();
          limits.stall = options_.stall;
          limits.cancel_after = 2;
          const auto channel = ConnectForOneStream(address_, options_.request.tls);
          Probe(channel, contract_, method().path, EncodeRequest(method(), Request()), limits);
        });
      }
      std::this_thread::sleep_for(options_.stall / 2);
      const ProbeAnswer answer = AskFrom(0);
      for (std::thread& thread : stalled) thread.join();
      if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
      return Fail(Text(answer));
    });
  }

  // --- arguments -------------------------------------------------------------------------------

  void CheckArguments() {
    Rule("max-results-negative", "a negative max_results is INVALID_ARGUMENT, at once", [&] {
      if (method().unsigned_numbers) return Skip("the contract has unsigned numbers");
      for (const int64_t most : {int64_t{-1}, int64_t{std::numeric_limits<int32_t>::min()}}) {
        MetadataRequest request = Request();
        request.max_results = most;
        const Finding finding = ExpectCode(StrCat(method().names.max_results, " ", most),
                                           Ask(request), {StatusCode::kInvalidArgument});
        if (finding.result != RuleResult::kPass) return finding;
      }
      return Pass();
    });
    Rule("snapshot-missing", "a request without the target snapshot is INVALID_ARGUMENT", [&] {
      MetadataRequest request = Request();
      request.target_snapshot_id.clear();
      return ExpectCode(StrCat("no ", method().names.target), Ask(request),
                        {StatusCode::kInvalidArgument});
    });
    Rule("base-missing", "a delta without the base snapshot is INVALID_ARGUMENT", [&] {
      if (!delta_ || method().base_is_optional) return Skip("the base is not required");
      MetadataRequest request = Request();
      request.base_snapshot_id = std::string();
      return ExpectCode(StrCat("no ", method().names.base), Ask(request),
                        {StatusCode::kInvalidArgument});
    });
    // A session opens some snapshots; others don't exist for it.
    const std::set<StatusCode> unknown =
        contract_.api == Api::kSession
            ? std::set{StatusCode::kUnauthenticated, StatusCode::kNotFound}
            : std::set{StatusCode::kNotFound};
    Rule("snapshot-unknown", "a snapshot that does not exist is NOT_FOUND", [&] {
      MetadataRequest request = Request();
      request.target_snapshot_id = kUnknownSnapshot;
      return ExpectCode("an unknown snapshot", Ask(request), unknown);
    });
    Rule("base-unknown", "a base snapshot that does not exist is NOT_FOUND", [&] {
      if (!delta_) return Skip("only a delta has a base");
      MetadataRequest request = Request();
      request.base_snapshot_id = kUnknownSnapshot;
      return ExpectCode("an unknown base", Ask(request), unknown);
    });
    Rule("base-is-target", "a snapshot compared with itself has no changes, or is refused", [&] {
      if (!delta_ || contract_.api == Api::kKubernetes) {
        return Skip("names and handles can't be made equal here");
      }
      MetadataRequest request = Request();
      request.base_snapshot_id = request.target_snapshot_id;
      const ProbeAnswer answer = Ask(request);
      if (answer.ok() && answer.tuples.empty()) return Pass();
      if (answer.status.code() == StatusCode::kInvalidArgument && answer.messages.empty()) {
        return Pass();
      }
      return Fail(Text(answer));
    });
  }

  void CheckAccess() {
    if (method().fields.token == 0) return;
    Rule("token-missing", "a request without a token is INVALID_ARGUMENT", [&] {
      MetadataRequest request = Request();
      request.token = Secret();
      return ExpectCode("no token", Ask(request),
                        contract_.api == Api::kSession
                            ? std::set{StatusCode::kInvalidArgument, StatusCode::kUnauthenticated}
                            : std::set{StatusCode::kInvalidArgument});
    });
    Rule("token-wrong", "a request with a wrong token is UNAUTHENTICATED", [&] {
      MetadataRequest request = Request();
      request.token = Secret("cbt-conform-wrong-token-0123456789abcdef");
      return ExpectCode("a wrong token", Ask(request), {StatusCode::kUnauthenticated});
    });
    Rule("no-oracle", "who may not ask does not learn whether a snapshot exists", [&] {
      MetadataRequest request = Request();
      request.token = Secret("cbt-conform-wrong-token-0123456789abcdef");
      const ProbeAnswer there = Ask(request);
      request.target_snapshot_id = kUnknownSnapshot;
      const ProbeAnswer missing = Ask(request);
      if (there.status == missing.status) return Pass();
      return Fail(StrCat("a snapshot that exists: ", Text(there.status),
                         "; one that does not: ", Text(missing.status)));
    });
    if (method().fields.name_space == 0) return;
    Rule("namespace-missing", "a request without a namespace is INVALID_ARGUMENT", [&] {
      MetadataRequest request = Request();
      request.name_space.clear();
      return ExpectCode("no namespace", Ask(request), {StatusCode::kInvalidArgument});
    });
  }

  // --- strange requests ------------------------------------------------------------------------

  Finding StillAnswers() const {
    const ProbeAnswer answer = AskFrom(0);
    if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
    return Fail(StrCat("afterwards the good request gets: ", Text(answer)));
  }

  void CheckStrangeRequests() {
    Rule("unknown-fields", "fields of a request that are not known are passed over", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      std::string bytes = EncodeRequest(method(), Request());
      wire::AppendVarintField(bytes, 1000, 7);
      wire::AppendBytesField(bytes, 1001, "later");
      const ProbeAnswer answer = AskBytes(bytes, Limits());
      if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
      return Fail(Text(answer));
    });
    Rule("garbage", "bytes that are no request are refused, and the server goes on", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      for (const std::string& bytes : {std::string("\xff\xff\xff\xff"),
                                       std::string("\x0a\x7f"
                                                   "abc"),
                                       std::string("\x0a\x01\xff", 3)}) {
        const ProbeAnswer answer = AskBytes(bytes, Limits());
        if (answer.status.ok() && !answer.messages.empty()) {
          return Fail(StrCat("answered: ", Text(answer)));
        }
      }
      return StillAnswers();
    });
    Rule("huge-id", "an id of a megabyte is refused, and the server goes on", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      MetadataRequest request = Request();
      request.target_snapshot_id = std::string(size_t{1} << 20, 'x');
      const ProbeAnswer answer = Ask(request);
      if (answer.status.ok()) return Fail(StrCat("answered: ", Text(answer)));
      return StillAnswers();
    });
    Rule("secrets-stay", "secrets and tokens are in no error text", [&] {
      MetadataRequest request = Request();
      request.target_snapshot_id = kUnknownSnapshot;
      const bool has_secrets = method().fields.secrets != 0;
      if (has_secrets) request.secrets.Set("password", kCanary);
      if (method().fields.token != 0) request.token = Secret(kCanary);
      if (!has_secrets && method().fields.token == 0) return Skip("the request has neither");
      const ProbeAnswer answer = Ask(request);
      if (answer.status.message().find(kCanary) == absl::string_view::npos) return Pass();
      return Fail("the text of the error quotes one");
    });
    Rule("details-empty", "errors come without status details", [&] {
      MetadataRequest request = Request();
      request.target_snapshot_id = kUnknownSnapshot;
      const ProbeAnswer answer = Ask(request);
      if (!answer.trailing.contains("grpc-status-details-bin")) return Pass();
      return Fail("grpc-status-details-bin is there");
    });
  }

  void CheckRepetition() {
    Rule("repeatable", "the same request gets the same answer", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      for (int i = 0; i < 3; ++i) {
        if (Finding finding = StillAnswers(); finding.result != RuleResult::kPass) return finding;
      }
      return Pass();
    });
    Rule("concurrent", "equal streams at the same time are equal", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      std::vector<ProbeAnswer> answers(options_.concurrent);
      std::vector<std::thread> threads;
      for (ProbeAnswer& answer : answers) {
        threads.emplace_back([this, &answer] { answer = AskFrom(0); });
      }
      for (std::thread& thread : threads) thread.join();
      for (const ProbeAnswer& answer : answers) {
        if (!answer.ok() || !SameTuples(answer.tuples, full_.tuples)) return Fail(Text(answer));
      }
      return Pass();
    });
  }

  // --- pages -----------------------------------------------------------------------------------

  // All pages of `most` entries from `token` on.
  ProbeAnswer AllPages(int64_t most, std::string token, std::string* second_token,
                       std::string& evidence) const {
    ProbeAnswer all;
    MetadataRequest request = Request();
    request.max_results = most;
    request.page_token = std::move(token);
    for (size_t pages = 0;; ++pages) {
      const ProbeAnswer page = Ask(request);
      if (!page.ok()) {
        all.status =
            page.ok() ? absl::OkStatus() : (page.status.ok() ? page.decoding : page.status);
        return all;
      }
      if (pages == 0) all.messages = page.messages;
      if (most > 0 && page.tuples.size() > static_cast<uint64_t>(most)) {
        evidence = StrCat("max_entries ", most, ": a page of ", page.tuples.size());
      }
      for (size_t i = 0; i < page.tuples.size(); ++i) all.tuples.push_back(page.tuples[i]);
      if (page.next_token.empty()) return all;
      if (pages == 0 && second_token != nullptr) *second_token = page.next_token;
      if (page.next_token == request.page_token || all.tuples.size() > options_.max_tuples) {
        evidence = "the pages don't come to an end";
        return all;
      }
      request.page_token = page.next_token;
    }
  }

  void CheckPages() {
    std::string evidence;
    pages_ = AllPages(0, "", nullptr, evidence);
    Rule("pages-order", "blocks ascend from page to page", [&] { return CheckOrder(pages_); });
    Rule("max-entries", "max_entries caps the page, and the pages together are the same", [&] {
      if (!pages_.ok()) return Fail(Text(pages_));
      for (const int64_t most : {int64_t{1}, int64_t{3}, int64_t{1000}}) {
        // One block a page is slow where there are many.
        if (pages_.tuples.size() / static_cast<uint64_t>(most) > 2000) continue;
        std::string wrong;
        const ProbeAnswer all = AllPages(most, "", nullptr, wrong);
        if (!wrong.empty()) return Fail(wrong);
        if (!all.ok()) return Fail(StrCat("max_entries ", most, ": ", Text(all)));
        if (const auto difference = Difference(Coverage(pages_.tuples, 0, pages_.capacity()),
                                               Coverage(all.tuples, 0, pages_.capacity()))) {
          return Fail(StrCat("max_entries ", most, ": ", *difference));
        }
      }
      return Pass();
    });
    const int64_t half = std::max<int64_t>(1, static_cast<int64_t>(pages_.tuples.size() / 2));
    std::string second;
    AllPages(half, "", &second, evidence);
    Rule("token-again", "a page token can be used again", [&] {
      if (second.empty()) return Skip("the answer fits into one page");
      std::string wrong;
      const ProbeAnswer first = AllPages(half, second, nullptr, wrong);
      const ProbeAnswer again = AllPages(half, second, nullptr, wrong);
      if (first.ok() && again.ok() && SameTuples(first.tuples, again.tuples)) return Pass();
      return Fail(StrCat("first ", Text(first), ", then ", Text(again)));
    });
    Rule("token-unknown", "a page token that nobody gave out is ABORTED", [&] {
      MetadataRequest request = Request();
      request.page_token = "cbt-conform-no-such-token";
      return ExpectCode("an unknown token", Ask(request), {StatusCode::kAborted});
    });
    Rule("token-foreign", "a page token of another request is ABORTED", [&] {
      if (second.empty()) return Skip("the answer fits into one page");
      if (!options_.request.base_snapshot_id.has_value()) return Skip("needs a base snapshot");
      MetadataRequest request = Request();
      request.page_token = second;
      if (delta_) {
        request.base_snapshot_id.reset();
      } else {
        request.base_snapshot_id = options_.request.base_snapshot_id;
      }
      return ExpectCode("another request's token", Ask(request), {StatusCode::kAborted});
    });
  }

  // --- csi.v1.Identity -------------------------------------------------------------------------

  void CheckIdentity() {
    method_ = "service";
    const auto call = [this](const char* path) {
      return ProbeUnary(channel_, path, "", options_.call_timeout);
    };
    const auto bytes_of = [](const UnaryAnswer& answer) {
      return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(answer.bytes.data()),
                                      answer.bytes.size());
    };
    Rule("plugin-name", "GetPluginInfo gives a domain name of at most 63 characters", [&] {
      const UnaryAnswer answer = call("/csi.v1.Identity/GetPluginInfo");
      if (!answer.status.ok()) return Fail(Text(answer.status));
      std::string name;
      wire::ProtoReader reader(bytes_of(answer));
      while (reader.Next()) {
        if (reader.Is(1, wire::WireType::kBytes)) {
          name.assign(reinterpret_cast<const char*>(reader.bytes().data()), reader.bytes().size());
        }
      }
      const absl::Status status = CheckPluginName(name);
      return status.ok() ? Pass() : Fail(StrCat("'", name, "': ", status.message()));
    });
    Rule("capability", "GetPluginCapabilities names SNAPSHOT_METADATA_SERVICE", [&] {
      const UnaryAnswer answer = call("/csi.v1.Identity/GetPluginCapabilities");
      if (!answer.status.ok()) return Fail(Text(answer.status));
      wire::ProtoReader list(bytes_of(answer));
      while (list.Next()) {
        if (!list.Is(1, wire::WireType::kBytes)) continue;
        wire::ProtoReader capability(list.bytes());
        while (capability.Next()) {
          if (!capability.Is(1, wire::WireType::kBytes)) continue;
          wire::ProtoReader service(capability.bytes());
          while (service.Next()) {
            if (service.Is(1, wire::WireType::kVarint) && service.varint() == 4) return Pass();
          }
        }
      }
      return Fail("it is not among the capabilities");
    });
    Rule("probe", "Probe is OK", [&] {
      const UnaryAnswer answer = call("/csi.v1.Identity/Probe");
      return answer.status.ok() ? Pass() : Fail(Text(answer.status));
    });
  }

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

}  // namespace

std::string_view RuleResultName(RuleResult result) noexcept {
  switch (result) {
    case RuleResult::kPass:
      return "pass";
    case RuleResult::kFail:
      return "fail";
    case RuleResult::kNotApplicable:
      break;
  }
  return "not applicable";
}

absl::StatusOr<std::vector<RuleReport>> CheckConformance(const ConformanceOptions& options) {
  absl::StatusOr<Address> address = ParseAddress(options.request.address);
  if (!address.ok()) return address.status();
  return Checker(options, *address).Run();
}

}  // namespace cbt::rpc
