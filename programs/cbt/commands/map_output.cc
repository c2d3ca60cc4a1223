#include "programs/cbt/commands/map_output.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map_file.h"
#include "map/map_file.h"
#include "programs/cbt/options/source_options.h"
#include "programs/cbt/output/document.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

absl::Status CheckPlace(const std::string& path, const InputFiles& inputs) {
  if (!IsStdout(path)) return FindOutputPlace(path, inputs).status();
  if (isatty(STDOUT_FILENO) != 1) return absl::OkStatus();
  return UsageError("--output -", "stdout is a terminal; name a file, or pipe the map on");
}

// Passes its input through and shows the progress.
class Watched final : public ExtentCursor {
 public:
  Watched(ExtentCursor& input, const std::string& label)
      : ExtentCursor(input.geometry()), input_(input), progress_(label, input.capacity(), 0) {}

 private:
  absl::Status DoSeek(uint64_t offset) override { return input_.Seek(offset); }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = input_.Next(batch);
    if (!step.ok()) {
      progress_.Clear();
      return step.status();
    }
    progress_.Update(input_.covered());
    if (*step == Step::kComplete) progress_.Clear();
    return input_.covered();
  }

  ExtentCursor& input_;
  Progress progress_;
};

// (directory, name): "vol1/mon.img" is ("vol1", "mon.img").
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const std::filesystem::path place(path);
  return {place.parent_path(), place.filename()};
}

// The name without its extension. Digits after the last dot are not one: they distinguish
// snapshots.
std::string Stem(const std::string& name) {
  const size_t dot = name.rfind('.');
  const bool numbered = dot != std::string::npos &&
                        name.find_first_not_of("0123456789", dot + 1) == std::string::npos;
  return numbered ? name : name.substr(0, dot);
}

bool IsSameDirectory(const std::string& a, const std::string& b) {
  const std::filesystem::path one(a.empty() ? "." : a);
  const std::filesystem::path other(b.empty() ? "." : b);
  std::error_code ignored;  // for anything that is not a directory
  return one.lexically_normal() == other.lexically_normal() ||
         std::filesystem::equivalent(one, other, ignored);
}

// A name that promises text must not get a map.
CLI::Validator IsNotForText() {
  return {[](const std::string& path) -> std::string {
            const std::string extension = std::filesystem::path(path).extension();
            for (const char* text : {".csv", ".json", ".ndjson", ".jsonl", ".txt"}) {
              if (extension == text) {
                return "'" + path + "': a change map is no text; redirect stdout for that (>)";
              }
            }
            return {};
          },
          ""};
}

}  // namespace

absl::StatusOr<ChangeMapIdentity> MapNames::Over(ChangeMapIdentity known,
                                                 SourcePurpose what) const {
  ChangeMapIdentity names = {volume.value_or(std::move(known.volume)),
                             base.value_or(std::move(known.base)),
                             target.value_or(std::move(known.target))};
  if (what == SourcePurpose::kDelta && names.base.empty()) {
    return UsageError("--base-name",
                      base.has_value()
                          ? "is empty, but a map without a base says what is allocated"
                          : "the input does not name its base, and a map without one says what is "
                            "allocated");
  }
  if (what == SourcePurpose::kAllocated && !names.base.empty()) {
    return UsageError("--base-name",
                      "the input says what is allocated, but a map with a base says what changed");
  }
  return names;
}

void AddNameOptions(CLI::App& subcommand, MapNames& names) {
  const auto add = [&subcommand](const char* option, std::optional<std::string>& name,
                                 const char* what) {
    subcommand
        .add_option_function<std::string>(
            option, [&name](const std::string& text) { name = text; },
            std::string("Name of the ") + what + " in the map file")
        ->type_name("NAME");
  };
  add("--volume-name", names.volume, "volume");
  add("--base-name", names.base, "base snapshot");
  add("--target-name", names.target, "target snapshot");
}

void AddMapOutput(CLI::App& subcommand, MapOutput& output) {
  CLI::Option* const option =
      subcommand
          .add_option("-o,--output", output.path,
                      "Write a change-map file (.cbm) instead of text; - is stdout")
          ->type_name("FILE")
          ->check(IsNotEmpty())
          ->check(IsNotForText());
  for (const char* other : {"--format", "--starting-offset", "--max-results", "--style"}) {
    option->excludes(subcommand.get_option(other));
  }
  AddNameOptions(subcommand, output.names);
  for (const char* name : {"--volume-name", "--base-name", "--target-name"}) {
    subcommand.get_option(name)->needs(option);
  }
}

ChangeMapIdentity IdentityOfImages(const std::string& base, const std::string& target) {
  const auto [directory, name] = SplitPath(target);
  // A snapshot of another directory is not the one with the same name in this directory.
  if (!base.empty() && !IsSameDirectory(SplitPath(base).first, directory))
    return {"", base, target};
  std::string volume = SplitPath(directory).second;
  if (volume == "." || volume == "..") volume.clear();  // not names
  return {std::move(volume), base.empty() ? "" : Stem(SplitPath(base).second), Stem(name)};
}

ChangeMapIdentity IdentityOfIds(const std::string& base, const std::string& target) {
  const auto [volume, name] = SplitPath(target);
  const auto [base_volume, base_name] = SplitPath(base);
  // Ids of different directories have no known volume.
  if (volume.empty() || (!base.empty() && base_volume != volume)) return {"", base, target};
  return {volume, base_name, name};
}

absl::Status WriteBytes(const std::string& path, const InputFiles& inputs,
                        std::span<const uint8_t> bytes) {
  if (absl::Status usable = CheckPlace(path, inputs); !usable.ok()) return usable;
  return WriteDocument(path, inputs, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

absl::Status WriteMapFile(const std::string& path, const InputFiles& inputs, const ChangeMap& map) {
  if (IsStdout(path)) {
    absl::StatusOr<std::vector<uint8_t>> bytes = EncodeChangeMap(map);
    return bytes.ok() ? WriteBytes(path, inputs, *bytes) : bytes.status();
  }
  const absl::StatusOr<OutputPlace> place = FindOutputPlace(path, inputs);
  if (!place.ok()) return place.status();
  ChangeMapHeader header{
      .geometry = map->geometry(), .identity = map.identity(), .cardinality = map->cardinality()};
  const absl::StatusOr<std::vector<uint8_t>> bytes = EncodeMapHeader(header, map->portable());
  if (!bytes.ok()) return bytes.status();
  const std::span<const uint8_t> parts[] = {*bytes, map->portable()};
  return WriteOutputFile(place->path, parts);
}

absl::Status WriteMap(ExtentCursor& cursor, uint64_t granularity, const ChangeMapIdentity& identity,
                      const std::string& path, const InputFiles& inputs, const std::string& label) {
  // Checked before the work, not after it.
  if (absl::Status usable = CheckPlace(path, inputs); !usable.ok()) return usable;
  Watched watched(cursor, label);
  absl::StatusOr<ChangeMap> map = ChangeMap::FromCursor(watched, granularity);
  if (!map.ok()) return map.status();
  map->set_identity(identity);
  return WriteMapFile(path, inputs, *map);
}

}  // namespace cbt::cli
