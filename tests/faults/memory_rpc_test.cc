// Memory that runs out while a service proves its streams and seals its pages.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/session_store.h"
#include "cbt/wire.h"
#include "faults/support/failing_memory.h"
#include "rpc/admission.h"
#include "rpc/completeness.h"
#include "rpc/page_token.h"
#include "rpc/watched_file.h"
#include "support/figures.h"
#include "support/temp_dir.h"

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

// A core dump, or the next one who is given the memory, has no secret of a file that was read long
// ago.
TEST(Secrecy, MemoryThatIsGivenBackHoldsNoSecretOfAFile) {
  constexpr std::string_view kMark = "a-mark-that-all-the-secrets-have";
  const test::TempDir dir;
  {
    // Long enough to be read in several pieces.
    std::string tokens;
    std::string sessions;
    std::string secrets;
    for (int i = 0; i < 2000; ++i) {
      const std::string secret = absl::StrCat(std::string(kMark), i);
      absl::StrAppend(&tokens, secret, " name-", i, " *\n");
      absl::StrAppend(&sessions, secret, " namespace snapshot -\n");
      if (i < 1000) absl::StrAppend(&secrets, "key", i, "=", secret, "\n");
    }
    dir.Write("tokens", tokens);
    dir.Write("sessions", sessions);
    dir.Write("secrets", secrets);
    dir.Write("bad-line", std::string(kMark) + " name\n");
    dir.Write("unfinished", tokens + "x");
    dir.Write("too-large", tokens + std::string(5 << 20, 'x'));
  }
  const test::WatchFreed freed(kMark);
  EXPECT_TRUE(MakeTokenFileAccess(dir / "tokens").ok());
  EXPECT_EQ(freed.found(), 0) << "tokens";
  EXPECT_TRUE(MakeFileSessions(dir / "sessions").ok());
  EXPECT_EQ(freed.found(), 0) << "sessions";
  EXPECT_TRUE(MakeFileSecrets(dir / "secrets").ok());
  EXPECT_EQ(freed.found(), 0) << "secrets";
  EXPECT_FALSE(MakeTokenFileAccess(dir / "bad-line").ok());
  EXPECT_FALSE(MakeFileSessions(dir / "bad-line").ok());
  EXPECT_FALSE(MakeTokenFileAccess(dir / "unfinished").ok());
  EXPECT_FALSE(MakeTokenFileAccess(dir / "too-large").ok());
  EXPECT_EQ(freed.found(), 0) << "files that are refused";
  // It finds one that was not wiped.
  EXPECT_TRUE(ReadSmallFile(dir / "tokens").ok());
  EXPECT_GT(freed.found(), 0);
}

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
