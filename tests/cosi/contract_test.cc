// The messages of three revisions: what one side writes, the other reads. That libprotobuf reads and
// writes the same is in driver_test.py and conform_test.py.
#include "programs/cosi/contract/contract.h"

#include <gtest/gtest.h>

#include "tests/support/status.h"

namespace cbt::cosi {
namespace contract_test {

using test::ValueOf;

MessageBytes BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Contract, RequestsComeBack) {
  for (const Revision revision : kRevisions) {
    const Contract& contract = ContractOf(revision);
    const Parameters parameters = {{"a", "b"}, {"", "empty"}, {"c", ""}};
    const std::string create = contract.WriteCreate(
        {.name = "br-1", .protocols = {Protocol::kS3}, .parameters = parameters});
    const CreateRequest created = ValueOf(contract.ReadCreate(BytesOf(create)));
    EXPECT_EQ(created.name, "br-1");
    EXPECT_EQ(created.parameters, parameters);
    EXPECT_EQ(created.protocols.size(), revision == Revision::kV02 ? 0u : 1u);

    const std::string grant =
        contract.WriteGrant({.account = "ba-1",
                             .buckets = {{.bucket_id = "b", .mode = AccessMode::kReadWrite}},
                             .policy = "{}",
                             .protocol = Protocol::kS3,
                             .authentication = Authentication::kKey,
                             .parameters = parameters});
    const GrantRequest granted = ValueOf(contract.ReadGrant(BytesOf(grant)));
    EXPECT_EQ(granted.account, "ba-1");
    EXPECT_EQ(granted.buckets.front().bucket_id, "b");
    EXPECT_EQ(granted.policy.has_value(), revision == Revision::kProposal);
    EXPECT_EQ(granted.protocol, Protocol::kS3);
    EXPECT_EQ(granted.authentication, Authentication::kKey);
    EXPECT_EQ(granted.parameters, parameters);

    const std::string revoke = contract.WriteRevoke({.account_id = "ba-1", .bucket_ids = {"b"}});
    const RevokeRequest revoked = ValueOf(contract.ReadRevoke(BytesOf(revoke)));
    EXPECT_EQ(revoked.account_id, "ba-1");
    EXPECT_EQ(revoked.bucket_ids, std::vector<std::string>{"b"});
  }
}

TEST(Contract, AnswersComeBack) {
  const S3Info s3 = {.endpoint = "https://h", .region = "r", .addressing = Addressing::kVirtual};
  for (const Revision revision : kRevisions) {
    const Contract& contract = ContractOf(revision);
    GrantAnswer answer{.account_id = "ba-1", .buckets = {{.bucket_id = "b", .s3 = s3}}};
    answer.keys = S3Keys{.access_key = "AK", .secret_key = Secret("the \"secret\"")};
    const std::string written = contract.WriteAccess(answer);
    const GrantAnswer read = ValueOf(contract.ReadAccess(BytesOf(written)));
    EXPECT_EQ(read.account_id, "ba-1");
    ASSERT_TRUE(read.keys.has_value());
    EXPECT_EQ(read.keys->access_key, "AK");
    EXPECT_TRUE(read.keys->secret_key.Equals("the \"secret\""));
    ASSERT_EQ(read.buckets.size(), 1u);
    ASSERT_TRUE(read.buckets.front().s3.has_value());
    EXPECT_EQ(read.buckets.front().s3->endpoint, "https://h");
    EXPECT_EQ(read.buckets.front().s3->region, "r");
    // Without keys.
    answer.keys.reset();
    const std::string empty = contract.WriteAccess(answer);
    EXPECT_FALSE(ValueOf(contract.ReadAccess(BytesOf(empty))).keys.has_value());
  }
}

TEST(Contract, DamagedMessagesAreErrors) {
  const std::string cut(
      "\x0a\x05"
      "ab");
  const std::string no_utf8("\x0a\x02\xff\xfe");
  for (const Revision revision : kRevisions) {
    for (const std::string& damaged : {cut, no_utf8}) {
      EXPECT_TRUE(
          absl::IsInvalidArgument(ContractOf(revision).ReadCreate(BytesOf(damaged)).status()));
    }
  }
}

}  // namespace contract_test
}  // namespace cbt::cosi
