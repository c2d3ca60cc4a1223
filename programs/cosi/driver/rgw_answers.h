// What a Ceph object gateway answers: accounts as JSON, tags as XML, errors as either.
#ifndef CBT_PROGRAMS_COSI_DRIVER_RGW_ANSWERS_H_
#define CBT_PROGRAMS_COSI_DRIVER_RGW_ANSWERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

struct RgwAccount {
  std::string id = {};
  std::string display_name = {};
  bool privileged = false;  // it has capabilities, or is the system's
  bool suspended = false;
  std::vector<S3Keys> keys = {};
};

// Errors: UNAVAILABLE for anything else than an account; no text from there.
absl::StatusOr<RgwAccount> ParseRgwAccount(std::string_view json);

// The code of an error of the admin API or of S3: "NoSuchUser"; empty if it says none. Letters
// only: no key looks like that.
std::string ParseRgwErrorCode(std::string_view body);

// The tags of a bucket. Errors: UNAVAILABLE for anything else.
absl::StatusOr<Parameters> ParseTagging(std::string_view xml);
std::string WriteTagging(const Parameters& tags);

// Whether a list of objects or of versions has an entry. Errors: UNAVAILABLE for anything else.
absl::StatusOr<bool> ParseHasEntries(std::string_view xml);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_RGW_ANSWERS_H_
