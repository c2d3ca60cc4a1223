// absl::string_view is a separate class in some builds of abseil and std::string_view in others.
// Our interfaces use the standard one, absl::StrCat takes abseil's.
#ifndef CBT_BASE_ABSL_VIEW_H_
#define CBT_BASE_ABSL_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace cbt {

inline absl::string_view AbslView(std::string_view text) noexcept {
  return absl::string_view(text.data(), text.size());
}

}  // namespace cbt

#endif  // CBT_BASE_ABSL_VIEW_H_
