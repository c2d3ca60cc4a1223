// `cbtctl chain`: the maps between neighbouring snapshots of a volume, in a directory.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "cbt/change_chain.h"
#include "cbt/transform.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/chain_show.h"
#include "programs/cbt/commands/map_input.h"
#include "programs/cbt/commands/map_output.h"
#include "programs/cbt/commands/print_stream.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

using Access = ChangeChain::Access;

struct ChainArguments {
  std::string directory;
  std::string volume;
  std::string snapshot;
  std::string base;
  std::string target;
  std::vector<std::string> files;
  uint64_t capacity = 0;
  std::optional<int64_t> time;  // nanoseconds since 1970
  std::optional<uint64_t> block_size;
  bool oldest = false;
  ExtentOptions stream;
  MapOutput output;
};

int64_t TimeOf(const ChainArguments& arguments) {
  return arguments.time.value_or(absl::GetCurrentTimeNanos());
}

absl::Status CreateChain(const ChainArguments& arguments) {
  return ChangeChain::Create(arguments.directory, arguments.volume,
                             arguments.block_size.value_or(kDefaultBlockSize),
                             {arguments.snapshot, arguments.capacity, TimeOf(arguments)})
      .status();
}

absl::Status Append(const ChainArguments& arguments) {
  if (arguments.time.has_value() && arguments.files.size() > 1) {
    return UsageError("append", "--time is the time of one snapshot: give one FILE with it");
  }
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.directory, Access::kChange);
  if (!chain.ok()) return chain.status();
  MapInput input;
  input.source.spec.format = SourceFormat::kChangeMap;
  for (const std::string& path : arguments.files) {
    absl::StatusOr<AnyMap> map = ReadAnyMap(path, input);
    if (!map.ok()) return map.status();
    if (absl::Status status = (*chain)->Append(map->map, TimeOf(arguments)); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Remove(const ChainArguments& arguments) {
  if (arguments.oldest != arguments.snapshot.empty()) {
    return UsageError("remove", "needs either a snapshot or --oldest");
  }
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.directory, Access::kChange);
  if (!chain.ok()) return chain.status();
  return (*chain)->Remove(arguments.oldest ? (*chain)->snapshots().front().id : arguments.snapshot);
}

// For people: the snapshots, oldest first, with the volume's size in each.
std::string ListTable(const ChangeChain& chain) {
  constexpr std::string_view kName = "SNAPSHOT";
  size_t width = kName.size();
  size_t digits = std::string_view("BYTES").size();
  for (const ChainSnapshot& snapshot : chain.snapshots()) {
    width = std::max(width, OneLine(snapshot.id).size());
    digits = std::max(digits, absl::StrCat(snapshot.capacity).size());
  }
  const auto left = static_cast<int>(width);
  const auto right = static_cast<int>(digits);
  std::string text =
      absl::StrFormat("%-*s  %*s  %10s  %s\n", left, kName, right, "BYTES", "SIZE", "TAKEN (UTC)");
  for (const ChainSnapshot& snapshot : chain.snapshots()) {
    absl::StrAppendFormat(&text, "%-*s  %*d  %10s  %s\n", left, OneLine(snapshot.id), right,
                          snapshot.capacity, HumanSize(snapshot.capacity),
                          MinuteText(snapshot.time));
  }
  absl::StrAppend(&text, "\n", chain.snapshots().size(), " snapshots of ",
                  chain.volume().empty() ? "a volume without a name" : OneLine(chain.volume()),
                  ", in blocks of ", HumanSize(chain.granularity()), "\n");
  return text;
}

absl::Status List(const ChainArguments& arguments) {
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.directory, Access::kRead);
  if (!chain.ok()) return chain.status();
  Output output(STDOUT_FILENO, "stdout");
  if (isatty(STDOUT_FILENO) == 1) {
    output.Append(ListTable(**chain));
    return output.Close();
  }
  JsonBuilder head;
  head.BeginObject().Field("volume", (*chain)->volume());
  head.Field("granularity_bytes", (*chain)->granularity()).EndObject();
  output.Append(head.Take() + "\n");
  for (const ChainSnapshot& snapshot : (*chain)->snapshots()) {
    JsonBuilder json;
    json.BeginObject().Field("snapshot", snapshot.id).Field("capacity_bytes", snapshot.capacity);
    if (snapshot.time.has_value()) json.Field("taken", TimeText(*snapshot.time));
    output.Append(json.EndObject().Take() + "\n");
  }
  return output.Close();
}

absl::Status VerifyChain(const ChainArguments& arguments) {
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.directory, Access::kRead);
  return chain.ok() ? (*chain)->Verify() : chain.status();
}

absl::Status Delta(const ChainArguments& arguments) {
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(arguments.directory, Access::kRead);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
      (*chain)->Delta(arguments.base, arguments.target);
  if (!cursor.ok()) return cursor.status();
  const uint64_t granularity = arguments.stream.block_size.value_or((*chain)->granularity());
  if (arguments.output.wanted()) {
    const absl::StatusOr<ChangeMapIdentity> identity = arguments.output.names.Over(
        {(*chain)->volume(), arguments.base, arguments.target}, SourcePurpose::kDelta);
    if (!identity.ok()) return identity.status();
    return WriteMap(**cursor, granularity, *identity, arguments.output.path,
                    InputFiles({arguments.directory}), "uniting");
  }
  PrintOptions print = {.stream = arguments.stream,
                        .type = arguments.stream.type.value_or(BlockMetadataType::kVariableLength),
                        .source = {arguments.base, arguments.target, ""},
                        .label = "uniting"};
  if (print.type == BlockMetadataType::kFixedLength) {
    cursor = ToBlocks(*std::move(cursor), granularity);
  } else if (arguments.stream.block_size.has_value()) {
    cursor = AlignOutward(*std::move(cursor), granularity);
  }
  if (!cursor.ok()) return cursor.status();
  if (absl::Status sought = SeekToStart(**cursor, print.stream); !sought.ok()) return sought;
  return PrintStream(**cursor, print);
}

void AddTime(CLI::App& sub, const std::shared_ptr<ChainArguments>& arguments) {
  sub.add_option_function<std::string>(
         "--time",
         [arguments](const std::string& text) {
           const absl::StatusOr<int64_t> value = ParseTime(text);
           if (!value.ok()) throw CLI::ValidationError("--time", MessageOf(value.status()));
           arguments->time = *value;
         },
         "When the snapshot was taken, as 2026-03-01T12:00:00Z; default: now")
      ->type_name("TIME");
}

// A subcommand with the directory as its first argument. `example`: the arguments of an example
// call.
CLI::App* Add(CLI::App& app, Command& command, const char* name, const char* what,
              const char* example, absl::Status (*work)(const ChainArguments&),
              const std::shared_ptr<ChainArguments>& arguments) {
  CLI::App* const sub = app.add_subcommand(name, what);
  sub->add_option("DIR", arguments->directory, "Directory of the chain")->required();
  sub->footer(std::string("Example:\n  cbtctl chain ") + example);
  sub->callback([=, &command] {
    command = [=] { return Report(absl::StrCat("chain ", name), work(*arguments)); };
  });
  return sub;
}

}  // namespace

void AddChain(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "chain", "Chains of maps: the delta between any two snapshots of a volume");
  sub->require_subcommand(1);
  const auto arguments = std::make_shared<ChainArguments>();

  CLI::App* const create =
      Add(*sub, command, "create", "Create a chain with its first snapshot",
          "create vol1/history.chain --volume vol1 --snapshot monday --capacity 1T", &CreateChain,
          arguments);
  create->add_option("--volume", arguments->volume, "Name of the volume")
      ->type_name("NAME")
      ->required();
  create->add_option("--snapshot", arguments->snapshot, "Name of the first snapshot")
      ->type_name("NAME")
      ->required();
  create
      ->add_option_function<std::string>(
          "--capacity",
          [arguments](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, kMaxCapacity);
            if (!value.ok()) throw CLI::ValidationError("--capacity", MessageOf(value.status()));
            arguments->capacity = *value;
          },
          "Size of the volume in bytes")
      ->type_name("N")
      ->required();
  AddBlockSizeOption(*create, arguments->block_size);
  AddTime(*create, arguments);

  CLI::App* const append =
      Add(*sub, command, "append", "Append the maps of the next snapshots",
          "append vol1/history.chain mon-tue.cbm tue-wed.cbm", &Append, arguments);
  append->add_option("FILE", arguments->files, "Map files, oldest first")->required();
  AddTime(*append, arguments);

  CLI::App* const remove =
      Add(*sub, command, "remove", "Remove a snapshot and unite the maps next to it",
          "remove vol1/history.chain tuesday", &Remove, arguments);
  remove->add_option("SNAPSHOT", arguments->snapshot, "Name of the snapshot");
  remove->add_flag("--oldest", arguments->oldest, "The oldest snapshot, whatever its name");

  Add(*sub, command, "list",
      "List the snapshots, oldest first; a table on a terminal, else JSON lines",
      "list vol1/history.chain", &List, arguments);
  Add(*sub, command, "verify", "Read every file and compare it with the manifest",
      "verify vol1/history.chain", &VerifyChain, arguments);

  CLI::App* const delta =
      Add(*sub, command, "delta", "Changed ranges between any two snapshots",
          "delta vol1/history.chain monday friday --block-size 1M", &Delta, arguments);
  delta->add_option("BASE", arguments->base, "The earlier snapshot")->required();
  delta->add_option("TARGET", arguments->target, "The later snapshot")->required();
  AddExtentOptions(*delta, arguments->stream);
  ShowOtherDefault(*delta, "--block-size", "the chain's");
  AddMapOutput(*delta, arguments->output);
  delta->footer(kMarkerHelp + delta->get_footer());
  AddChainShow(*sub, command);
  sub->footer(
      "Example: a chain next to the snapshots of a volume, where `cbtctl serve` finds it\n"
      "  cbtctl chain create vol1/history.chain --volume vol1 --snapshot monday --capacity 1T\n"
      "  cbtctl delta vol1/monday.img vol1/tuesday.img --from image --output tue.cbm\n"
      "  cbtctl chain append vol1/history.chain tue.cbm");
}

}  // namespace cbt::cli
