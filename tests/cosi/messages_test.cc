// The driver's messages against those that protoc generates.
#include "programs/cosi/sidecar/messages.h"

#include <gtest/gtest.h>

#include <string>

#include "cosi_v1alpha1.pb.h"

namespace cbt::kube::cosi {
namespace messages_test {
namespace {

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Object Protocol(const char* json) { return *Object::Parse(json); }

TEST(CosiMessages, CosiS10TheProtocolsOfRelease02) {
  ::cosi::v1alpha1::ProvisionerCreateBucketRequest message;
  const auto parse = [&message](const char* protocol) {
    const auto bytes = EncodeCreate("a", Protocol(protocol), {});
    return bytes.ok() && message.ParseFromString(*bytes);
  };
  ASSERT_TRUE(parse(R"({"s3":{"region":"eu","signatureVersion":"S3V4"}})"));
  EXPECT_EQ(message.protocol().s3().region(), "eu");
  EXPECT_EQ(message.protocol().s3().signature_version(), ::cosi::v1alpha1::S3V4);
  ASSERT_TRUE(parse(R"({"s3":{}})"));
  EXPECT_TRUE(message.protocol().has_s3());
  EXPECT_EQ(message.protocol().s3().signature_version(), ::cosi::v1alpha1::UnknownSignature);
  ASSERT_TRUE(parse(R"({"azureBlob":{"storageAccount":"x"}})"));
  EXPECT_EQ(message.protocol().azureblob().storage_account(), "x");
  ASSERT_TRUE(parse(R"({"gs":{"privateKeyName":"k","projectId":"p","serviceAccount":"s"}})"));
  EXPECT_EQ(message.protocol().gcs().private_key_name(), "k");
  EXPECT_EQ(message.protocol().gcs().project_id(), "p");
  EXPECT_EQ(message.protocol().gcs().service_account(), "s");
  EXPECT_FALSE(parse("{}"));
}

TEST(CosiMessages, CosiC33RequestsHaveAllFields) {
  const auto create = EncodeCreate("name", Protocol(R"({"s3":{}})"), {{"a", "b"}, {"c", ""}});
  ::cosi::v1alpha1::ProvisionerCreateBucketRequest created;
  ASSERT_TRUE(create.ok() && created.ParseFromString(*create));
  EXPECT_EQ(created.name(), "name");
  EXPECT_EQ(created.parameters().size(), 2U);
  EXPECT_EQ(created.parameters().at("a"), "b");
  ::cosi::v1alpha1::ProvisionerGrantBucketAccessRequest granted;
  ASSERT_TRUE(granted.ParseFromString(EncodeGrant("id", "account", "{}", {{"k", "v"}})));
  EXPECT_EQ(granted.bucket_id(), "id");
  EXPECT_EQ(granted.account_name(), "account");
  EXPECT_EQ(granted.access_policy(), "{}");
  EXPECT_EQ(granted.parameters().at("k"), "v");
}

TEST(CosiMessages, CosiS11AndS12IdsSayAll) {
  EXPECT_EQ(::cosi::v1alpha1::ProvisionerDeleteBucketRequest().GetTypeName(),
            "cosi.v1alpha1.ProvisionerDeleteBucketRequest");
  ::cosi::v1alpha1::ProvisionerDeleteBucketRequest deleted;
  ASSERT_TRUE(deleted.ParseFromString(EncodeDelete("id")));
  EXPECT_EQ(deleted.bucket_id(), "id");
  EXPECT_EQ(deleted.GetDescriptor()->field_count(), 1);
  ::cosi::v1alpha1::ProvisionerRevokeBucketAccessRequest revoked;
  ASSERT_TRUE(revoked.ParseFromString(EncodeRevoke("id", "account")));
  EXPECT_EQ(revoked.bucket_id(), "id");
  EXPECT_EQ(revoked.account_id(), "account");
  EXPECT_EQ(revoked.GetDescriptor()->field_count(), 2);
}

TEST(CosiMessages, CosiS20TheNamesOfTheServiceDefinition) {
  EXPECT_EQ(::cosi::v1alpha1::ProvisionerGetInfoResponse().GetTypeName(),
            "cosi.v1alpha1.ProvisionerGetInfoResponse");
}

TEST(CosiMessages, CosiC32ADriversName) {
  ::cosi::v1alpha1::ProvisionerGetInfoResponse message;
  const auto decode = [&message](const std::string& name) {
    message.set_name(name);
    return DecodeInfo(Bytes(message.SerializeAsString()));
  };
  for (const std::string& good : {std::string("a"), std::string("rgw.example.com"),
                                  std::string("9-A"), std::string(63, 'x')}) {
    EXPECT_EQ(decode(good).value_or(""), good);
  }
  for (const std::string& bad : {std::string(), std::string("-a"), std::string("a."),
                                 std::string("a/b"), std::string("a b"), std::string(64, 'x')}) {
    EXPECT_EQ(decode(bad).status().code(), absl::StatusCode::kInternal) << bad;
  }
}

TEST(CosiMessages, AnswersThatCantBeReadAreErrorsWithoutTheirBytes) {
  const std::string cut("\x0a\x10secret", 8);
  EXPECT_EQ(DecodeInfo(Bytes(cut)).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(DecodeCreate(Bytes(cut)).status().code(), absl::StatusCode::kInternal);
  const absl::Status granted = DecodeGrant(Bytes(cut)).status();
  EXPECT_EQ(granted.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(granted.message().find("secret"), absl::string_view::npos);
  EXPECT_FALSE(DecodeCreate({}).ok());
  ::cosi::v1alpha1::ProvisionerCreateBucketResponse created;
  created.set_bucket_id(std::string(2049, 'a'));
  EXPECT_FALSE(DecodeCreate(Bytes(created.SerializeAsString())).ok());
}

TEST(CosiMessages, CosiC35AGrant) {
  ::cosi::v1alpha1::ProvisionerGrantBucketAccessResponse message;
  message.set_account_id("account");
  message.set_credentials("{}");
  const auto granted = DecodeGrant(Bytes(message.SerializeAsString()));
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->account_id, "account");
  EXPECT_EQ(granted->credentials.Reveal(), "{}");
  EXPECT_TRUE(DecodeGrant({})->credentials.empty());
}

}  // namespace
}  // namespace messages_test
}  // namespace cbt::kube::cosi
