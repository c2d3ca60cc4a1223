// What the services of controllers and of groups have in common: checks of requests, and messages of
// what the store knows.
#ifndef CBT_PROGRAMS_DRIVER_MESSAGES_H_
#define CBT_PROGRAMS_DRIVER_MESSAGES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "csi.pb.h"
#include "programs/driver/state/catalog.h"
#include "programs/driver/usage.h"

namespace cbt::driver {

// Parameters of Kubernetes, which are for its own components, begin so.
inline constexpr std::string_view kKubernetesPrefix = "csi.storage.k8s.io/";

// INVALID_ARGUMENT without a value of the field.
inline absl::Status Require(const std::string& value, const char* field) {
  return value.empty() ? absl::InvalidArgumentError(absl::StrCat(field, ": is missing"))
                       : absl::OkStatus();
}

// INVALID_ARGUMENT if there are any but those of Kubernetes.
template <typename Map>
absl::Status RequireNoParameters(const Map& parameters) {
  for (const auto& [key, value] : parameters) {
    if (!key.starts_with(kKubernetesPrefix)) {
      return absl::InvalidArgumentError("parameters: snapshots have none");
    }
  }
  return absl::OkStatus();
}

// Requires: the snapshot has a cut.
void FillIn(csi::v1::Snapshot& message, const Snapshot& snapshot, const NodeTopology& topology);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_MESSAGES_H_
