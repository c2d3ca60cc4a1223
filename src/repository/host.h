// Who writes to a repository, and when, as its files say it.
#ifndef CBT_REPOSITORY_HOST_H_
#define CBT_REPOSITORY_HOST_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace cbt::repository {

// This machine's name; "localhost" if it has none.
std::string HostName();

// The user's name, or else number.
std::string UserName();

// Of RFC 3339 with nanoseconds, in UTC.
std::string TimeText(absl::Time time);

// Empty for anything but RFC 3339.
std::optional<absl::Time> ParseTimeText(std::string_view text);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_HOST_H_
