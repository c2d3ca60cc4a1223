// Names of drivers, buckets and accounts.
#ifndef CBT_PROGRAMS_COSI_DRIVER_NAMES_H_
#define CBT_PROGRAMS_COSI_DRIVER_NAMES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::cosi {

// 1 to 63 letters, digits, '-' and '.', with a letter or digit at both ends.
// Errors of all: INVALID_ARGUMENT.
absl::Status CheckCosiDriverName(std::string_view name);

// What S3 takes as the name of a bucket: 3 to 63 lower-case letters, digits, '-' and '.', with a
// letter or digit at both ends, and no two dots together.
absl::Status CheckBucketName(std::string_view name);

// 1 to 253 letters, digits, '-', '.' and '_', a letter or digit first: what a policy can name.
absl::Status CheckAccountName(std::string_view name);

// "cosi-" and 32 random digits.
std::string NewAccountName();

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_NAMES_H_
