// `cbtctl delta` and `cbtctl allocated`: what images and other sources report.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/executor.h"
#include "cbt/source/image.h"
#include "cbt/source/open.h"
#include "cbt/transform.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/map_output.h"
#include "programs/cbt/commands/print_stream.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/options/source_options.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct SourceArguments {
  std::string base;    // or the only source of a delta
  std::string target;  // empty if there is only one source
  SourceInput input;
  bool skip_zeros = false;
  bool by_extents = false;
  ExtentOptions stream;
  MapOutput output;
};

bool Says(const SourceSpec& spec, std::string_view key) {
  return std::any_of(spec.options.begin(), spec.options.end(),
                     [key](const auto& option) { return option.first == key; });
}

// Refuses map names that the paths alone would get wrong: readers of the map take them for the
// snapshots that have these names elsewhere.
absl::Status CheckNames(const SourceArguments& arguments, const ChangeMapIdentity& names) {
  const MapNames& given = arguments.output.names;
  const SourceSpec& spec = arguments.input.spec;
  if (Says(spec, "snapshot") && !given.target.has_value()) {
    return UsageError("--target-name", "the path names the image, not the snapshot in it");
  }
  if (Says(spec, "base-snapshot") && !given.base.has_value()) {
    return UsageError("--base-name", "the path names the image, not the snapshot in it");
  }
  const bool two = !arguments.target.empty() && arguments.base != arguments.target;
  if (two && !names.base.empty() && names.base == names.target && !given.base.has_value() &&
      !given.target.has_value()) {
    return UsageError("--base-name",
                      absl::StrCat("both paths name the snapshot ", JsonString(names.base),
                                   "; set this option and --target-name"));
  }
  return absl::OkStatus();
}

// Prints what a source reports, from the requested offset and in the requested style, or writes it
// as a map. `known`: the names that its address implies.
absl::Status Print(absl::StatusOr<OpenedSource> source, const ChangeMapIdentity& known,
                   const SourceArguments& arguments, const InputFiles& inputs, PrintOptions print,
                   bool delta) {
  if (!source.ok()) return source.status();
  if (arguments.output.wanted()) {
    ChangeMapIdentity identity = known;
    const auto fill = [](std::string& name, const std::string& from_source) {
      if (!from_source.empty()) name = from_source;
    };
    fill(identity.volume, source->identity.volume);
    fill(identity.base, source->identity.base);
    fill(identity.target, source->identity.target);
    absl::StatusOr<ChangeMapIdentity> named = arguments.output.names.Over(
        std::move(identity), delta ? SourcePurpose::kDelta : SourcePurpose::kAllocated);
    if (!named.ok()) return named.status();
    if (absl::Status names = CheckNames(arguments, *named); !names.ok()) return names;
    NoteFormat(arguments.input.spec, *source);
    return WriteMap(*source->cursor, source->cursor->granularity(), *named, arguments.output.path,
                    inputs, print.label);
  }
  NoteFormat(arguments.input.spec, *source);
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = std::move(source->cursor);
  print.stream = arguments.stream;
  print.type = arguments.stream.type.value_or(BlockMetadataType::kVariableLength);
  if (print.type == BlockMetadataType::kFixedLength) {
    cursor = ToBlocks(*std::move(cursor), arguments.stream.block_size.value_or(kDefaultBlockSize));
    if (!cursor.ok()) return cursor.status();
  }
  if (absl::Status sought = SeekToStart(**cursor, print.stream); !sought.ok()) return sought;
  return PrintStream(**cursor, print);
}

SourceOptions OptionsOf(const SourceArguments& arguments, InputFiles& inputs, Executor& executor) {
  return {.spec = WithBlockSize(arguments.input.spec, arguments.stream.block_size),
          .capacity = arguments.input.capacity,
          .base_capacity = arguments.input.base_capacity,
          .block_size = arguments.stream.block_size.value_or(kDefaultBlockSize),
          .executor = &executor,
          .skip_zeros = arguments.skip_zeros,
          .by_extents = arguments.by_extents,
          .open = inputs.Opener()};
}

absl::Status Delta(const SourceArguments& arguments) {
  ThreadPool pool(WorkerThreads());
  InputFiles inputs({arguments.base, arguments.target});
  SourceOptions options = OptionsOf(arguments, inputs, pool);
  if (arguments.target.empty()) {
    options.purpose = SourcePurpose::kDelta;
    return Print(OpenSource(arguments.base, options), {}, arguments, inputs,
                 {.label = "reading", .adjective = "changed"}, true);
  }
  absl::StatusOr<OpenedSource> source = OpenDelta(arguments.base, arguments.target, options);
  if (source.ok()) WarnIfSwapped("delta", arguments.base, arguments.target);
  return Print(std::move(source), IdentityOfImages(arguments.base, arguments.target), arguments,
               inputs, {.label = "comparing", .adjective = "changed"}, true);
}

absl::Status Allocated(const SourceArguments& arguments) {
  ThreadPool pool(WorkerThreads());
  InputFiles inputs({arguments.base, arguments.target});
  SourceOptions options = OptionsOf(arguments, inputs, pool);
  options.purpose = SourcePurpose::kAllocated;
  return Print(OpenSource(arguments.target, options), IdentityOfImages("", arguments.target),
               arguments, inputs, {.label = "scanning", .adjective = "allocated"}, false);
}

}  // namespace

void AddDelta(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "delta", "Changed ranges between two snapshot images, or as a storage system reports them");
  const auto arguments = std::make_shared<SourceArguments>();
  sub->add_option("BASE", arguments->base,
                  "Image of the earlier snapshot; or, alone, a source that reports what changed")
      ->required()
      ->check(IsNotEmpty());
  sub->add_option("TARGET", arguments->target, "Image of the later snapshot")->check(IsNotEmpty());
  AddSourceInput(*sub, arguments->input, true);
  sub->add_flag("--by-extents", arguments->by_extents,
                "For two clones (reflinks): compare where their data lies, not the data");
  AddExtentOptions(*sub, arguments->stream);
  AddMapOutput(*sub, arguments->output);
  sub->footer(
      FormatsText(SourcePurpose::kDelta) + kMarkerHelp +
      "Examples: changed ranges from Monday to Tuesday in units of 64 KiB\n"
      "  cbtctl delta vol1/monday.img vol1/tuesday.img --from image --block-size 64K\n"
      "  rbd export-diff --from-snap monday pool/vol@tuesday - | cbtctl delta - --from rbd-diff");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("delta", Delta(*arguments)); };
  });
}

void AddAllocated(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "allocated", "Allocated ranges of a snapshot image, or as a storage system reports them");
  const auto arguments = std::make_shared<SourceArguments>();
  sub->add_option("IMAGE", arguments->target, "Image of the snapshot, or another source")
      ->required()
      ->check(IsNotEmpty());
  AddSourceInput(*sub, arguments->input, false);
  AddExtentOptions(*sub, arguments->stream);
  AddMapOutput(*sub, arguments->output);
  sub->add_flag("--skip-zeros,--zeros", arguments->skip_zeros,
                "Also leave out blocks that hold only zeros; reads the image");
  sub->footer(FormatsText(SourcePurpose::kAllocated) + kMarkerHelp +
              "Examples: everything that a full backup has to read\n"
              "  cbtctl allocated vol1/monday.img --from image --skip-zeros\n"
              "  cbtctl allocated nbd+unix:///?socket=/run/vol1.sock");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("allocated", Allocated(*arguments)); };
  });
}

}  // namespace cbt::cli
