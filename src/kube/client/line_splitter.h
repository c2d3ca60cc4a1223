// Lines out of pieces of a text.
#ifndef CBT_KUBE_CLIENT_LINE_SPLITTER_H_
#define CBT_KUBE_CLIENT_LINE_SPLITTER_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kube/object/wiped_buffer.h"

namespace cbt::kube {

// Not thread safe.
class LineSplitter {
 public:
  explicit LineSplitter(size_t max_line) : max_line_(max_line) {}

  // Calls `use(line)` for each line that `piece` completes, without its newline; empty lines are
  // left out. An error of `use` is returned, and what follows is dropped. RESOURCE_EXHAUSTED for a
  // line longer than the limit.
  template <typename Use>
  absl::Status Add(std::string_view piece, Use&& use) {
    while (!piece.empty()) {
      const size_t newline = piece.find('\n');
      const std::string_view part = piece.substr(0, newline);
      if (part.size() > max_line_ || begun_.size() > max_line_ - part.size()) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a line of the stream is longer than ", max_line_, " bytes"));
      }
      if (newline == std::string_view::npos) {
        begun_.Append(part);
        return absl::OkStatus();
      }
      std::string_view line = part;
      if (begun_.size() != 0) {
        begun_.Append(part);
        line = begun_.view();
      }
      if (!line.empty()) {
        if (absl::Status status = use(line); !status.ok()) return status;
      }
      begun_.Clear();
      piece.remove_prefix(newline + 1);
    }
    return absl::OkStatus();
  }

  // A line has begun and not ended.
  bool in_line() const noexcept { return begun_.size() != 0; }

 private:
  const size_t max_line_;
  WipedBuffer begun_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_LINE_SPLITTER_H_
