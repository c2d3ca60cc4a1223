// What an account may do with a bucket: statements of an S3 policy, without account and bucket.
#ifndef CBT_PROGRAMS_COSI_DRIVER_ACCESS_RULES_H_
#define CBT_PROGRAMS_COSI_DRIVER_ACCESS_RULES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

struct AccessRule {
  bool allow = true;
  std::vector<std::string> actions = {};  // "s3:GetObject"
  // Behind the bucket's name: "" the bucket itself, "/*" every object, "/logs/*".
  std::vector<std::string> resources = {};
  std::optional<kube::Object> condition = {};

  friend bool operator==(const AccessRule&, const AccessRule&) = default;
};
using AccessRules = std::vector<AccessRule>;

// Whether it is about reading objects.
bool MayRead(const AccessRule& rule);

// Errors: INVALID_ARGUMENT for an unknown mode.
absl::StatusOr<AccessRules> RulesOfMode(AccessMode mode);

// A policy of the proposal: a statement, {"Statement": [...]}, a list of statements, or an object
// whose values are texts of these. The bucket that a resource names is replaced, the part behind it
// is kept. A text never means more than it says: what can't be kept is refused.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<AccessRules> RulesOfText(std::string_view text);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_ACCESS_RULES_H_
