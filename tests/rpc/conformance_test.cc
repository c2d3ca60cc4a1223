// The conformance checker: a good server passes, and each planted fault is found by its rule.
#include "cbt/rpc/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "rpc/support/planted_server.h"

namespace cbt::test {
namespace {

std::vector<rpc::RuleReport> Check(
    rpc::Api api, const std::string& address,
    std::chrono::milliseconds stall = std::chrono::milliseconds(20)) {
  rpc::ConformanceOptions options;
  options.request.address = address;
  options.request.api = api;
  options.request.snapshot_id = std::string("target");
  options.request.base_snapshot_id = std::string("base");
  options.request.token = std::string("token");
  options.request.name_space = std::string("namespace");
  options.call_timeout = std::chrono::seconds(3);
  options.concurrent = 4;
  options.stall = stall;
  const auto reports = rpc::CheckConformance(options);
  EXPECT_TRUE(reports.ok()) << reports.status();
  return reports.ok() ? *reports : std::vector<rpc::RuleReport>();
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
  for (const rpc::RuleReport& report : Check(GetParam(), server.address())) {
    EXPECT_NE(report.result, rpc::RuleResult::kFail)
        << report.method << " " << report.id << ": " << report.evidence;
    EXPECT_EQ(report.evidence.empty(), report.result == rpc::RuleResult::kPass) << report.id;
  }
}

INSTANTIATE_TEST_SUITE_P(Apis, GoodServers,
                         testing::Values(rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kPaged),
                         [](const auto& info) { return std::string(rpc::ApiName(info.param)); });

struct Planted {
  rpc::Api api;
  const char* fault;
  const char* rule;
};

class PlantedFaults : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFaults, AreFoundByTheirRule) {
  const PlantedServer server(GetParam().api, GetParam().fault);
  // Long enough for this one to be felt on a machine that is busy with other tests.
  const bool stalls = GetParam().rule == std::string("stalled-reader");
  const auto reports =
      Check(GetParam().api, server.address(), std::chrono::milliseconds(stalls ? 1500 : 20));
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
    {rpc::Api::kCsi, "type-changes", "constant"},
    {rpc::Api::kCsi, "capacity-changes", "constant"},
    {rpc::Api::kCsi, "unknown-type", "type"},
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
    {rpc::Api::kCsi, "negative-offset-ok", "offset-negative"},
    {rpc::Api::kCsi, "past-ok", "offset-past-capacity"},
    {rpc::Api::kCsi, "at-capacity-error", "offset-at-capacity"},
    {rpc::Api::kCsi, "empty-without-message", "empty-stream"},
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
    {rpc::Api::kCsi, "unknown-base-empty", "base-unknown"},
    {rpc::Api::kCsi, "self-delta-full", "base-is-target"},
    {rpc::Api::kCsi, "refuses-unknown-fields", "unknown-fields"},
    {rpc::Api::kCsi, "accepts-garbage", "garbage"},
    {rpc::Api::kCsi, "accepts-huge", "huge-id"},
    {rpc::Api::kCsi, "echoes-secrets", "secrets-stay"},
    {rpc::Api::kCsi, "details", "details-empty"},
    {rpc::Api::kCsi, "random", "repeatable"},
    {rpc::Api::kCsi, "bad-name", "plugin-name"},
    {rpc::Api::kCsi, "no-capability", "capability"},
    {rpc::Api::kCsi, "probe-fails", "probe"},
    {rpc::Api::kKubernetes, "token-optional", "token-missing"},
    {rpc::Api::kKubernetes, "any-token", "token-wrong"},
    {rpc::Api::kKubernetes, "oracle", "no-oracle"},
    {rpc::Api::kKubernetes, "namespace-optional", "namespace-missing"},
    {rpc::Api::kPaged, "pages-disorder", "pages-order"},
    {rpc::Api::kPaged, "ignores-max-entries", "max-entries"},
    {rpc::Api::kPaged, "forgets-last-page", "max-entries"},
    {rpc::Api::kPaged, "token-once", "token-again"},
    {rpc::Api::kPaged, "any-page-token", "token-unknown"},
    {rpc::Api::kPaged, "foreign-token-ok", "token-foreign"},
};

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFaults, testing::ValuesIn(kPlanted), [](const auto& info) {
  std::string name =
      std::string(rpc::ApiName(info.param.api)) + "_" + info.param.fault + "_by_" + info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Every rule that a good server keeps can also be broken.
TEST(Conformance, EveryRuleHasAPlantedFault) {
  std::set<std::string> planted;
  for (const Planted& fault : kPlanted) planted.insert(fault.rule);
  // Nothing a server can do wrong.
  planted.insert("no-idle-messages");
  for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kPaged}) {
    const PlantedServer server(api, "");
    for (const rpc::RuleReport& report : Check(api, server.address())) {
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

}  // namespace
}  // namespace cbt::test
