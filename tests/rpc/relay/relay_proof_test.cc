// What the proof of a stream through a relay, or through another server, covers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/resumption.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fault_proxy.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace relay_proof_test {

using absl::StatusCode;
using reference::Ranges;
using rpc::Completeness;
using testing::HasSubstr;

// A plugin without proofs that mistakenly returns OK after the first of two messages.
Script StopsEarly() { return {.messages = {Variable(kMiB, {{0, 4096}})}}; }

TEST(RelayProof, AttackJAnEarlyOkWithoutAProofIsNotProvenBehindARelay) {
  const FakeServer plugin(StopsEarly());
  for (const bool check : {true, false}) {
    const Sidecar sidecar(plugin.address(), check);
    for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
      rpc::ListRequest request = sidecar.Request(api);
      const Listed listed = ListWhatComes(request);
      EXPECT_OK(listed.status);
      // Without its checks the relay passes messages on unread, unless the contract numbers the
      // types differently.
      const bool looked_at = check || api == rpc::Api::kSession;
      EXPECT_EQ(listed.completeness,
                looked_at ? Completeness::kProvenFromRelay : Completeness::kEnded);
      request.require_proof = true;
      const absl::Status status = ListWhatComes(request).status;
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(status.ToString(),
                  HasSubstr(looked_at ? "does not reach the source" : "no proof"));
    }
  }
}

TEST(RelayProof, AttackJAProofThatThePluginGaveReachesTheClientAsAWholeOne) {
  const Service plugin = Service::OfExtents({{0, 4096}, {8192, 4096}}, kMiB);
  for (const bool check : {true, false}) {
    const Sidecar first(plugin.server->address(), check);
    const Sidecar second(first.relay->address());
    for (const Sidecar* sidecar : {&first, &second}) {
      rpc::ListRequest request = sidecar->Request(rpc::Api::kKubernetes);
      request.require_proof = true;
      const Listed listed = ListWhatComes(request);
      EXPECT_OK(listed.status);
      EXPECT_EQ(listed.completeness, Completeness::kProven);
    }
  }
}

TEST(RelayProof, AttackJASecondRelayDoesNotMakeTheFirstOnesProofAWholeOne) {
  const FakeServer plugin(StopsEarly());
  const Sidecar first(plugin.address());
  for (const bool check : {true, false}) {
    const Sidecar second(first.relay->address(), check);
    const Listed listed = ListWhatComes(second.Request(rpc::Api::kKubernetes));
    EXPECT_OK(listed.status);
    EXPECT_EQ(listed.completeness, Completeness::kProvenFromRelay);
  }
}

TEST(RelayProof, AttackJAServerOverAnUnprovenOneProvesNoMoreThanARelay) {
  const FakeServer unproven(StopsEarly());
  const Service proven = Service::OfExtents({{0, 4096}}, kMiB);
  for (const bool whole : {false, true}) {
    const auto provider = rpc::MakeRemoteProvider(
        whole ? proven.server->address() : unproven.address(), rpc::Api::kCsi);
    const TempDir dir;
    const auto server = rpc::Server::Start(*provider, {.listen = "unix://" + (dir / "s")});
    ASSERT_OK(server);
    rpc::ListRequest request;
    request.address = (*server)->address();
    request.snapshot_id = std::string("s");
    const Listed listed = ListWhatComes(request);
    EXPECT_OK(listed.status);
    EXPECT_EQ(listed.completeness, whole ? Completeness::kProven : Completeness::kProvenFromRelay);
  }
}

// A stream that was resumed without a version to compare may be of two states of the data, and one
// that says of itself that its data may change is no whole proof either.
TEST(RelayProof, AttackJAServerOverPartsThatNothingJoinsDoesNotProveThem) {
  const uint64_t offsets[] = {0, 8192};
  const uint64_t length = 4096;
  const auto proof = [&](size_t from, rpc::ProofScope scope) {
    StreamDigest digest;
    for (size_t i = from; i < 2; ++i) digest.Add({&offsets[i], 1}, {&length, 1});
    const rpc::StreamHeader header{BlockMetadataType::kVariableLength, kMiB};
    return rpc::ProofMetadata(digest, from == 0 ? 0 : length, header, scope);
  };
  for (const bool breaks : {false, true}) {
    for (const rpc::ProofScope scope : {rpc::ProofScope::kSource, rpc::ProofScope::kPlace}) {
      for (const char* const version : {"", "place:1"}) {
        const FakeServer plugin([&](const FakeServer::Request& request) -> Script {
          const bool first = request.starting_offset() == 0;
          Script script{.messages = {first ? Variable(kMiB, {{0, 4096}, {8192, 4096}})
                                           : Variable(kMiB, {{8192, 4096}})},
                        .trailing = proof(first ? 0 : 1, scope)};
          if (breaks && first) {
            script = {.messages = {Variable(kMiB, {{0, 4096}})},
                      .status = {grpc::StatusCode::UNAVAILABLE, "x"}};
          }
          if (*version != '\0') script.initial.emplace_back(rpc::kSourceVersionKey, version);
          return script;
        });
        const auto provider = rpc::MakeRemoteProvider(plugin.address(), rpc::Api::kCsi);
        const TempDir dir;
        const auto server = rpc::Server::Start(*provider, {.listen = "unix://" + (dir / "s")});
        ASSERT_OK(server);
        rpc::ListRequest request;
        request.address = (*server)->address();
        request.snapshot_id = std::string("s");
        const Listed listed = ListWhatComes(request);
        EXPECT_OK(listed.status);
        EXPECT_EQ(listed.tuples, (Ranges{{0, 4096}, {8192, 4096}}));
        Completeness want = Completeness::kProvenFromRelay;
        if (*version != '\0') {
          want = Completeness::kProvenForPlace;
        } else if (!breaks && scope == rpc::ProofScope::kSource) {
          want = Completeness::kProven;
        }
        EXPECT_EQ(listed.completeness, want) << breaks << version << static_cast<int>(scope);
      }
    }
  }
}

// A message's five-byte prefix has its length. If that is more than what follows, gRPC drops the
// partial message and reports the status after it, OK, as if nothing had been sent.
class LyingLength {
 public:
  // `plugin` sends two messages; the length prefix of the second is falsified.
  LyingLength(const std::string& plugin, size_t first_message_bytes) : wire(plugin) {
    constexpr size_t kPrefix = 5;
    wire.Arm(WireFault{.kind = WireFault::Kind::kFlip,
                       .after = kPrefix + first_message_bytes + kPrefix - 2,
                       .bits = 1});
  }
  FaultProxy wire;
};

TEST(RelayProof, AttackJAMessageCutShortBeforeAnOkIsNeverProven) {
  const std::string first = Variable(kMiB, {{0, 4096}});
  const FakeServer plugin(Script{.messages = {first, Variable(kMiB, {{8192, 4096}})}});
  for (const bool relayed : {false, true}) {
    const LyingLength lying(plugin.address(), first.size());
    std::unique_ptr<Sidecar> sidecar;
    rpc::ListRequest request;
    if (relayed) {
      sidecar = std::make_unique<Sidecar>(lying.wire.address());
      request = sidecar->Request(rpc::Api::kCsi);
    } else {
      request.address = lying.wire.address();
      request.snapshot_id = std::string("s");
      request.retry_for = {};
    }
    request.require_proof = true;
    const Listed listed = ListWhatComes(request);
    EXPECT_EQ(lying.wire.fired(), 1);
    // The transport notices the missing bytes.
    EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << listed.status;
    EXPECT_NE(listed.completeness, Completeness::kProven);
  }
}

TEST(RelayProof, AttackJAMessageCutShortContradictsTheProofBehindIt) {
  // Two messages, because max_results is one tuple.
  const Service plugin = Service::OfExtents({{0, 4096}, {8192, 4096}}, kMiB);
  const std::string first = Variable(kMiB, {{0, 4096}});
  for (const bool relayed : {false, true}) {
    const LyingLength lying(plugin.server->address(), first.size());
    std::unique_ptr<Sidecar> sidecar;
    rpc::ListRequest request;
    if (relayed) {
      sidecar = std::make_unique<Sidecar>(lying.wire.address());
      request = sidecar->Request(rpc::Api::kCsi);
    } else {
      request.address = lying.wire.address();
      request.snapshot_id = std::string("s");
      request.retry_for = {};
    }
    request.max_results = 1;
    const Listed listed = ListWhatComes(request);
    EXPECT_EQ(lying.wire.fired(), 1);
    EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << listed.status;
  }
}

// Receivers that read the first value and those that read the last would see two proofs.
TEST(RelayProof, AttackJAKeyOfTheProofThatIsThereTwiceIsADifference) {
  Script script{.messages = {Variable(kMiB, {{0, 4096}})}};
  const uint64_t offset = 0;
  const uint64_t length = 4096;
  StreamDigest digest;
  digest.Add({&offset, 1}, {&length, 1});
  const rpc::Metadata proof =
      rpc::ProofMetadata(digest, 0, rpc::StreamHeader{BlockMetadataType::kVariableLength, kMiB});
  ASSERT_EQ(proof.size(), 6u);
  rpc::Metadata twice;
  for (const auto& [key, value] : proof) twice.insert(twice.end(), {{key, value}, {key, value}});
  std::vector<rpc::Metadata> wrong = {twice};
  for (const auto& [key, value] : proof) {
    for (const std::string& other : {value, std::string("7")}) {
      wrong.push_back(proof);
      wrong.back().emplace_back(key, other);
    }
  }
  wrong.push_back(proof);
  wrong.back().insert(wrong.back().end(),
                      {{"cbt-proof-scope", "relay"}, {"cbt-proof-scope", "source"}});
  for (const rpc::Metadata& trailing : wrong) {
    script.trailing = trailing;
    const FakeServer plugin(script);
    rpc::ListRequest request;
    request.address = plugin.address();
    request.snapshot_id = std::string("s");
    request.retry_for = {};
    const Listed direct = ListWhatComes(request);
    EXPECT_EQ(direct.status.code(), StatusCode::kDataLoss) << direct.status;
    EXPECT_THAT(direct.status.ToString(), HasSubstr("is given more than once"));
    for (const bool check : {true, false}) {
      const Sidecar sidecar(plugin.address(), check);
      for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
        const Listed listed = ListWhatComes(sidecar.Request(api));
        EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << listed.status;
      }
    }
  }
  script.trailing = proof;
  const FakeServer plugin(script);
  const Sidecar sidecar(plugin.address());
  const Listed listed = ListWhatComes(sidecar.Request(rpc::Api::kCsi));
  EXPECT_OK(listed.status);
  EXPECT_EQ(listed.completeness, Completeness::kProven);
}

// A value in the headers and another in the trailers are two.
TEST(RelayProof, LBAKeyInHeadersAndTrailersIsGivenTwice) {
  const Script plain{.messages = {Variable(kMiB, {{0, 4096}})}};
  const uint64_t offset = 0;
  const uint64_t length = 4096;
  StreamDigest digest;
  digest.Add({&offset, 1}, {&length, 1});
  const rpc::Metadata proof =
      rpc::ProofMetadata(digest, 0, rpc::StreamHeader{BlockMetadataType::kVariableLength, kMiB});
  std::vector<Script> scripts;
  for (const auto& [key, value] : proof) {
    for (const std::string& other : {value, std::string("7")}) {
      scripts.push_back(plain);
      scripts.back().initial = {{key, other}};
      scripts.back().trailing = proof;
    }
  }
  for (const char* late : {"a", "b"}) {
    scripts.push_back(plain);
    scripts.back().initial = {{"cbt-source-version", "a"}};
    scripts.back().trailing = proof;
    scripts.back().trailing.emplace_back("cbt-source-version", late);
  }
  for (const Script& script : scripts) {
    const FakeServer plugin(script);
    rpc::ListRequest request;
    request.address = plugin.address();
    request.snapshot_id = std::string("s");
    request.retry_for = {};
    const Listed direct = ListWhatComes(request);
    EXPECT_EQ(direct.status.code(), StatusCode::kDataLoss) << direct.status;
    EXPECT_THAT(direct.status.ToString(), HasSubstr("is given more than once"));
    for (const bool check : {true, false}) {
      const Sidecar sidecar(plugin.address(), check);
      for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
        const Listed listed = ListWhatComes(sidecar.Request(api));
        EXPECT_EQ(listed.status.code(), StatusCode::kInternal) << listed.status;
      }
    }
  }
}

TEST(RelayProof, AttackJASourceVersionThatIsThereTwiceIsRefused) {
  Script script{.messages = {Variable(kMiB, {{0, 4096}})}};
  script.initial = {{"cbt-source-version", "a"}, {"cbt-source-version", "b"}};
  const FakeServer plugin(script);
  rpc::ListRequest request;
  request.address = plugin.address();
  request.snapshot_id = std::string("s");
  request.retry_for = {};
  const absl::Status direct = ListWhatComes(request).status;
  EXPECT_EQ(direct.code(), StatusCode::kDataLoss) << direct;
  EXPECT_THAT(direct.ToString(), HasSubstr("cbt-source-version is given more than once"));
  for (const bool check : {true, false}) {
    const Sidecar sidecar(plugin.address(), check);
    for (const rpc::Api api :
         {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kPaged}) {
      const absl::Status status = ListWhatComes(sidecar.Request(api)).status;
      // For pages the relay is itself a client.
      const bool pages = api == rpc::Api::kPaged;
      EXPECT_EQ(status.code(), pages ? StatusCode::kDataLoss : StatusCode::kInternal) << status;
    }
  }
}

}  // namespace relay_proof_test
}  // namespace cbt::test
