// What is known about a terminal.
#ifndef CBT_CLI_SUPPORT_TERMINAL_H_
#define CBT_CLI_SUPPORT_TERMINAL_H_

#include <cstddef>
#include <optional>

namespace cbt::cli {

// The columns of the terminal at `descriptor`; empty if it is not one, or its size is unknown.
std::optional<size_t> TerminalColumns(int descriptor) noexcept;

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_TERMINAL_H_
