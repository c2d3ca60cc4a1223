// `--block-size`, of commands of several programs.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_BLOCK_SIZE_H_
#define CBT_PROGRAMS_CBT_OPTIONS_BLOCK_SIZE_H_

#include <cstdint>
#include <optional>

#include "CLI/CLI.hpp"

namespace cbt::cli {

// `block_size` must outlive the parsing.
void AddBlockSizeOption(CLI::App& subcommand, std::optional<uint64_t>& block_size);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_BLOCK_SIZE_H_
