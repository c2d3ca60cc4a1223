// The conformance checker: a good server passes, and its rule finds each planted fault.
#include "cbt/rpc/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/planted_server.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace conformance_test {

rpc::ConformanceOptions OptionsFor(rpc::Api api, const std::string& address) {
  rpc::ConformanceOptions options;
  options.request = PlantedRequest(api, address);
  options.request.base_snapshot_id = std::string("base");
  options.foreign_base = "foreign";
  options.call_timeout = std::chrono::seconds(3);
  options.concurrent = 4;
  options.stall = std::chrono::milliseconds(20);
  return options;
}

std::vector<rpc::RuleReport> Check(const rpc::ConformanceOptions& options) {
  const auto reports = rpc::CheckConformance(options);
  EXPECT_OK(reports);
  return reports.ok() ? *reports : std::vector<rpc::RuleReport>();
}

std::vector<rpc::RuleReport> Check(rpc::Api api, const std::string& address) {
  return Check(OptionsFor(api, address));
}

// Names the broken rules and the evidence.
void ExpectNoFailure(const std::vector<rpc::RuleReport>& reports) {
  EXPECT_FALSE(reports.empty());
  for (const rpc::RuleReport& report : reports) {
    EXPECT_NE(report.result, rpc::RuleResult::kFail)
        << report.method << " " << report.id << ": " << report.evidence;
    EXPECT_EQ(report.evidence.empty(), report.result == rpc::RuleResult::kPass) << report.id;
  }
}

std::set<std::string> Failed(const std::vector<rpc::RuleReport>& reports) {
  std::set<std::string> failed;
  for (const rpc::RuleReport& report : reports) {
    if (report.result == rpc::RuleResult::kFail) failed.insert(report.id);
  }
  return failed;
}

class GoodServers : public testing::TestWithParam<rpc::Api> {};

TEST_P(GoodServers, KeepEveryRule) {
  const PlantedServer server(GetParam(), "");
  ExpectNoFailure(Check(GetParam(), server.address()));
}

INSTANTIATE_TEST_SUITE_P(Apis, GoodServers,
                         testing::Values(rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession,
                                         rpc::Api::kPaged),
                         [](const auto& info) { return std::string(rpc::ApiName(info.param)); });

TEST(Conformance, AMissingMethodFailsOnlyThoseWhoAskedForNothingElse) {
  const PlantedServer server(rpc::Api::kCsi, "delta-only");
  const auto reports = Check(rpc::Api::kCsi, server.address());
  ExpectNoFailure(reports);
  size_t allocated = 0;
  bool wire = false;
  for (const rpc::RuleReport& report : reports) {
    if (report.method == "allocated") {
      ++allocated;
      EXPECT_EQ(report.id, "answers");
      EXPECT_EQ(report.result, rpc::RuleResult::kNotApplicable);
    }
    wire |= report.id.starts_with("wire-") && report.result == rpc::RuleResult::kPass;
  }
  EXPECT_EQ(allocated, 1u);
  EXPECT_TRUE(wire);
  rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, server.address());
  options.request.base_snapshot_id.reset();
  EXPECT_THAT(Failed(Check(options)), testing::Contains("answers"));
}

// The same number of rules as are left would only say that there is no server.
TEST(Conformance, FFARuleThatEndsTheServerIsNamedAndIsTheLast) {
  for (const char* const culprit : {"huge-id", "plugin-name", "wire-ping"}) {
    auto server = std::make_unique<PlantedServer>(rpc::Api::kCsi, "");
    rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, server->address());
    options.on_report = [&](const rpc::RuleReport& report) {
      if (report.id == culprit) server.reset();
    };
    const auto reports = Check(options);
    ASSERT_GE(reports.size(), 2U);
    EXPECT_EQ(reports[reports.size() - 2].id, culprit);
    EXPECT_EQ(reports.back().id, "stays-up");
    EXPECT_EQ(reports.back().result, rpc::RuleResult::kFail);
    EXPECT_THAT(reports.back().evidence, testing::HasSubstr(std::string("\"") + culprit + "\""));
    EXPECT_THAT(Failed(reports), testing::ElementsAre("stays-up"));
  }
}

struct Planted {
  rpc::Api api;
  const char* fault;
  const char* rule;
};

class PlantedFaults : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFaults, AreFoundByTheirRule) {
  const PlantedServer server(GetParam().api, GetParam().fault);
  // Long enough to be noticed on a machine that is busy with other tests.
  const bool stalls = GetParam().rule == std::string("stalled-reader");
  rpc::ConformanceOptions options = OptionsFor(GetParam().api, server.address());
  if (stalls) options.stall = std::chrono::milliseconds(1500);
  // A cycle of pages is abandoned after this many tuples.
  options.max_tuples = 1000;
  const auto reports = Check(options);
  EXPECT_THAT(Failed(reports), testing::Contains(GetParam().rule));
  for (const rpc::RuleReport& report : reports) {
    EXPECT_EQ(report.evidence.empty(), report.result == rpc::RuleResult::kPass) << report.id;
  }
}

constexpr Planted kPlanted[] = {
    {rpc::Api::kCsi, "no-such-method", "answers"},
    {rpc::Api::kCsi, "bad-bytes", "well-formed"},
    {rpc::Api::kCsi, "disorder", "order"},
    {rpc::Api::kCsi, "overlap-across", "order"},
    {rpc::Api::kCsi, "zero-size", "sizes"},
    {rpc::Api::kCsi, "past-capacity", "inside"},
    {rpc::Api::kCsi, "outside", "inside"},
    {rpc::Api::kCsi, "two-past-capacity", "inside"},
    {rpc::Api::kCsi, "type-changes", "constant"},
    {rpc::Api::kCsi, "capacity-changes", "constant"},
    {rpc::Api::kCsi, "unknown-type", "type"},
    {rpc::Api::kCsi, "no-capacity", "capacity-above-zero"},
    {rpc::Api::kCsi, "fixed-varies", "fixed-size"},
    {rpc::Api::kCsi, "no-first-message", "first-message"},
    {rpc::Api::kCsi, "wrong-proof", "proof"},
    {rpc::Api::kCsi, "proof-of-other-capacity", "proof"},
    {rpc::Api::kCsi, "proof-of-other-type", "proof"},
    {rpc::Api::kCsi, "present-capacity", "capacity"},
    {rpc::Api::kCsi, "ignores-max", "max-results"},
    {rpc::Api::kCsi, "max-caps-stream", "max-results"},
    {rpc::Api::kCsi, "splits-by-max", "max-results-same-tuples"},
    {rpc::Api::kCsi, "huge-message", "message-bytes"},
    {rpc::Api::kCsi, "refused-message", "message-bytes"},
    {rpc::Api::kCsi, "negative-offset-ok", "offset-negative"},
    {rpc::Api::kCsi, "past-ok", "offset-past-capacity"},
    {rpc::Api::kCsi, "at-capacity-error", "offset-at-capacity"},
    {rpc::Api::kCsi, "at-capacity-repeats", "offset-at-capacity"},
    {rpc::Api::kCsi, "at-capacity-other", "offset-at-capacity"},
    {rpc::Api::kCsi, "at-capacity-two", "offset-at-capacity"},
    {rpc::Api::kCsi, "empty-without-message", "empty-stream"},
    {rpc::Api::kCsi, "end-capacity-differs", "empty-stream"},
    {rpc::Api::kCsi, "end-type-differs", "empty-stream"},
    {rpc::Api::kCsi, "resume-loses-next", "resume-cut-points"},
    {rpc::Api::kCsi, "resume-loses-next", "resume-other-max-results"},
    {rpc::Api::kCsi, "resume-skips-current", "resume-before-end"},
    {rpc::Api::kCsi, "gap-loses", "resume-in-gap"},
    {rpc::Api::kCsi, "wrong-window", "resume-unaligned"},
    {rpc::Api::kCsi, "repeats", "resume-cut-points"},
    {rpc::Api::kCsi, "resume-proof-wrong", "resume-proof"},
    {rpc::Api::kCsi, "deadline-ok", "deadline"},
    {rpc::Api::kCsi, "cancel-breaks", "cancel"},
    {rpc::Api::kCsi, "one-at-a-time", "concurrent"},
    {rpc::Api::kCsi, "stall-holds", "stalled-reader"},
    {rpc::Api::kCsi, "negative-max-ok", "max-results-negative"},
    {rpc::Api::kCsi, "negative-max-spins", "max-results-negative"},
    {rpc::Api::kCsi, "missing-id-ok", "snapshot-missing"},
    {rpc::Api::kCsi, "missing-base-ok", "base-missing"},
    {rpc::Api::kCsi, "unknown-empty", "snapshot-unknown"},
    {rpc::Api::kCsi, "answers-then-unknown", "snapshot-unknown"},
    {rpc::Api::kCsi, "unknown-base-empty", "base-unknown"},
    {rpc::Api::kCsi, "foreign-base-full", "base-foreign"},
    {rpc::Api::kCsi, "self-delta-full", "base-is-target"},
    {rpc::Api::kCsi, "self-delta-breaks", "base-is-target"},
    {rpc::Api::kCsi, "refuses-unknown-fields", "unknown-fields"},
    {rpc::Api::kCsi, "accepts-garbage", "garbage"},
    {rpc::Api::kCsi, "garbage-is-the-end", "garbage"},
    {rpc::Api::kCsi, "accepts-huge", "huge-id"},
    {rpc::Api::kCsi, "echoes-secrets", "secrets-stay"},
    {rpc::Api::kCsi, "details", "details-empty"},
    {rpc::Api::kCsi, "random", "repeatable"},
    {rpc::Api::kCsi, "bad-name", "plugin-name"},
    {rpc::Api::kCsi, "info-fails", "plugin-name"},
    {rpc::Api::kCsi, "no-capability", "capability"},
    {rpc::Api::kCsi, "other-capability", "capability"},
    {rpc::Api::kCsi, "capabilities-fail", "capability"},
    {rpc::Api::kCsi, "probe-fails", "probe"},
    {rpc::Api::kKubernetes, "token-optional", "token-missing"},
    {rpc::Api::kKubernetes, "any-token", "token-wrong"},
    {rpc::Api::kKubernetes, "oracle", "no-oracle"},
    {rpc::Api::kKubernetes, "namespace-optional", "namespace-missing"},
    {rpc::Api::kSession, "any-token", "token-wrong"},
    {rpc::Api::kSession, "unknown-empty", "snapshot-unknown"},
    {rpc::Api::kPaged, "pages-disorder", "pages-order"},
    {rpc::Api::kPaged, "pages-grow", "pages-capacity"},
    {rpc::Api::kPaged, "short-pages-grow", "pages-capacity"},
    {rpc::Api::kPaged, "pages-tell-no-size", "pages-capacity"},
    {rpc::Api::kPaged, "bad-page", "max-entries"},
    {rpc::Api::kPaged, "pages-stand", "max-entries"},
    {rpc::Api::kPaged, "pages-circle", "max-entries"},
    {rpc::Api::kPaged, "pages-alternate", "max-entries"},
    {rpc::Api::kPaged, "unlimited-pages-alternate", "max-entries"},
    {rpc::Api::kPaged, "ignores-max-entries", "max-entries"},
    {rpc::Api::kPaged, "forgets-last-page", "max-entries"},
    {rpc::Api::kPaged, "token-once", "token-again"},
    {rpc::Api::kPaged, "token-twice", "token-again"},
    {rpc::Api::kPaged, "token-forgets", "token-again"},
    {rpc::Api::kPaged, "any-page-token", "token-unknown"},
    {rpc::Api::kPaged, "foreign-token-ok", "token-foreign"},
};

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFaults, testing::ValuesIn(kPlanted), [](const auto& info) {
  std::string name =
      std::string(rpc::ApiName(info.param.api)) + "_" + info.param.fault + "_by_" + info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// What servers may do: reported, but not as a fault.
class Freedoms : public testing::TestWithParam<const char*> {};

TEST_P(Freedoms, AreNoFaults) {
  const PlantedServer server(rpc::Api::kCsi, GetParam());
  ExpectNoFailure(Check(rpc::Api::kCsi, server.address()));
}

INSTANTIATE_TEST_SUITE_P(Good, Freedoms,
                         testing::Values("good-blocks", "self-delta-refused", "idle-messages"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Checks our own server with answers that are awkward to judge.
std::vector<rpc::RuleReport> CheckOurs(rpc::Api api, FunctionProvider::Function function,
                                       const std::map<std::string, std::string>& secrets = {}) {
  const TempDir dir;
  FunctionProvider provider(std::move(function));
  rpc::ServerOptions server_options;
  server_options.listen = "unix://" + (dir / "s");
  server_options.service.apis = {api};
  const auto server = rpc::Server::Start(provider, server_options);
  EXPECT_OK(server);
  rpc::ConformanceOptions options = OptionsFor(api, (*server)->address());
  for (const auto& [key, value] : secrets) options.request.secrets.Set(key, value);
  options.call_timeout = std::chrono::seconds(30);
  return Check(options);
}

// Only the snapshots that OptionsFor() names exist.
absl::Status CheckNames(const FunctionProvider::Call& call) {
  const std::string base = call.base.value_or("base");
  if (call.target == "target" && (base == "base" || base == "target")) return absl::OkStatus();
  return absl::NotFoundError("no such snapshot");
}

FunctionProvider::Function Serving(std::function<MetadataSource()> source) {
  return [source](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    if (absl::Status status = CheckNames(call); !status.ok()) return status;
    if (call.base == call.target) return Extents(CursorOver({}, source().cursor->capacity()));
    return source();
  };
}

TEST(Conformance, OurServerKeepsEveryRuleAtTheEdges) {
  struct Edge {
    const char* what;
    reference::Ranges tuples;
    uint64_t capacity;
  };
  const Edge edges[] = {
      {"no tuples", {}, kMiB},
      {"one byte", {{0, 1}}, 1},
      {"tuples of a few bytes", {{1, 2}, {5, 3}, {9, 4}, {20, 5}}, 1000},
      {"the largest volume", {{0, 4096}, {kMaxCapacity - 1, 1}}, kMaxCapacity},
  };
  for (const Edge& edge : edges) {
    SCOPED_TRACE(edge.what);
    ExpectNoFailure(CheckOurs(rpc::Api::kCsi, Serving([&edge] {
                                return Extents(CursorOver(edge.tuples, edge.capacity));
                              })));
  }
  SCOPED_TRACE("blocks, the last of which reaches past the end");
  ExpectNoFailure(CheckOurs(rpc::Api::kCsi, Serving([] {
                              return Blocks(CursorOver({{0, 9000}, {49999, 1}}, 50000), 4096);
                            })));
}

TEST(Conformance, PagesOfManyBlocksAreJudgedInTime) {
  const auto reports = CheckOurs(
      rpc::Api::kPaged, Serving([] { return Extents(AlternatingCursor(5000 * 4096, 4096)); }));
  ExpectNoFailure(reports);
  EXPECT_TRUE(std::any_of(reports.begin(), reports.end(), [](const rpc::RuleReport& report) {
    return report.id == "max-entries" && report.result == rpc::RuleResult::kPass;
  }));
}

TEST(Conformance, SecretsAreShownToTheServer) {
  const auto serve = [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    if (call.context.secrets.Get("key") != "value") {
      return absl::UnauthenticatedError("the key is missing");
    }
    if (absl::Status status = CheckNames(call); !status.ok()) return status;
    if (call.base == call.target) return Extents(CursorOver({}, 4096));
    return Extents(CursorOver({{0, 512}}, 4096));
  };
  ExpectNoFailure(CheckOurs(rpc::Api::kCsi, serve, {{"key", "value"}}));
  EXPECT_THAT(Failed(CheckOurs(rpc::Api::kCsi, serve)), testing::Contains("answers"));
}

TEST(Conformance, WithoutABaseNoDeltaIsJudged) {
  for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kPaged}) {
    const PlantedServer server(api, "");
    rpc::ConformanceOptions options = OptionsFor(api, server.address());
    options.request.base_snapshot_id.reset();
    std::set<std::string> methods;
    std::set<std::string> skipped;
    for (const rpc::RuleReport& report : Check(options)) {
      methods.insert(report.method);
      if (report.result == rpc::RuleResult::kNotApplicable) skipped.insert(report.id);
      EXPECT_NE(report.result, rpc::RuleResult::kFail) << report.id << ": " << report.evidence;
    }
    if (api == rpc::Api::kCsi) {
      EXPECT_THAT(methods, testing::ElementsAre("allocated", "service"));
    } else {
      EXPECT_THAT(methods, testing::ElementsAre("pages"));
      EXPECT_THAT(skipped, testing::Contains("token-foreign"));
    }
    EXPECT_THAT(skipped, testing::Contains("base-unknown"));
  }
}

TEST(Conformance, AnAnswerThatIsTooLargeIsNotJudged) {
  const PlantedServer server(rpc::Api::kCsi, "");
  rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, server.address());
  options.max_tuples = 100;
  const absl::Status status = rpc::CheckConformance(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), testing::HasSubstr("more than 100 tuples"));
}

// The report of a broken rule must suffice to reproduce it with another client.
TEST(Conformance, EvidenceSaysWhatWasExpectedAndWhatCame) {
  const auto evidence = [](rpc::Api api, const char* fault, const std::string& rule) {
    const PlantedServer server(api, fault);
    rpc::ConformanceOptions options = OptionsFor(api, server.address());
    options.max_tuples = 1000;
    std::string texts;
    for (const rpc::RuleReport& report : Check(options)) {
      if (report.id == rule) texts += report.evidence + "\n";
    }
    return texts;
  };
  using testing::HasSubstr;
  EXPECT_THAT(evidence(rpc::Api::kCsi, "answers-then-unknown", "snapshot-unknown"),
              HasSubstr("an unknown snapshot: expected NOT_FOUND, got NOT_FOUND (unknown) after 1 "
                        "messages and 0 tuples"));
  EXPECT_THAT(evidence(rpc::Api::kSession, "unknown-empty", "snapshot-unknown"),
              HasSubstr("expected NOT_FOUND or UNAUTHENTICATED, got OK after 1 messages"));
  EXPECT_THAT(evidence(rpc::Api::kCsi, "garbage-is-the-end", "garbage"),
              HasSubstr("answered: OK after 0 messages"));
  EXPECT_THAT(evidence(rpc::Api::kPaged, "pages-grow", "pages-capacity"),
              HasSubstr("max_entries 0: page 1 has 2000000, the first page of all 1000000"));
  EXPECT_THAT(evidence(rpc::Api::kPaged, "bad-page", "max-entries"), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(evidence(rpc::Api::kPaged, "pages-stand", "max-entries"),
              HasSubstr("the pages never end"));
  for (const char* fault : {"pages-circle", "pages-alternate", "unlimited-pages-alternate"}) {
    EXPECT_THAT(evidence(rpc::Api::kPaged, fault, "max-entries"),
                HasSubstr("max_entries 0: the pages never end"));
  }
  EXPECT_THAT(evidence(rpc::Api::kCsi, "refused-message", "message-bytes"),
              HasSubstr("max_results 2147483647: RESOURCE_EXHAUSTED"));
}

TEST(Conformance, ResultsHaveTheirWords) {
  EXPECT_EQ(rpc::RuleResultName(rpc::RuleResult::kPass), "pass");
  EXPECT_EQ(rpc::RuleResultName(rpc::RuleResult::kFail), "fail");
  EXPECT_EQ(rpc::RuleResultName(rpc::RuleResult::kNotApplicable), "not applicable");
}

// Every rule that a good server keeps can be broken.
TEST(Conformance, EveryRuleHasAPlantedFault) {
  std::set<std::string> planted;
  for (const Planted& fault : kPlanted) planted.insert(fault.rule);
  // A server cannot break this one.
  planted.insert("no-idle-messages");
  // It has to end for that, see FFARuleThatEndsTheServerIsNamedAndIsTheLast.
  planted.insert("stays-up");
  for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kPaged}) {
    const PlantedServer server(api, "");
    for (const rpc::RuleReport& report : Check(api, server.address())) {
      // Wire rules have their own test.
      if (report.id.starts_with("wire-")) continue;
      EXPECT_TRUE(planted.contains(report.id)) << report.id;
    }
  }
}

TEST(Conformance, AServerThatIsNotThereIsNotJudged) {
  rpc::ConformanceOptions options;
  options.request.address = std::string("unix:///nonexistent/socket");
  options.request.snapshot_id = std::string("target");
  options.call_timeout = std::chrono::seconds(3);
  options.on_report = [](const rpc::RuleReport& report) { ADD_FAILURE() << report.id; };
  EXPECT_EQ(rpc::CheckConformance(options).status().code(), absl::StatusCode::kUnavailable);
  options.request.address = std::string("nowhere");
  EXPECT_EQ(rpc::CheckConformance(options).status().code(), absl::StatusCode::kInvalidArgument);
}

// A socket that accepts connections and stays silent is not a server of any contract.
TEST(Conformance, AListenerThatSaysNothingIsNotJudged) {
  const TempDir dir;
  const std::string path = dir / "s";
  const int silent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(silent, 128), 0);
  rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, "unix://" + path);
  options.call_timeout = std::chrono::milliseconds(100);
  options.on_report = [](const rpc::RuleReport& report) { ADD_FAILURE() << report.id; };
  const absl::Status status = rpc::CheckConformance(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), testing::HasSubstr("no connection: "));
  close(silent);
}

// A server that accepts calls and never answers is one, and fails.
TEST(Conformance, AServerThatNeverAnswersFails) {
  const FakeServer server(Script{.hang = true});
  rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, server.address());
  options.request.base_snapshot_id.reset();
  options.call_timeout = std::chrono::milliseconds(50);
  std::map<std::string, rpc::RuleReport> reports;
  for (const rpc::RuleReport& report : Check(options)) reports[report.id] = report;
  EXPECT_EQ(reports["answers"].result, rpc::RuleResult::kFail);
  EXPECT_THAT(reports["answers"].evidence, testing::HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_EQ(reports["snapshot-unknown"].result, rpc::RuleResult::kFail);
  // An answer that never came cannot be judged.
  for (const char* rule : {"order", "sizes", "inside", "first-message", "repeatable"}) {
    EXPECT_EQ(reports[rule].result, rpc::RuleResult::kNotApplicable) << rule;
  }
}

}  // namespace conformance_test
}  // namespace cbt::test
