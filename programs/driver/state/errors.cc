#include "programs/driver/state/errors.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "programs/driver/state/store.h"

namespace cbt::driver {
namespace {

// As people write a time, in UTC.
std::string TimeText(int64_t nanoseconds) {
  constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
  const time_t seconds = nanoseconds / kNanosecondsPerSecond;
  tm parts = {};
  std::array<char, 32> text = {};
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      ::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return absl::StrCat(seconds);
  }
  return text.data();
}

}  // namespace

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return absl::InvalidArgumentError("name: is missing");
  if (name.size() > Store::kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: has ", name.size(), " bytes, at most ", Store::kMaxNameBytes));
  }
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  if (has_control) return absl::InvalidArgumentError("name: has control characters");
  return absl::OkStatus();
}

absl::Status OkIfNotFound(const absl::Status& absent) {
  return absl::IsNotFound(absent) ? absl::OkStatus() : absent;
}

absl::Status OnlyRead() {
  return absl::FailedPreconditionError(
      "the volume is a snapshot that is only read: make a volume from the snapshot instead");
}

absl::Status Lost(const Snapshot& snapshot) {
  const int64_t created_ns = snapshot.record.cut->created_ns;
  return absl::DataLossError(absl::StrCat(
      "snapshot ", snapshot.id, created_ns == 0 ? "" : ", taken at " + TimeText(created_ns) + ",",
      " is lost: its data could not be completed, or was removed; delete it and take a new one"));
}

}  // namespace cbt::driver
