// What COSI's sidecars ask of drivers and what these answer, whatever the revision.
#ifndef CBT_PROGRAMS_COSI_CONTRACT_MESSAGES_H_
#define CBT_PROGRAMS_COSI_CONTRACT_MESSAGES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cbt/secrets.h"

namespace cbt::cosi {

using Parameters = std::map<std::string, std::string>;

// The numbers are those of the messages; others may come.
enum class Protocol { kUnknown = 0, kS3 = 1, kAzure = 2, kGcs = 3 };
enum class Authentication { kUnknown = 0, kKey = 1, kServiceAccount = 2 };
enum class AccessMode { kUnknown = 0, kReadWrite = 1, kReadOnly = 2, kWriteOnly = 3 };
enum class Addressing { kUnknown = 0, kPath = 1, kVirtual = 2 };

struct DriverInfo {
  std::string name = {};
  std::vector<Protocol> protocols = {};  // v1alpha2
};

struct CreateRequest {
  std::string name = {};
  std::vector<Protocol> protocols = {};  // the proposal: one; v0.2: none
  std::string region = {};               // the proposal
  Parameters parameters = {};
};

struct FindRequest {
  std::string bucket_id = {};
  std::vector<Protocol> protocols = {};
  Parameters parameters = {};
};

struct DeleteRequest {
  std::string bucket_id = {};
  Parameters parameters = {};  // not the proposal
};

struct S3Info {
  std::string endpoint = {};
  std::string region = {};
  Addressing addressing = Addressing::kUnknown;
};

// The answer to Create and Find, and a part of that to Grant.
struct BucketAnswer {
  std::string bucket_id = {};
  std::optional<S3Info> s3 = {};  // not the proposal; v0.2: the region alone
};

struct AccessedBucket {
  std::string bucket_id = {};
  AccessMode mode = AccessMode::kUnknown;  // v1alpha2
};

struct GrantRequest {
  std::string account = {};
  std::vector<AccessedBucket> buckets = {};  // v1alpha2: any number; else one
  std::optional<std::string> policy = {};    // the proposal
  Protocol protocol = Protocol::kUnknown;    // v1alpha2
  Authentication authentication = Authentication::kUnknown;
  std::string service_account = {};  // v1alpha2
  Parameters parameters = {};
};

struct S3Keys {
  std::string access_key = {};
  Secret secret_key = {};
};

// Holds a secret: it moves and is not copied.
struct GrantAnswer {
  std::string account_id = {};
  std::vector<BucketAnswer> buckets = {};
  std::optional<S3Keys> keys = {};
};

struct RevokeRequest {
  std::string account_id = {};
  std::vector<std::string> bucket_ids = {};  // v1alpha2: any number; else one
  Parameters parameters = {};
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONTRACT_MESSAGES_H_
