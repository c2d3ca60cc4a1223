// Memory that runs out while a service proves its streams and seals its pages.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/access.h"
#include "cbt/wire.h"
#include "faults/support/failing_memory.h"
#include "rpc/admission.h"
#include "rpc/completeness.h"
#include "rpc/page_token.h"
#include "support/figures.h"

namespace cbt::rpc {
namespace {

using test::FailEveryAllocation;
using test::Found;

class OutOfMemoryInServices : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    test::PrintFigure("r10_allocations_failed_rpc", test::AllocationsFailed());
    test::PrintFigure("r10_wrong_rpc", test::WrongAnswers());
  }
};

TEST_F(OutOfMemoryInServices, PageTokens) {
  const std::optional<std::string> base = "a snapshot whose name takes memory of its own";
  const std::string target = "another snapshot with a name that is just as long";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const PageTokens tokens("a key that has more than sixteen bytes");
              const std::string token = tokens.Seal(base, target, 123456789);
              const absl::StatusOr<uint64_t> offset = tokens.Open(base, target, token);
              if (!offset.ok()) return std::nullopt;
              EXPECT_EQ(*offset, 123456789U);
              return std::vector<uint8_t>(token.begin(), token.end());
            }),
            2);
}

// What a client compares: a proof that could not be read is no proof that holds.
TEST_F(OutOfMemoryInServices, Proofs) {
  const std::vector<uint64_t> offsets = {0, 8192};
  const std::vector<uint64_t> lengths = {4096, 4096};
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              StreamDigest digest;
              digest.Add(offsets, lengths);
              const StreamHeader header{BlockMetadataType::kFixedLength, 1 << 20};
              const Metadata sent = ProofMetadata(digest, 0, header);
              const auto look_up = [&](std::string_view key) -> std::optional<std::string_view> {
                for (const auto& [name, value] : sent) {
                  if (std::string_view(name) == key) return value;
                }
                return std::nullopt;
              };
              std::string what;
              return std::vector<uint8_t>(
                  {static_cast<uint8_t>(CheckProof(look_up, digest, 0, header, what))});
            }),
            3);
}

class Everybody final : public Authenticator,
                        public Authorizer,
                        public SnapshotResolver,
                        public SecretProvider {
 public:
  void Authenticate(const Secret&, Done<Principal> done) override {
    done(Principal{.name = "somebody with a name that takes memory"});
  }
  void Authorize(const Principal&, const std::string&, DoneStatus done) override {
    done(absl::OkStatus());
  }
  void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) override {
    done(ResolvedSnapshots{.base_handle = query.base, .target_handle = query.target});
  }
  void GetSecrets(const std::string&, const ResolvedSnapshots&, Done<Secrets> done) override {
    Secrets secrets;
    secrets.Set("a key that takes memory of its own", "and a value that does so as well");
    done(std::move(secrets));
  }
};

// A request that nobody answers keeps its client, and a place among those that are served, for
// ever.
TEST_F(OutOfMemoryInServices, EveryRequestForAccessIsAnswered) {
  Everybody all;
  const auto admission = MakeAccessAdmission({&all, &all, &all, &all}, false);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              absl::StatusOr<AdmittedRequest> answer = absl::Status(absl::StatusCode::kUnknown, "");
              MetadataRequest request;
              request.target_snapshot_id = "a snapshot whose name takes memory of its own";
              request.token = Secret("a token that is longer than fifteen bytes");
              admission->Admit(std::move(request),
                               [&answer](absl::StatusOr<AdmittedRequest> admitted) {
                                 answer = std::move(admitted);
                               });
              EXPECT_FALSE(absl::IsUnknown(answer.status()));
              if (!answer.ok()) return std::nullopt;
              EXPECT_EQ(answer->secrets.size(), 1u);
              return std::vector<uint8_t>(answer->target_snapshot_id.begin(),
                                          answer->target_snapshot_id.end());
            }),
            10);
}

}  // namespace
}  // namespace cbt::rpc
