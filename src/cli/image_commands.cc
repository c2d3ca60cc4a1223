// `cbt delta` and `cbt allocated`: what image files say.

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "cbt/image.h"
#include "cbt/transform.h"
#include "cli/command.h"
#include "cli/map_output.h"
#include "cli/print_stream.h"
#include "cli/status.h"
#include "cli/stream_options.h"
#include "cli/threads.h"

namespace cbt::cli {
namespace {

struct ImageArguments {
  std::string base;
  std::string target;
  bool skip_zeros = false;
  StreamOptions stream;
  MapOutput output;
};

// Prints what `cursor` gives at the place and in the style that was asked for, or writes it as a
// map.
absl::Status Print(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor,
                   const ImageArguments& arguments, PrintOptions print) {
  if (!cursor.ok()) return cursor.status();
  if (arguments.output.wanted()) {
    return WriteMap(**cursor, (*cursor)->granularity(),
                    arguments.output.names.Over(IdentityOfImages(arguments.base, arguments.target)),
                    arguments.output.path, print.label);
  }
  print.stream = arguments.stream;
  print.type = arguments.stream.type.value_or(BlockMetadataType::kVariableLength);
  if (print.type == BlockMetadataType::kFixedLength) {
    cursor = ToBlocks(*std::move(cursor), arguments.stream.block_size.value_or(kDefaultBlockSize));
    if (!cursor.ok()) return cursor.status();
  }
  if (absl::Status sought = SeekToStart(**cursor, print.stream); !sought.ok()) return sought;
  return PrintStream(**cursor, print);
}

ImageOptions OptionsOf(const ImageArguments& arguments, Executor& executor) {
  return {.block_size = arguments.stream.block_size.value_or(kDefaultBlockSize),
          .executor = &executor,
          .skip_zeros = arguments.skip_zeros};
}

absl::Status Delta(const ImageArguments& arguments) {
  absl::StatusOr<std::shared_ptr<const Image>> base = Image::Open(arguments.base);
  if (!base.ok()) return base.status();
  absl::StatusOr<std::shared_ptr<const Image>> target = Image::Open(arguments.target);
  if (!target.ok()) return target.status();
  ThreadPool pool(WorkerThreads());
  return Print(
      MakeImageDeltaCursor(*std::move(base), *std::move(target), OptionsOf(arguments, pool)),
      arguments, {.label = "comparing", .adjective = "changed"});
}

absl::Status Allocated(const ImageArguments& arguments) {
  absl::StatusOr<std::shared_ptr<const Image>> image = Image::Open(arguments.target);
  if (!image.ok()) return image.status();
  ThreadPool pool(WorkerThreads());
  return Print(MakeImageAllocationCursor(*std::move(image), OptionsOf(arguments, pool)), arguments,
               {.label = "looking", .adjective = "allocated"});
}

}  // namespace

void AddDelta(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("delta", "Changed ranges between two snapshot images");
  const auto arguments = std::make_shared<ImageArguments>();
  sub->add_option("BASE", arguments->base, "Image of the earlier snapshot")->required();
  sub->add_option("TARGET", arguments->target, "Image of the later snapshot")->required();
  AddStreamOptions(*sub, arguments->stream);
  AddMapOutput(*sub, arguments->output);
  sub->footer(
      "Example: changed ranges from Monday to Tuesday in units of 64 KiB\n"
      "  cbt delta vol1/monday.img vol1/tuesday.img --block-size 64K --format csv");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("delta", Delta(*arguments)); };
  });
}

void AddAllocated(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("allocated", "Allocated ranges of one snapshot image");
  const auto arguments = std::make_shared<ImageArguments>();
  sub->add_option("IMAGE", arguments->target, "Image of the snapshot")->required();
  AddStreamOptions(*sub, arguments->stream);
  AddMapOutput(*sub, arguments->output);
  sub->add_flag("--zeros", arguments->skip_zeros,
                "Leave out blocks that hold only zeros too; reads the image");
  sub->footer(
      "Example: everything that a full backup has to read\n"
      "  cbt allocated vol1/monday.img --zeros");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("allocated", Allocated(*arguments)); };
  });
}

}  // namespace cbt::cli
