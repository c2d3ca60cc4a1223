#include "programs/volume/snapshot_info.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::volume {

absl::Status CheckSnapshotId(std::string_view id) {
  if (id.empty() || id.size() > kMaxSnapshotIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a snapshot's id has 1 to ", kMaxSnapshotIdBytes, " bytes, not ", id.size()));
  }
  const auto is_plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  if (!absl::ascii_isalnum(static_cast<unsigned char>(id.front())) ||
      !std::all_of(id.begin(), id.end(), is_plain)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "snapshot id \"", absl::CHexEscape(AbslView(id)),
        "\": only letters, digits, '-', '_' and '.' are allowed, the first a letter or a digit"));
  }
  return absl::OkStatus();
}

}  // namespace cbt::volume
