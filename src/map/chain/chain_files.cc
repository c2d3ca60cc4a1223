#include "map/chain/chain_files.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"

namespace cbt {
namespace {

constexpr std::string_view kChainMapPrefix = "map-";
constexpr std::string_view kChainMapExtension = ".cbm";

// The number whose ChainMapName() this is. Requires: prefix and extension.
std::optional<uint64_t> NumberOf(std::string_view name) {
  name.remove_prefix(kChainMapPrefix.size());
  name.remove_suffix(kChainMapExtension.size());
  uint64_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data(), end, number);
  const bool canonical = !name.empty() && name.front() != '0';
  return canonical && error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string ChainMapName(uint64_t number) {
  return absl::StrCat(AbslView(kChainMapPrefix), number, AbslView(kChainMapExtension));
}

void SweepChainFiles(const Directory& directory, const ChainManifest& manifest) {
  std::unordered_set<uint64_t> needed;
  needed.reserve(manifest.entries.size() + manifest.nodes.size());
  for (const ChainEntry& entry : manifest.entries) needed.insert(entry.file.number);
  for (const auto& [node, file] : manifest.nodes) needed.insert(file.number);
  const absl::StatusOr<std::vector<std::string>> names = directory.List();
  if (!names.ok()) return;
  const std::string partial_map = absl::StrCat(".", AbslView(kChainMapPrefix));
  const std::string partial_manifest = absl::StrCat(".", kChainManifestName);
  for (const std::string& name : *names) {
    const bool partial =
        absl::EndsWith(name, AbslView(kPartialExtension)) &&
        (absl::StartsWith(name, partial_map) || absl::StartsWith(name, partial_manifest));
    const bool map = absl::StartsWith(name, AbslView(kChainMapPrefix)) &&
                     absl::EndsWith(name, AbslView(kChainMapExtension));
    const std::optional<uint64_t> number = map ? NumberOf(name) : std::nullopt;
    const bool known = number.has_value() && needed.contains(*number);
    if (partial || (map && !known)) directory.Remove(name.c_str());
  }
}

}  // namespace cbt
