// `cbtctl map`: inspects, converts, combines and draws change-map files.

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "cbt/change_map_file.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/map_input.h"
#include "programs/cbt/commands/map_output.h"
#include "programs/cbt/commands/print_stream.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/output/document.h"
#include "programs/cbt/output/heat_map.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

absl::Status PrintText(const std::string& text) {
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  return output.Close();
}

// ---- info

struct InfoArguments {
  std::vector<std::string> files;
  bool json = false;
  MapInput input;
};

std::string PerExtent(uint64_t bytes, uint64_t extents) {
  if (extents == 0) return "-";
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / static_cast<double>(extents));
}

// What the blocks of the map are.
const char* WordFor(const AnyMap& read) {
  if (!read.what.has_value()) return "in the set";
  return *read.what == SourcePurpose::kDelta ? "changed" : "allocated";
}

std::string InfoText(const std::string& path, const AnyMap& read) {
  const ChangeMap& map = read.map;
  const ChangeMapStatistics found = map->Statistics();
  const ChangeMapIdentity& names = map.identity();
  const uint64_t payload = map->portable().size();
  const uint64_t blocks = BlockCount(map->capacity(), map->granularity());
  const double share = map->capacity() == 0 ? 0
                                            : 100.0 * static_cast<double>(found.bytes) /
                                                  static_cast<double>(map->capacity());
  const double mean =
      found.runs == 0 ? 0 : static_cast<double>(found.blocks) / static_cast<double>(found.runs);
  const auto name = [](const std::string& text) { return text.empty() ? "-" : OneLine(text); };
  std::string text = OneLine(path) + "\n";
  const auto row = [&text](const char* what, const std::string& value) {
    absl::StrAppendFormat(&text, "  %-14s %s\n", what, value);
  };
  row("volume", name(names.volume));
  row("base", name(names.base));
  row("target", name(names.target));
  // Roaring bytes hold neither.
  const char* const assumed = read.assumed ? ", assumed" : "";
  row("capacity",
      absl::StrCat(map->capacity(), " bytes (", HumanSize(map->capacity()), ")", assumed));
  row("granularity", absl::StrCat(map->granularity(), " bytes", assumed));
  row(WordFor(read), absl::StrFormat("%d of %d blocks, %s (%.4g %%)", found.blocks, blocks,
                                     HumanSize(found.bytes), share));
  row("extents", absl::StrFormat("%d, %.1f blocks on average", found.runs, mean));
  row("containers", absl::StrFormat("%d: %d arrays, %d bitsets, %d run lists",
                                    found.arrays + found.bitsets + found.run_containers,
                                    found.arrays, found.bitsets, found.run_containers));
  row("size", absl::StrFormat("%d bytes, %s per extent", payload, PerExtent(payload, found.runs)));
  row("as a bitmap", absl::StrFormat("%d bytes, %s per extent", (blocks + 7) / 8,
                                     PerExtent((blocks + 7) / 8, found.runs)));
  row("as extents", absl::StrFormat("%d bytes, 16.00 per extent", 16 * found.runs));
  return text;
}

std::string InfoJson(const std::string& path, const ChangeMap& map) {
  const ChangeMapStatistics found = map->Statistics();
  const ChangeMapIdentity& names = map.identity();
  JsonBuilder line;
  line.BeginObject().Field("file", path).Field("volume", names.volume).Field("base", names.base);
  line.Field("target", names.target).Field("capacity_bytes", map->capacity());
  line.Field("granularity_bytes", map->granularity()).Field("changed_blocks", found.blocks);
  line.Field("changed_bytes", found.bytes).Field("extents", found.runs);
  line.Field("array_containers", found.arrays).Field("bitset_containers", found.bitsets);
  line.Field("run_containers", found.run_containers);
  line.Field("payload_bytes", map->portable().size());
  return line.EndObject().Take() + "\n";
}

// Prints every file that can be read, and reports every one that can't.
int Info(const InfoArguments& arguments) {
  std::string text;
  int worst = kExitDone;
  for (const std::string& path : arguments.files) {
    absl::StatusOr<AnyMap> read = ReadAnyMap(path, arguments.input);
    if (!read.ok()) {
      worst = std::max(worst, Report("map info", read.status()));
      continue;
    }
    if (!arguments.json && !text.empty()) text += "\n";
    text += arguments.json ? InfoJson(path, read->map) : InfoText(path, *read);
  }
  if (text.empty()) return worst;
  return std::max(worst, Report("map info", PrintText(text)));
}

void AddInfo(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("info", "Print header and statistics of map files");
  const auto arguments = std::make_shared<InfoArguments>();
  sub->add_option("FILE", arguments->files, "Map files")->required();
  sub->add_flag("--json", arguments->json, "One JSON object per line");
  AddMapInput(*sub, arguments->input);
  arguments->input.may_assume = true;
  sub->footer(
      "Example: what two maps are about, and how many blocks they hold\n"
      "  cbtctl map info sun-mon.cbm mon-tue.cbm");
  sub->callback([arguments, &command] { command = [arguments] { return Info(*arguments); }; });
}

// ---- convert

struct ConvertArguments {
  std::string file;
  std::string output;
  std::string to = "cbm";
  MapInput input;
  MapNames names;
};

std::vector<uint8_t> DenseBitmap(const ChangeMap& map) {
  std::vector<uint8_t> bytes(
      static_cast<size_t>((BlockCount(map->capacity(), map->granularity()) + 7) / 8));
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  ForEachBatch(*cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      uint64_t block = batch[i].offset / map->granularity();
      const uint64_t end = BlockCount(batch[i].end(), map->granularity());
      while (block < end) {
        if (block % 8 == 0 && end - block >= 8) {
          bytes[block / 8] = 0xff;
          block += 8;
        } else {
          bytes[block / 8] = static_cast<uint8_t>(bytes[block / 8] | 1u << block % 8);
          ++block;
        }
      }
    }
    return absl::OkStatus();
  }).IgnoreError();  // a cursor over a checked map doesn't fail
  return bytes;
}

absl::Status PrintExtents(const ChangeMap& map, const std::string& format) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  PrintOptions print = {.source = {map.identity().base, map.identity().target, ""},
                        .label = "printing"};
  print.stream.format = format == "ndjson" ? Format::kNdjson
                        : format == "json" ? Format::kJson
                        : format == "csv"  ? Format::kCsv
                                           : Format::kTable;
  return PrintStream(*cursor, print);
}

absl::Status Convert(const ConvertArguments& arguments) {
  const std::string& to = arguments.to;
  const bool text = to == "ndjson" || to == "json" || to == "csv" || to == "table";
  if (text && !arguments.output.empty() && arguments.output != "-") {
    return UsageError("--output", "text goes to stdout");
  }
  if (!text && arguments.output.empty()) {
    return UsageError("--output", "this format needs a file to write to, or - for stdout");
  }
  MapInput input = arguments.input;
  // The same bytes again, whatever they mean.
  input.may_assume = to == "roaring64" || to == "roaring32";
  absl::StatusOr<AnyMap> read = ReadAnyMap(arguments.file, input);
  if (!read.ok()) return read.status();
  // Other formats have no names.
  const absl::StatusOr<ChangeMapIdentity> named =
      to == "cbm" ? read->Named(arguments.names) : ChangeMapIdentity();
  if (!named.ok()) return named.status();
  absl::StatusOr<ChangeMap> map = std::move(read->map);
  if (arguments.input.block_size.has_value() &&
      *arguments.input.block_size != (*map)->granularity()) {
    absl::StatusOr<ChangeMap> other = WithGranularity(*map, *arguments.input.block_size);
    if (!other.ok()) return other.status();
    map = *std::move(other);
  }
  if (text) return PrintExtents(*map, to);
  if (to == "cbm") {
    map->set_identity(*named);
    // The same blocks always give the same file, whichever tool wrote the input.
    if (absl::StatusOr<bool> smaller = map->Optimize(); !smaller.ok()) return smaller.status();
    return WriteMapFile(arguments.output, read->files, *map);
  }
  if (to == "roaring64") return WriteBytes(arguments.output, read->files, (*map)->portable());
  if (to == "bitmap") return WriteBytes(arguments.output, read->files, DenseBitmap(*map));
  absl::StatusOr<std::vector<uint8_t>> bytes = map->ToPortable32();
  if (!bytes.ok()) return UsageError(arguments.file, MessageOf(bytes.status()));
  return WriteBytes(arguments.output, read->files, *bytes);
}

void AddConvert(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("convert", "Convert maps between formats");
  const auto arguments = std::make_shared<ConvertArguments>();
  sub->add_option("FILE", arguments->file, "Map file")->required();
  sub->add_option("-t,--to", arguments->to,
                  "cbm, roaring64, roaring32, bitmap (one bit per block, least significant first); "
                  "ndjson, json, csv, table: extents, to stdout")
      ->type_name("FORMAT")
      ->check(
          IsOneOf({"cbm", "roaring64", "roaring32", "bitmap", "ndjson", "json", "csv", "table"}))
      ->capture_default_str();
  sub->add_option("-o,--output", arguments->output, "File to write the map to; - is stdout")
      ->type_name("FILE");
  AddMapInput(*sub, arguments->input);
  AddNameOptions(*sub, arguments->names);
  sub->footer(
      std::string(kMarkerHelp) +
      "--block-size converts a map that has a block size of its own: larger blocks cover every\n"
      "changed byte, smaller ones are exact.\n"
      "Example: what another tool wrote as portable roaring bytes\n"
      "  cbtctl map convert changes.bin --from roaring64 --capacity 16T --block-size 64K \\\n"
      "    --output changes.cbm");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("map convert", Convert(*arguments)); };
  });
}

// ---- merge

struct MergeArguments {
  std::vector<std::string> files;
  std::string output;
  std::string operation = "union";
  MapInput input;
  MapNames names;
};

// The identity of the result: for consecutive maps, the first base and the last target; otherwise
// what all have in common. `whole`: the result has everything in the maps. A result that may lack
// something is not a delta up to their target, unless the user names it.
absl::StatusOr<ChangeMapIdentity> MergedIdentity(const std::vector<ChangeMap>& maps,
                                                 const MapNames& names, bool whole, bool follow) {
  ChangeMapIdentity identity = maps.front().identity();
  for (const ChangeMap& map : maps) {
    const ChangeMapIdentity& other = map.identity();
    if (other.volume != identity.volume && !names.volume.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("maps of different volumes, ", JsonString(identity.volume), " and ",
                       JsonString(other.volume), " (--volume-name, if they are the same)"));
    }
    if (!follow && other.base != identity.base && !names.base.has_value()) {
      return UsageError("--base-name",
                        absl::StrCat("maps of different bases, ", JsonString(identity.base),
                                     " and ", JsonString(other.base),
                                     ", that don't follow each other: name the base of the "
                                     "result"));
    }
    if (maps.size() > 1 && !other.base.empty() && other.base == other.target &&
        !names.base.has_value()) {
      return UsageError("--base-name",
                        absl::StrCat("a map whose base and target are both called ",
                                     JsonString(other.base), ": name the base of the result"));
    }
    if (!follow && other.target != identity.target) identity.target.clear();
  }
  if (follow) identity.target = maps.back().identity().target;
  if (!whole) identity.target.clear();
  const bool based = !names.base.value_or(identity.base).empty();
  return names.Over(std::move(identity), based ? SourcePurpose::kDelta : SourcePurpose::kAllocated);
}

absl::StatusOr<ChangeMap> Merged(const std::vector<ChangeMap>& maps, const std::string& operation,
                                 bool follow) {
  if (operation == "union") {
    const std::vector<ChangeMapView> views(maps.begin(), maps.end());
    absl::StatusOr<ChangeMap> united = Union(views);
    // For consecutive maps, the volume's size is that of the last one.
    if (!united.ok() || !follow) return united;
    return WithCapacity(*united, maps.back()->capacity());
  }
  ChangeMap result = maps.front();
  for (size_t i = 1; i < maps.size(); ++i) {
    const absl::Status status = operation == "intersection" ? result.IntersectWith(maps[i])
                                : operation == "difference" ? result.Subtract(maps[i])
                                                            : result.Toggle(maps[i]);
    if (!status.ok()) return status;
  }
  return result;
}

absl::Status Merge(const MergeArguments& arguments) {
  std::vector<ChangeMap> maps;
  InputFiles inputs;
  for (const std::string& path : arguments.files) {
    absl::StatusOr<AnyMap> read = ReadAnyMap(path, arguments.input);
    if (!read.ok()) return read.status();
    inputs.Add(read->files);
    absl::StatusOr<ChangeMapIdentity> named = read->Named(arguments.names);
    if (!named.ok()) {
      return absl::Status(named.status().code(),
                          absl::StrCat(path, ": ", named.status().message()));
    }
    maps.push_back(std::move(read->map));
  }
  const bool whole = arguments.operation == "union";
  bool follow = whole;
  for (size_t i = 0; i < maps.size(); ++i) {
    const ChangeMapIdentity& identity = maps[i].identity();
    // Two snapshots with one name don't show an order. The first map may report what is allocated.
    follow &= identity.base.empty() ? i == 0 : identity.base != identity.target;
    if (i > 0) follow &= identity.base == maps[i - 1].identity().target;
  }
  absl::StatusOr<ChangeMapIdentity> identity = MergedIdentity(maps, arguments.names, whole, follow);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<ChangeMap> result = Merged(maps, arguments.operation, follow);
  if (!result.ok()) return result.status();
  result->set_identity(*std::move(identity));
  return WriteMapFile(arguments.output, inputs, *result);
}

void AddMerge(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("merge", "Combine several maps into one");
  const auto arguments = std::make_shared<MergeArguments>();
  sub->add_option("FILE", arguments->files, "Map files, oldest first")->required();
  sub->add_option("--op", arguments->operation,
                  "union, intersection, difference or symmetric-difference")
      ->type_name("OP")
      ->check(IsOneOf({"union", "intersection", "difference", "symmetric-difference"}))
      ->capture_default_str();
  sub->add_option("-o,--output", arguments->output, "The new map file; - is stdout")
      ->type_name("FILE")
      ->required();
  AddMapInput(*sub, arguments->input);
  AddNameOptions(*sub, arguments->names);
  sub->footer(
      "Example: what changed from Sunday to Tuesday\n"
      "  cbtctl map merge sun-mon.cbm mon-tue.cbm --output sun-tue.cbm");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("map merge", Merge(*arguments)); };
  });
}

// ---- show

struct ShowMapArguments {
  std::string file;
  std::string svg;
  size_t rows = 16;
  MapInput input;
};

absl::Status ShowMap(const ShowMapArguments& arguments) {
  absl::StatusOr<AnyMap> read = ReadAnyMap(arguments.file, arguments.input);
  if (!read.ok()) return read.status();
  const absl::StatusOr<ChangeMap> map = std::move(read->map);
  HeatMap picture((*map)->capacity(), (*map)->granularity(), arguments.rows);
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(*map);
  absl::Status status = ForEachBatch(*cursor, [&picture](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) picture.Add(batch[i]);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  const ChangeMapIdentity& names = map->identity();
  std::string title = names.volume.empty() ? arguments.file : names.volume;
  if (!names.base.empty() || !names.target.empty()) {
    absl::StrAppend(&title, ": ", names.base.empty() ? "allocated in" : names.base + " to", " ",
                    names.target);
  }
  const std::string summary =
      absl::StrCat(HumanSize((*map)->changed_bytes()), " of ", HumanSize((*map)->capacity()),
                   " in ", (*map)->Statistics().runs, " extents");
  if (!arguments.svg.empty()) {
    const std::string svg = picture.Svg(title, summary);
    status = WriteDocument(arguments.svg, read->files, svg);
    if (!status.ok() || IsStdout(arguments.svg)) return status;
  }
  const Glyphs glyphs = LocaleGlyphs();
  return PrintText(absl::StrCat(OneLine(title), "\n", summary, "; one cell is ",
                                HumanSize(picture.cell_bytes()), "\n\n", picture.Text(glyphs), "\n",
                                ShadesLegend(glyphs), "\n"));
}

void AddShow(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("show", "Draw where in the volume changes lie");
  const auto arguments = std::make_shared<ShowMapArguments>();
  sub->add_option("FILE", arguments->file, "Map file")->required();
  sub->add_option("--svg", arguments->svg,
                  "Also draw into this SVG file; -: to stdout, and no text")
      ->type_name("FILE");
  sub->add_option("--rows", arguments->rows, "Maximum number of rows of 64 cells")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddMapInput(*sub, arguments->input);
  arguments->input.may_assume = true;
  sub->footer(
      "Example: in the terminal, and as a picture for a report\n"
      "  cbtctl map show mon-tue.cbm --svg mon-tue.svg");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("map show", ShowMap(*arguments)); };
  });
}

}  // namespace

void AddMap(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("map", "Inspect, convert, combine and draw change-map files");
  sub->require_subcommand(1);
  sub->footer(
      "Example: two days in one map, and what is in it\n"
      "  cbtctl map merge sun-mon.cbm mon-tue.cbm --output sun-tue.cbm\n"
      "  cbtctl map info sun-tue.cbm");
  AddInfo(*sub, command);
  AddConvert(*sub, command);
  AddMerge(*sub, command);
  AddShow(*sub, command);
}

}  // namespace cbt::cli
