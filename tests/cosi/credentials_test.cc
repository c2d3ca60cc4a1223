// What a Secret holds for what a driver has returned.
#include "programs/cosi/sidecar/credentials.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "bucket/s3.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::kube::cosi {
namespace credentials_test {
namespace {

const char kAll[] =
    R"({"endpoint":"http://s3:9","region":"us","accessKeyID":"k","accessSecretKey":"s"})";

std::string At(const Secrets& data, const char* key) {
  return std::string(data.Get(key).value_or("(none)"));
}

Secrets Make(const char* protocol, const char* credentials) {
  return SecretData("id-1", *Object::Parse(protocol), Secret(credentials));
}

TEST(CosiCredentials, BothFormsAtOnce) {
  const Secrets data = Make(R"({"s3":{"region":"eu"}})", kAll);
  EXPECT_EQ(At(data, "COSI_PROTOCOL"), "S3");
  EXPECT_EQ(At(data, "COSI_BUCKET_ID"), "id-1");
  EXPECT_EQ(At(data, "COSI_S3_BUCKET_ID"), "id-1");
  EXPECT_EQ(At(data, "COSI_S3_ENDPOINT"), "http://s3:9");
  EXPECT_EQ(At(data, "COSI_S3_REGION"), "us");
  EXPECT_EQ(At(data, "COSI_S3_ADDRESSING_STYLE"), "path");
  EXPECT_EQ(At(data, "COSI_S3_ACCESS_KEY_ID"), "k");
  EXPECT_EQ(At(data, "COSI_S3_ACCESS_SECRET_KEY"), "s");
  EXPECT_EQ(At(data, "credentials"), "(none)");
  const Object info = *Object::Parse(At(data, "BucketInfo"));
  EXPECT_EQ(info.String({"spec", "bucketName"}).value(), "id-1");
  EXPECT_EQ(info.String({"spec", "authenticationType"}).value(), "Key");
  EXPECT_EQ(info.String({"spec", "secretS3", "accessSecretKey"}).value(), "s");
}

// `cbtctl backup` reads the mount.
TEST(CosiCredentials, OurOwnReaderTakesBothForms) {
  const Secrets data = Make(R"({"s3":{"region":"eu"}})", kAll);
  const test::TempDir all;
  const test::TempDir fields;
  for (const char* key : {"BucketInfo", "COSI_S3_BUCKET_ID", "COSI_S3_ENDPOINT", "COSI_S3_REGION",
                          "COSI_S3_ACCESS_KEY_ID", "COSI_S3_ACCESS_SECRET_KEY"}) {
    all.Write(key, At(data, key));
    if (std::string_view(key) != "BucketInfo") fields.Write(key, At(data, key));
  }
  for (const std::string& path : {all.path(), all / "BucketInfo", fields.path()}) {
    ASSERT_OK_AND_ASSIGN(const bucket::S3Place place, bucket::S3PlaceFromCosi(path));
    EXPECT_EQ(place.bucket, "id-1");
    EXPECT_EQ(place.endpoint, "http://s3:9");
    EXPECT_EQ(place.region, "us");
    EXPECT_EQ(place.credentials.access_key, "k");
    EXPECT_EQ(place.credentials.secret_key.Reveal(), "s");
  }
}

TEST(CosiCredentials, CosiC15NoKeysWhereThereAreNone) {
  const Secrets data = Make(R"({"s3":{"region":"eu"}})", R"({"endpoint":"http://s3:9"})");
  EXPECT_EQ(At(data, "COSI_S3_ENDPOINT"), "http://s3:9");
  EXPECT_EQ(At(data, "COSI_S3_REGION"), "eu");
  const Object info = *Object::Parse(At(data, "BucketInfo"));
  EXPECT_EQ(info.String({"spec", "authenticationType"}).value(), "IAM");
  EXPECT_EQ(At(data, "COSI_S3_ACCESS_KEY_ID"), "(none)");
  EXPECT_EQ(At(Make(R"({"s3":{}})", ""), "credentials"), "(none)");
}

TEST(CosiCredentials, WhatIsNoSuchObjectIsPassedOnAsItCame) {
  EXPECT_EQ(At(Make(R"({"s3":{}})", "[default]\nkey = x"), "credentials"), "[default]\nkey = x");
  EXPECT_EQ(At(Make(R"({"gs":{}})", "anything"), "credentials"), "anything");
  EXPECT_EQ(At(Make(R"({"gs":{}})", "anything"), "COSI_PROTOCOL"), "(none)");
  // A field of another type does not count.
  EXPECT_EQ(At(Make(R"({"s3":{}})", R"({"endpoint":5})"), "COSI_S3_ENDPOINT"), "(none)");
}

}  // namespace
}  // namespace credentials_test
}  // namespace cbt::kube::cosi
