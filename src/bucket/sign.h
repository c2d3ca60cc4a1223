// AWS Signature Version 4 in headers, as S3 wants it: paths are not normalised and encoded once.
#ifndef CBT_BUCKET_SIGN_H_
#define CBT_BUCKET_SIGN_H_

#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cbt/secrets.h"

namespace cbt::bucket {

using NameAndValue = std::pair<std::string, std::string>;

struct SignedRequest {
  std::string method = {};
  std::string path = "/";                  // not encoded
  std::vector<NameAndValue> query = {};    // not encoded, in any order
  std::vector<NameAndValue> headers = {};  // all that are signed; `host` and `x-amz-date` must be
  std::string payload_sha256 = {};         // in hexadecimal
};

struct SigningScope {
  std::string region = {};
  std::string service = "s3";
  std::time_t time = 0;
};

// Everything but unreserved characters as %XX; slashes as they are if `keep_slash`.
std::string UriEncode(std::string_view text, bool keep_slash);

// "name=value&...", encoded and sorted, as it is signed and must be sent.
std::string CanonicalQuery(const std::vector<NameAndValue>& query);

// "20150830T123600Z".
std::string AmzDate(std::time_t time);

std::string Sha256Hex(std::span<const uint8_t> bytes);
std::string Sha256Hex(std::string_view text);

// For tests, which compare them with the published ones.
std::string CanonicalRequest(const SignedRequest& request);
std::string Signature(const SignedRequest& request, const SigningScope& scope,
                      const Secret& secret_key);

// The value of the header Authorization.
std::string Authorization(const SignedRequest& request, const SigningScope& scope,
                          std::string_view access_key, const Secret& secret_key);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_SIGN_H_
