// The options that `allocated`, `delta` and `list` share.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_EXTENT_OPTIONS_H_
#define CBT_PROGRAMS_CBT_OPTIONS_EXTENT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/output/extent_writer.h"

namespace cbt::cli {

inline constexpr uint64_t kDefaultBlockSize = 4096;

// The given options. Others have no value, because `list` leaves them to the server.
struct ExtentOptions {
  std::optional<uint64_t> block_size;     // bytes
  std::optional<BlockMetadataType> type;  // --style
  uint64_t starting_offset = 0;           // bytes
  int32_t max_results = 0;
  std::optional<Format> format;
};

// Adds the options to a subcommand; `options` must outlive the parsing.
void AddExtentOptions(CLI::App& subcommand, ExtentOptions& options);

// `--style` alone, for subcommands that print no stream.
void AddStyleOption(CLI::App& subcommand, std::optional<BlockMetadataType>& type);

// How a complete answer ends in each format, for the footer of a subcommand's help.
inline constexpr const char* kMarkerHelp =
    "A complete answer ends with {\"complete\":true,...} (ndjson), \"complete\":true} (json) or a "
    "row\n"
    "complete,N (csv); one without was cut or failed, and `cbtctl` does not read it back.\n";

// Replaces the default that the help of an option shows.
void ShowOtherDefault(CLI::App& subcommand, const std::string& option, const std::string& what);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_EXTENT_OPTIONS_H_
