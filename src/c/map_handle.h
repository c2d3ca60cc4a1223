// The handle of maps.
#ifndef CBT_C_MAP_HANDLE_H_
#define CBT_C_MAP_HANDLE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c/border.h"
#include "cbt/c/map.h"
#include "cbt/change_map.h"

struct cbt_map : cbt::c::Handle {
  explicit cbt_map(cbt::ChangeMap made) : Handle(&kKind<cbt_map>), map(std::move(made)) {}
  cbt::ChangeMap map;
};

namespace cbt::c {

// Gives `made` to the caller.
absl::Status Return(absl::StatusOr<ChangeMap> made, cbt_map** map);

}  // namespace cbt::c

#endif  // CBT_C_MAP_HANDLE_H_
