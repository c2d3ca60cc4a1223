#include "repository/host.h"

#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>

#include "base/text.h"

namespace cbt::repository {

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string UserName() {
  std::array<char, 4096> memory{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found) == 0 &&
      found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(::getuid());
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", time, absl::UTCTimeZone());
}

std::optional<absl::Time> ParseTimeText(std::string_view text) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, AbslView(text), &time, nullptr)) return std::nullopt;
  return time;
}

}  // namespace cbt::repository
