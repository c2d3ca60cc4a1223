#include "cli/support/terminal.h"

#include <sys/ioctl.h>

namespace cbt::cli {

std::optional<size_t> TerminalColumns(int descriptor) noexcept {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace cbt::cli
