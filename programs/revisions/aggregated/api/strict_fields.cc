#include "programs/revisions/aggregated/api/strict_fields.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube::aggregated {

absl::Status WrongField(std::string_view field, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(AbslView(field), ": ", AbslView(why)));
}

absl::Status CheckFields(const Object& object, const Path& path,
                         std::initializer_list<std::string_view> known) {
  const absl::StatusOr<std::vector<std::string>> names = object.FieldNames(path);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string place = path.keys().empty() ? "" : path.ToString() + ": ";
    return absl::InvalidArgumentError(
        absl::StrCat(place, "unknown field ", JsonString(name.substr(0, 64))));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Unsigned(const Object& object, const Path& path) {
  const absl::StatusOr<std::optional<int64_t>> number = object.OptionalInt(path);
  if (!number.ok()) return number.status();
  if (number->value_or(0) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(path.ToString(), ": expected 0 or more"));
  }
  return static_cast<uint64_t>(number->value_or(0));
}

}  // namespace cbt::kube::aggregated
