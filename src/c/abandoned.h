// What a forked child inherits and must not end: its threads and connections are the parent's.
#ifndef CBT_C_ABANDONED_H_
#define CBT_C_ABANDONED_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::c {

// Keeps `what` for good, as memory that is still referred to.
void Abandon(std::shared_ptr<const void> what) noexcept;

absl::Status IsParents(std::string_view name);

}  // namespace cbt::c

#endif  // CBT_C_ABANDONED_H_
