// Points in time as Kubernetes writes them. Part of cbt::kube.
#ifndef CBT_KUBE_TIME_H_
#define CBT_KUBE_TIME_H_

#include <chrono>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/version.h"

namespace cbt::kube {

// UTC. Fractions finer than a microsecond are cut off.
using Time = std::chrono::sys_time<std::chrono::microseconds>;

// Reads RFC 3339: "2024-05-01T10:00:00Z", with or without a fraction, with Z or an offset.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Time> ParseTime(std::string_view text);

// As Time fields are written: whole seconds, "2024-05-01T10:00:00Z". `time`: years 1 to 9999.
std::string FormatTime(Time time);

// As MicroTime fields are written: always six digits, "2024-05-01T10:00:00.000000Z".
std::string FormatMicroTime(Time time);

}  // namespace cbt::kube

#endif  // CBT_KUBE_TIME_H_
