#include "programs/cbt/commands/print_stream.h"

#include <unistd.h>

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "programs/cbt/output/extent_writer.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {
namespace {

Format DefaultFormat() { return isatty(STDOUT_FILENO) == 1 ? Format::kTable : Format::kNdjson; }

}  // namespace

absl::Status SeekToStart(ExtentCursor& cursor, const ExtentOptions& options) {
  const uint64_t offset = options.starting_offset;
  if (offset == 0) return absl::OkStatus();
  if (offset > cursor.capacity()) {
    return absl::OutOfRangeError("--starting-offset: " + std::to_string(offset) +
                                 " is past the capacity of " + std::to_string(cursor.capacity()) +
                                 " bytes");
  }
  return cursor.Seek(offset);
}

absl::Status PrintStream(ExtentCursor& cursor, const PrintOptions& options) {
  ExtentBatch batch;
  absl::StatusOr<Step> step = cursor.Next(batch);
  if (!step.ok()) return step.status();

  Output output(STDOUT_FILENO, "stdout");
  Progress progress(options.label, cursor.capacity(), options.stream.starting_offset);
  output.set_before_write([&progress] { progress.Clear(); });
  const std::unique_ptr<ExtentWriter> writer = MakeExtentWriter(
      output, {.format = options.stream.format.value_or(DefaultFormat()),
               .type = options.type,
               .capacity = options.capacity_known ? std::optional(cursor.capacity()) : std::nullopt,
               .source = options.source,
               .starting_offset = options.stream.starting_offset,
               .ending_offset = options.ending_offset,
               .tuples_per_object = static_cast<uint32_t>(options.stream.max_results),
               .adjective = options.adjective,
               .glyphs = LocaleGlyphs()});
  writer->Begin();
  for (;;) {
    writer->Write(batch);
    output.FlushIfDue();
    if (!output.status().ok()) return output.status();
    if (*step == Step::kComplete) break;
    progress.Update(cursor.covered());
    step = cursor.Next(batch);
    if (!step.ok()) {
      writer->Fail(step.status());
      progress.Clear();
      // The stream's error is more useful than a later one of stdout.
      output.Close().IgnoreError();
      return step.status();
    }
  }
  writer->End();
  progress.Clear();
  return output.Close();
}

}  // namespace cbt::cli
