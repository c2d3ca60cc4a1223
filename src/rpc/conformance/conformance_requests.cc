// Rules about invalid, unusual and repeated requests.
#include <limits>
#include <thread>

#include "cbt/units.h"
#include "rpc/conformance/conformance_checker.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {

void ConformanceChecker::CheckArguments() {
  Rule("max-results-negative", "a negative max_results is INVALID_ARGUMENT, at once", [&] {
    if (method().unsigned_numbers) return Skip("the contract's numbers are unsigned");
    for (const int64_t most : {int64_t{-1}, int64_t{std::numeric_limits<int32_t>::min()}}) {
      MetadataRequest request = Request();
      request.max_results = most;
      Finding finding = ExpectCode(StrCat(method().names.max_results, " ", most), Ask(request),
                                   {StatusCode::kInvalidArgument});
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
  // A session grants some snapshots; others do not exist for it.
  const std::set<StatusCode> unknown =
      contract_.api == Api::kSession ? std::set{StatusCode::kUnauthenticated, StatusCode::kNotFound}
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
  if (!options_.foreign_base.empty()) {
    Rule("base-foreign", "a base of another volume is INVALID_ARGUMENT, or not found", [&] {
      if (!delta_) return Skip("only a delta has a base");
      MetadataRequest request = Request();
      request.base_snapshot_id = options_.foreign_base;
      // A driver that needs no data of its bases may know only those of the target's volume.
      std::set<StatusCode> refused = unknown;
      refused.insert(StatusCode::kInvalidArgument);
      return ExpectCode("a base of another volume", Ask(request), refused);
    });
  }
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

void ConformanceChecker::CheckAccess() {
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
  Rule("no-oracle", "an unauthorised client does not learn whether a snapshot exists", [&] {
    MetadataRequest request = Request();
    request.token = Secret("cbt-conform-wrong-token-0123456789abcdef");
    const ProbeAnswer there = Ask(request);
    request.target_snapshot_id = kUnknownSnapshot;
    const ProbeAnswer missing = Ask(request);
    if (there.status == missing.status) return Pass();
    return Fail(StrCat("for an existing snapshot: ", Text(there.status),
                       "; for a missing one: ", Text(missing.status)));
  });
  if (method().fields.name_space == 0) return;
  Rule("namespace-missing", "a request without a namespace is INVALID_ARGUMENT", [&] {
    MetadataRequest request = Request();
    request.name_space.clear();
    return ExpectCode("no namespace", Ask(request), {StatusCode::kInvalidArgument});
  });
}

Finding ConformanceChecker::StillAnswers() const {
  const ProbeAnswer answer = AskFrom(0);
  if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
  return Fail(StrCat("afterwards a valid request gets: ", Text(answer)));
}

void ConformanceChecker::CheckStrangeRequests() {
  Rule("unknown-fields", "unknown fields of a request are ignored", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    std::string bytes = EncodeRequest(method(), Request());
    wire::AppendVarintField(bytes, 1000, 7);
    wire::AppendBytesField(bytes, 1001, "later");
    const ProbeAnswer answer = AskBytes(bytes, Limits());
    if (answer.ok() && SameTuples(answer.tuples, full_.tuples)) return Pass();
    return Fail(Text(answer));
  });
  Rule("garbage", "bytes that are not a request are refused, and the server keeps working", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    for (const std::string& bytes : {std::string("\xff\xff\xff\xff"),
                                     std::string("\x0a\x7f"
                                                 "abc"),
                                     std::string("\x0a\x01\xff", 3)}) {
      const ProbeAnswer answer = AskBytes(bytes, Limits());
      // OK is wrong even without a message: the error would look like the end of a stream.
      if (answer.status.ok()) {
        return Fail(StrCat("answered: ", Text(answer)));
      }
    }
    return StillAnswers();
  });
  Rule("huge-id", "an id of a megabyte is refused, and the server keeps working", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    MetadataRequest request = Request();
    request.target_snapshot_id = std::string(kMiB, 'x');
    const ProbeAnswer answer = Ask(request);
    if (answer.status.ok()) return Fail(StrCat("answered: ", Text(answer)));
    return StillAnswers();
  });
  Rule("secrets-stay", "error texts contain no secrets or tokens", [&] {
    MetadataRequest request = Request();
    request.target_snapshot_id = kUnknownSnapshot;
    const bool has_secrets = method().fields.secrets != 0;
    if (has_secrets) request.secrets.Set("password", kCanary);
    if (method().fields.token != 0) request.token = Secret(kCanary);
    if (!has_secrets && method().fields.token == 0) return Skip("the request has neither");
    const ProbeAnswer answer = Ask(request);
    if (answer.status.message().find(kCanary) == absl::string_view::npos) return Pass();
    return Fail("the error text contains one");
  });
  Rule("details-empty", "errors come without status details", [&] {
    MetadataRequest request = Request();
    request.target_snapshot_id = kUnknownSnapshot;
    const ProbeAnswer answer = Ask(request);
    if (!answer.trailing.contains("grpc-status-details-bin")) return Pass();
    return Fail("grpc-status-details-bin is present");
  });
}

void ConformanceChecker::CheckRepetition() {
  Rule("repeatable", "the same request gets the same answer", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    for (int i = 0; i < 3; ++i) {
      if (Finding finding = StillAnswers(); finding.result != RuleResult::kPass) return finding;
    }
    return Pass();
  });
  Rule("concurrent", "identical concurrent requests get the same answer", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    std::vector<ProbeAnswer> answers(options_.concurrent);
    std::vector<std::thread> threads;
    threads.reserve(options_.concurrent);
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

}  // namespace cbt::rpc
