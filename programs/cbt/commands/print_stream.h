// Prints a cursor to stdout.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_PRINT_STREAM_H_
#define CBT_PROGRAMS_CBT_COMMANDS_PRINT_STREAM_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/output/extent_writer.h"

namespace cbt::cli {

struct PrintOptions {
  ExtentOptions stream{};
  BlockMetadataType type = BlockMetadataType::kVariableLength;  // of the cursor's extents
  uint64_t ending_offset = ~uint64_t{0};                        // bytes; where the request ends
  bool capacity_known = true;              // false: the cursor's is not that of the volume
  AnswerSource source{};                   // for the head
  std::string label;                       // for the progress bar
  std::string_view adjective = "changed";  // describes the reported bytes
};

// Runs `cursor`, already at the starting offset, to its end and prints its extents; closes stdout.
// Prints nothing if the first step fails; output that is cut off by a later failure can't be
// mistaken for a complete answer.
// Errors: those of the cursor; UNAVAILABLE when stdout can't be written, ReaderGone().
absl::Status PrintStream(ExtentCursor& cursor, const PrintOptions& options);

// Seeks to the starting offset of the options.
// Errors: OUT_OF_RANGE if it is past the capacity; those of the cursor.
absl::Status SeekToStart(ExtentCursor& cursor, const ExtentOptions& options);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_PRINT_STREAM_H_
