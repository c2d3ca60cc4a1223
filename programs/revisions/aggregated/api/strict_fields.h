// Reading JSON that people and other programs write: every field must be known.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_API_STRICT_FIELDS_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_API_STRICT_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube::aggregated {

// INVALID_ARGUMENT: "field: why".
absl::Status WrongField(std::string_view field, std::string_view why);

// Errors: INVALID_ARGUMENT, naming the field of the object at `path` that is not one of `known`.
absl::Status CheckFields(const Object& object, const Path& path,
                         std::initializer_list<std::string_view> known);

// A number that may be absent, and is then 0. Errors: INVALID_ARGUMENT for another type, a negative
// number and one past 2^63 - 1, which no block of any volume has.
absl::StatusOr<uint64_t> Unsigned(const Object& object, const Path& path);

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_API_STRICT_FIELDS_H_
