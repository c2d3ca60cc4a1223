// Buckets and accounts that an administrator made by hand, from a file: for stores without an
// admin API. The file has a form like this, and is read again when it changes:
//
//   {"endpoint": "https://s3.example.com", "region": "us-east-1", "addressing": "path",
//    "buckets": ["photos"],
//    "accounts": [{"name": "web", "accessKeyID": "...", "accessSecretKey": "...",
//                  "access": [{"bucket": "photos", "mode": "ReadOnly"}]}]}
//
// Instead of a mode, access can have a policy's text.
#ifndef CBT_PROGRAMS_COSI_DRIVER_STATIC_STORE_H_
#define CBT_PROGRAMS_COSI_DRIVER_STATIC_STORE_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/cosi/driver/bucket_store.h"

namespace cbt::cosi {

struct StaticAccount {
  S3Keys keys = {};
  std::map<std::string, AccessRules> access = {};  // by bucket
};

struct StaticStoreFile {
  S3Info info = {};
  std::set<std::string> buckets = {};
  std::map<std::string, StaticAccount> accounts = {};
};

// Errors: INVALID_ARGUMENT with the path of what is wrong, and no value.
absl::StatusOr<StaticStoreFile> ParseStaticStore(std::string_view json);

// Create finds a bucket of this name. Grant finds an account of the name with just this access.
// Delete and Revoke fail until the administrator has removed it from the file: nothing else could
// take it away. Errors: those of the file.
absl::StatusOr<std::unique_ptr<BucketStore>> OpenStaticStore(const std::string& path);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_STATIC_STORE_H_
