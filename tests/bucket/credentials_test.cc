#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
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

// As Kubernetes replaces what it mounts: by a link to a new directory.
TEST(S3Place, ReadsAReplacedMountAgain) {
  const test::TempDir directory;
  std::filesystem::create_directory(directory / "mount");
  const auto publish = [&](const std::string& version, const std::string& access,
                           const std::string& secret) {
    const std::string data = "mount/.." + version;
    directory.Write(data + "/COSI_S3_BUCKET_ID", "b1");
    directory.Write(data + "/COSI_S3_ENDPOINT", "https://s3.example.com");
    directory.Write(data + "/COSI_S3_ACCESS_KEY_ID", access);
    directory.Write(data + "/COSI_S3_ACCESS_SECRET_KEY", secret);
    std::filesystem::create_symlink(".." + version, directory / "mount/..new");
    std::filesystem::rename(directory / "mount/..new", directory / "mount/..data");
  };
  publish("1", "AK1", "SK1");
  for (const char* name : {"COSI_S3_BUCKET_ID", "COSI_S3_ENDPOINT", "COSI_S3_ACCESS_KEY_ID",
                           "COSI_S3_ACCESS_SECRET_KEY"}) {
    std::filesystem::create_symlink(std::string("..data/") + name,
                                    directory / ("mount/" + std::string(name)));
  }
  ASSERT_OK_AND_ASSIGN(const S3Place place, S3PlaceFromCosi(directory / "mount"));
  ASSERT_NE(place.watched, nullptr);
  const auto first = place.watched->Get();
  ASSERT_OK(first.trouble);
  EXPECT_EQ(first.credentials->access_key, "AK1");
  EXPECT_EQ(place.watched->Get().credentials, first.credentials);  // nothing was read
  publish("2", "AK2", "SK2");
  const auto second = place.watched->Get();
  ASSERT_OK(second.trouble);
  EXPECT_EQ(second.credentials->access_key, "AK2");
  EXPECT_EQ(second.credentials->secret_key.Reveal(), "SK2");
  // What can't be read leaves what was there, and is tried again.
  publish("3", "", "");
  EXPECT_FALSE(place.watched->Get().trouble.ok());
  EXPECT_EQ(place.watched->Get().credentials, second.credentials);
  publish("4", "AK4", "SK4");
  EXPECT_EQ(place.watched->Get().credentials->access_key, "AK4");
}

}  // namespace credentials_test
}  // namespace cbt::bucket
