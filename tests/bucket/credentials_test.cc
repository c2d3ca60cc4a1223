#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "bucket/s3.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::bucket {
namespace credentials_test {

TEST(S3Credentials, FromTheEnvironment) {
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  ::setenv("AWS_ACCESS_KEY_ID", "AK", 1);
  EXPECT_TRUE(absl::IsNotFound(S3CredentialsFromEnvironment().status()));
  ::setenv("AWS_SECRET_ACCESS_KEY", "SK", 1);
  ::setenv("AWS_SESSION_TOKEN", "ST", 1);
  ASSERT_OK_AND_ASSIGN(const S3Credentials found, S3CredentialsFromEnvironment());
  EXPECT_EQ(found.access_key, "AK");
  EXPECT_EQ(found.secret_key.Reveal(), "SK");
  EXPECT_EQ(found.session_token.Reveal(), "ST");
}

TEST(S3Credentials, FromAFile) {
  const test::TempDir directory;
  directory.Write("file",
                  "# keys\n[other]\naws_access_key_id=O\naws_secret_access_key=OS\n\n"
                  "[default]\r\naws_access_key_id = AK\r\naws_secret_access_key = S/K+=\r\n"
                  "[half]\naws_access_key_id = H\n");
  ASSERT_OK_AND_ASSIGN(const S3Credentials found, S3CredentialsFromFile(directory / "file"));
  EXPECT_EQ(found.access_key, "AK");
  EXPECT_EQ(found.secret_key.Reveal(), "S/K+=");
  EXPECT_TRUE(found.session_token.empty());
  EXPECT_TRUE(absl::IsNotFound(S3CredentialsFromFile(directory / "file", "none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(S3CredentialsFromFile(directory / "file", "half").status()));
  EXPECT_TRUE(absl::IsNotFound(S3CredentialsFromFile(directory / "none").status()));
}

TEST(S3Place, FromFilesOfCosi) {
  const test::TempDir directory;
  directory.Write("COSI_PROTOCOL", "S3");
  directory.Write("COSI_S3_BUCKET_ID", "bc-1");
  directory.Write("COSI_S3_ENDPOINT", "https://s3.example.com\n");
  directory.Write("COSI_S3_REGION", "eu-1");
  directory.Write("COSI_S3_ADDRESSING_STYLE", "virtual");
  directory.Write("COSI_S3_ACCESS_KEY_ID", "AK");
  EXPECT_TRUE(absl::IsInvalidArgument(S3PlaceFromCosi(directory.path()).status()));
  directory.Write("COSI_S3_ACCESS_SECRET_KEY", "SK");
  ASSERT_OK_AND_ASSIGN(const S3Place place, S3PlaceFromCosi(directory.path()));
  EXPECT_EQ(place.bucket, "bc-1");
  EXPECT_EQ(place.endpoint, "https://s3.example.com");
  EXPECT_EQ(place.region, "eu-1");
  EXPECT_EQ(place.addressing, Addressing::kVirtual);
  EXPECT_EQ(place.credentials.access_key, "AK");
  EXPECT_EQ(place.credentials.secret_key.Reveal(), "SK");
}

TEST(S3Place, FromTheJsonOfCosi) {
  if (!CBT_TEST_READS_JSON) GTEST_SKIP() << "built without RapidJSON";
  const test::TempDir directory;
  directory.Write("mount/BucketInfo", R"({"metadata": {"name": "bc-1"}, "spec": {
    "bucketName": "b1", "authenticationType": "KEY", "protocols": ["s3"], "secretS3": {
    "endpoint": "https://s3.example.com", "region": "", "accessKeyID": "AK",
    "accessSecretKey": "SK"}, "secretAzure": null}})");
  for (const std::string& path : {directory / "mount", directory / "mount/BucketInfo"}) {
    ASSERT_OK_AND_ASSIGN(const S3Place place, S3PlaceFromCosi(path));
    EXPECT_EQ(place.bucket, "b1");
    EXPECT_EQ(place.endpoint, "https://s3.example.com");
    EXPECT_EQ(place.region, "us-east-1");
    EXPECT_EQ(place.credentials.secret_key.Reveal(), "SK");
  }
  for (const std::string json :
       {"", "[]", "{", "{\"spec\": 1}", R"({"spec": {"bucketName": "b"}})",
        R"({"spec": {"bucketName": "b", "secretS3": {"endpoint": "https://h"}}})"}) {
    directory.Write("bad", json);
    EXPECT_TRUE(absl::IsInvalidArgument(S3PlaceFromCosi(directory / "bad").status())) << json;
  }
}

}  // namespace credentials_test
}  // namespace cbt::bucket
