// Signatures against those that AWS has published.
#include "bucket/sign.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace cbt::bucket {
namespace sign_test {

constexpr std::time_t kSuiteTime = 1440938160;  // 20150830T123600Z

struct Vector {
  std::string name;
  SignedRequest request;
  std::string body;
  std::string signature;
};

std::vector<Vector> Vectors() {
  std::ifstream file(CBT_TEST_FOLDER "/sigv4_vectors.txt");
  std::vector<Vector> vectors;
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (line.empty() || line.front() == '#' || space == std::string::npos) continue;
    const std::string word = line.substr(0, space);
    const std::string rest = line.substr(space + 1);
    if (word == "case") {
      vectors.push_back({.name = rest, .request = {}, .body = {}, .signature = {}});
      continue;
    }
    Vector& vector = vectors.back();
    if (word == "method") vector.request.method = rest;
    if (word == "path") vector.request.path = rest;
    if (word == "header") {
      const size_t colon = rest.find(':');
      vector.request.headers.emplace_back(rest.substr(0, colon), rest.substr(colon + 1));
    }
    if (word == "query") {
      for (size_t begin = 0; begin < rest.size();) {
        const size_t end = std::min(rest.find('&', begin), rest.size());
        const std::string part = rest.substr(begin, end - begin);
        const size_t equals = part.find('=');
        vector.request.query.emplace_back(part.substr(0, equals), part.substr(equals + 1));
        begin = end + 1;
      }
    }
    if (word == "body") vector.body = rest;
    if (word == "sha256") vector.request.payload_sha256 = rest;
    if (word == "signature") vector.signature = rest;
  }
  return vectors;
}

TEST(Sign, AgreesWithThePublishedVectors) {
  const std::vector<Vector> vectors = Vectors();
  ASSERT_GE(vectors.size(), 30u);
  const Secret key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
  for (const Vector& vector : vectors) {
    EXPECT_EQ(Sha256Hex(vector.body), vector.request.payload_sha256) << vector.name;
    EXPECT_EQ(Signature(vector.request,
                        {.region = "us-east-1", .service = "service", .time = kSuiteTime}, key),
              vector.signature)
        << vector.name << "\n"
        << CanonicalRequest(vector.request);
  }
}

// The four examples of the documentation of S3 itself.
TEST(Sign, AgreesWithTheExamplesOfS3) {
  const Secret key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
  const SigningScope scope = {.region = "us-east-1", .time = 1369353600};  // 20130524T000000Z
  const std::string empty = Sha256Hex(std::string_view());
  const std::string host = "examplebucket.s3.amazonaws.com";
  EXPECT_EQ(Signature({.method = "GET",
                       .path = "/test.txt",
                       .headers = {{"host", host},
                                   {"range", "bytes=0-9"},
                                   {"x-amz-content-sha256", empty},
                                   {"x-amz-date", "20130524T000000Z"}},
                       .payload_sha256 = empty},
                      scope, key),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  const std::string body = Sha256Hex(std::string_view("Welcome to Amazon S3."));
  EXPECT_EQ(Signature({.method = "PUT",
                       .path = "/test$file.text",
                       .headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                   {"host", host},
                                   {"x-amz-content-sha256", body},
                                   {"x-amz-date", "20130524T000000Z"},
                                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                       .payload_sha256 = body},
                      scope, key),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  const auto signature = [&](std::vector<NameAndValue> query) {
    return Signature({.method = "GET",
                      .query = std::move(query),
                      .headers = {{"host", host},
                                  {"x-amz-content-sha256", empty},
                                  {"x-amz-date", "20130524T000000Z"}},
                      .payload_sha256 = empty},
                     scope, key);
  };
  EXPECT_EQ(signature({{"lifecycle", ""}}),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(signature({{"prefix", "J"}, {"max-keys", "2"}}),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(Sign, EncodesAsS3Does) {
  EXPECT_EQ(UriEncode("a b+c/d~\xE1\x88\xB4", true), "a%20b%2Bc/d~%E1%88%B4");
  EXPECT_EQ(UriEncode("a/b=c", false), "a%2Fb%3Dc");
  EXPECT_EQ(CanonicalQuery({{"b", ""}, {"a-b", "1"}, {"a", "2"}, {"a", "1"}}), "a=1&a=2&a-b=1&b=");
}

}  // namespace sign_test
}  // namespace cbt::bucket
