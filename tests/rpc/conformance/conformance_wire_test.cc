// The checker's rules for gRPC over HTTP/2: servers of several stacks keep them, and a server of
// handmade frames breaks each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/conformance.h"
#include "cbt/rpc/server.h"
#include "tests/net/certificates.h"
#include "tests/rpc/support/planted_server.h"
#include "tests/rpc/support/providers.h"
#include "tests/rpc/support/raw_planted_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace conformance_wire_test {

bool IsWireRule(const std::string& id) { return id.starts_with("wire-"); }

rpc::ConformanceOptions OptionsFor(rpc::Api api, const std::string& address) {
  rpc::ConformanceOptions options;
  options.request = PlantedRequest(api, address);
  options.call_timeout = std::chrono::seconds(20);
  options.concurrent = 2;
  options.stall = std::chrono::milliseconds(20);
  return options;
}

// Only the reports of wire rules.
std::vector<rpc::RuleReport> Check(const rpc::ConformanceOptions& options) {
  const auto reports = rpc::CheckConformance(options);
  EXPECT_OK(reports);
  std::vector<rpc::RuleReport> kept;
  if (!reports.ok()) return kept;
  std::copy_if(reports->begin(), reports->end(), std::back_inserter(kept),
               [](const rpc::RuleReport& report) { return IsWireRule(report.id); });
  return kept;
}

void ExpectAllPass(const std::vector<rpc::RuleReport>& reports) {
  EXPECT_GE(reports.size(), 21U);
  for (const rpc::RuleReport& report : reports) {
    EXPECT_EQ(report.result, rpc::RuleResult::kPass) << report.id << ": " << report.evidence;
  }
}

TEST(ConformanceWire, GrpcsServersKeepEveryRule) {
  for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kPaged}) {
    const PlantedServer server(api, "");
    ExpectAllPass(Check(OptionsFor(api, server.address())));
  }
}

TEST(ConformanceWire, AServerOfFramesKeepsEveryRule) {
  const RawPlantedServer server("");
  ExpectAllPass(Check(OptionsFor(rpc::Api::kCsi, server.address())));
}

class OurServers : public testing::TestWithParam<const char*> {};

TEST_P(OurServers, KeepEveryRule) {
  const TempDir dir;
  FunctionProvider provider(
      [](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
        if (call.target != "target") return absl::NotFoundError("no such snapshot");
        return Extents(AlternatingCursor(300 * 8192, 4096));
      });
  const std::string listen = GetParam();
  rpc::ServerOptions options;
  options.listen = listen == "unix" ? "unix://" + (dir / "s") : "localhost:0";
  const TestAuthority authority;
  if (listen == "tls") {
    const PemIdentity identity = authority.Issue();
    options.tls.certificate = identity.certificate;
    options.tls.private_key = identity.key;
  }
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  rpc::ConformanceOptions asked = OptionsFor(rpc::Api::kCsi, (*server)->address());
  if (listen == "tls") asked.request.tls = {.enabled = true, .ca = authority.pem()};
  ExpectAllPass(Check(asked));
}

INSTANTIATE_TEST_SUITE_P(Places, OurServers, testing::Values("unix", "tcp", "tls"),
                         [](const auto& info) { return std::string(info.param); });

struct Planted {
  const char* fault;
  const char* rule;
  const char* evidence;
};

class PlantedFrames : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFrames, AreFoundByTheirRule) {
  const RawPlantedServer server(GetParam().fault);
  rpc::ConformanceOptions options = OptionsFor(rpc::Api::kCsi, server.address());
  // Calls that hang are waited for.
  options.call_timeout = std::chrono::milliseconds(1500);
  bool found = false;
  std::string others;
  for (const rpc::RuleReport& report : Check(options)) {
    if (report.id != GetParam().rule) {
      absl::StrAppend(&others, report.id, ": ", report.evidence, "\n");
      continue;
    }
    found = true;
    EXPECT_EQ(report.result, rpc::RuleResult::kFail) << others;
    EXPECT_THAT(report.evidence, testing::HasSubstr(GetParam().evidence));
  }
  EXPECT_TRUE(found);
}

constexpr Planted kPlanted[] = {
    {"no-settings-ack", "wire-settings", "no acknowledgement"},
    {"ping-first", "wire-settings", "another frame came first"},
    {"no-pong", "wire-ping", "no answer within 1500 ms"},
    {"other-pong", "wire-ping", "other bytes"},
    {"unknown-frames-end", "wire-unknown-frames", "closed the connection"},
    {"empty-frames-end", "wire-frames", "no answer within"},
    {"metadata-refused", "wire-metadata", "expected OK"},
    {"html", "wire-answer", "content-type: text/html"},
    {"created", "wire-answer", ":status: 201"},
    {"two-statuses", "wire-answer", "grpc-status: missing, or more than once"},
    {"no-status", "wire-answer", "grpc-status: missing, or more than once"},
    {"early-status", "wire-answer", "grpc-status: before the end of the answer"},
    {"te-hangs", "wire-te", "no answer within"},
    {"te-cuts", "wire-te", "expected the 40 tuples"},
    {"timeout-hangs", "wire-timeout", "no answer within"},
    {"timeout-cuts", "wire-timeout", "expected the 40 tuples"},
    {"unknown-method-ok", "wire-method-unknown", "got OK"},
    {"unknown-method-internal", "wire-method-unknown", "expected UNIMPLEMENTED, got INTERNAL"},
    {"raw-text", "wire-error", "not encoded"},
    {"type-hangs", "wire-content-type", "no answer within"},
    {"type-ok", "wire-content-type", "expected the 40 tuples"},
    {"get-ok", "wire-get", "expected the 40 tuples"},
    {"compressed-ok", "wire-compressed", "expected the 40 tuples"},
    {"compressed-invalid", "wire-compressed", "got INVALID_ARGUMENT"},
    {"none-ok", "wire-request-none", "expected an error, got OK"},
    {"cut-ok", "wire-request-cut", "expected an error, got OK"},
    {"cut-hangs", "wire-request-cut", "no answer within"},
    {"long-ok", "wire-request-long", "expected an error, got OK"},
    {"long-hangs", "wire-request-long", "no answer within"},
    {"no-window", "wire-window", "more DATA than the stream's window allows"},
    {"reset-is-ignored", "wire-reset", "goes on after RST_STREAM"},
    {"reset-closes", "wire-reset", "closed the connection"},
    {"reset-ends-all", "wire-reset-other", "no answer within"},
    {"half-request-holds", "wire-half-request", "no answer within"},
    {"goaway-ends", "wire-goaway", "no answer within"},
    {"goaway-closes", "wire-goaway", ""},
};

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFrames, testing::ValuesIn(kPlanted), [](const auto& info) {
  std::string name = std::string(info.param.fault) + "_by_" + info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(ConformanceWire, EveryRuleHasAPlantedFault) {
  std::set<std::string> planted;
  for (const Planted& fault : kPlanted) planted.insert(fault.rule);
  const RawPlantedServer server("");
  std::set<std::string> rules;
  for (const rpc::RuleReport& report : Check(OptionsFor(rpc::Api::kCsi, server.address()))) {
    rules.insert(report.id);
  }
  EXPECT_EQ(rules, planted);
}

}  // namespace conformance_wire_test
}  // namespace cbt::test
