// Where a repository lies, and with which password, as restic's users say it.
#ifndef CBT_PROGRAMS_BACKUP_PLACE_H_
#define CBT_PROGRAMS_BACKUP_PLACE_H_

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "bucket/bucket.h"
#include "cbt/secrets.h"

namespace cbt::backup {

struct PlaceOptions {
  // A directory, also as local:DIRECTORY; s3:HOST/BUCKET[/PREFIX], also with https:// or http:// in
  // front of the host; cosi:PATH[#PREFIX], a bucket as COSI mounts it.
  std::string repository = {};
  std::string ca_file = {};   // PEM, for S3; empty: the system's
  bool virtual_host = false;  // https://BUCKET.HOST instead of https://HOST/BUCKET
  size_t connections = 8;     // the most at a time
  bool create = false;        // makes the directory, if its parent is there
  std::stop_token stop = {};
};

struct Place {
  std::unique_ptr<bucket::Bucket> bucket;
  std::string prefix;  // of keys: empty, or with a slash at its end
};

// Credentials of S3 and its region come from the variables and files of AWS's tools.
// Errors: INVALID_ARGUMENT that says which forms there are; those of the bucket.
absl::StatusOr<Place> OpenPlace(const PlaceOptions& options);

// The password: the first line of `file`, or what `command` prints, or RESTIC_PASSWORD,
// RESTIC_PASSWORD_FILE or RESTIC_PASSWORD_COMMAND of the environment. Spaces around it don't count,
// except in RESTIC_PASSWORD.
// Errors: INVALID_ARGUMENT without one, or if it is empty; those of the file and the command, which
//         never quote what these hold.
absl::StatusOr<Secret> ReadPassword(const std::string& file, const std::string& command);

}  // namespace cbt::backup

#endif  // CBT_PROGRAMS_BACKUP_PLACE_H_
