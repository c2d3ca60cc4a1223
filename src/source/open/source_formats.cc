// The table of formats, their names and their detection.
#include <algorithm>
#include <initializer_list>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/open.h"
#include "cbt/source/qcow2.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

using Format = SourceFormat;

constexpr SourceFormatInfo kFormats[] = {
    {"image", "raw image, file or block device", "", Format::kImage, true, false, true},
    {"cbm", "change-map file", "", Format::kChangeMap, true, true, true},
    {"roaring64", "portable roaring bytes, 64-bit", "block-size=N", Format::kRoaring64, true, true,
     false},
    {"roaring32", "portable roaring bytes, 32-bit", "block-size=N", Format::kRoaring32, true, true,
     false},
    {"bitmap", "one bit per block",
     "granularity=N order=lsb|msb reversed-words=1|2|4|8 set=changed|same header=N first-bit=N "
     "base64",
     Format::kBitmap, true, true, false},
    {"qcow2", "qcow2 image",
     "snapshot=ID base-snapshot=ID bitmap=NAME layer chain=yes|no in-use "
     "other-signatures=refuse|ignore",
     Format::kQcow2, true, true, true},
    {"qemu-map", "qemu-img map --output=json", "", Format::kQemuMap, true, true, true},
    {"nbd", "NBD export",
     "bitmap=NAME depth=N export=NAME tls-certificates=DIR tls-psk=FILE tls-username=NAME "
     "timeout=SECONDS",
     Format::kNbd, true, true, true},
    {"rbd-diff", "rbd export-diff, or rbd export --export-format 2",
     "base=SNAPSHOT target=SNAPSHOT", Format::kRbdDiff, true, true, true},
    {"rbd-json", "rbd diff --format json", "", Format::kRbdJson, true, true, true},
    {"thin-delta", "thin_delta, with or without --verbose", "", Format::kThinDelta, false, true,
     true},
    {"thin-dump", "thin_dump", "device=ID", Format::kThinDump, true, false, true},
    {"era-invalidate", "era_invalidate --written-since", "block-size=N empty=unknown|unwritten",
     Format::kEraInvalidate, false, true, true},
    {"era-dump", "era_dump", "since-era=N", Format::kEraDump, false, true, true},
    {"btrfs-send", "btrfs send --no-data", "path=FILE base-path=FILE single-name path-exists",
     Format::kBtrfsSend, true, true, true},
    {"ebs", "EBS ListSnapshotBlocks or ListChangedBlocks pages", "", Format::kEbs, true, true,
     true},
    {"vmware", "VMware QueryChangedDiskAreas responses", "", Format::kVmware, true, true, true},
    {"ext", "ext2, ext3 or ext4 file system in a raw image",
     "unclean=over-report other-signatures=refuse|ignore", Format::kExt, true, false, false},
    {"ndjson", "cbtctl's own answers (--format ndjson)", "", Format::kNdjson, true, true, true},
    {"json", "cbtctl's own answers (--format json)", "", Format::kJson, true, true, true},
    {"csv", "cbtctl's own answers (--format csv)", "", Format::kCsv, true, true, true},
    {"partclone", "partclone image", "", Format::kPartclone, true, false, true},
};

bool Begins(std::string_view text, std::string_view with) { return text.starts_with(with); }

// A volume's first two bytes may look like a list by chance, but not its first 256.
constexpr size_t kTextBytes = 256;

bool IsText(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= ' ' && c < '\x7f') || c == '\t' || c == '\r' || c == '\n';
  });
}

bool Holds(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

// The first line of cbtctl's csv.
constexpr std::string_view kCsvHeader = "byte_offset,size_bytes\n";

absl::StatusOr<Format> DetectJson(std::string_view text) {
  if (Holds(text, "\"block_metadata_type\"") && Holds(text, "\"volume_capacity_bytes\"")) {
    return Holds(text, "\"block_metadata\"") ? Format::kJson : Format::kNdjson;
  }
  if (Holds(text, "\"changedArea\"") || Holds(text, "\"startOffset\"")) return Format::kVmware;
  if (Holds(text, "\"ChangedBlocks\"") || Holds(text, "\"BlockIndex\"") ||
      Holds(text, "\"Blocks\"")) {
    return Format::kEbs;
  }
  if (Holds(text, "\"exists\"") && Holds(text, "\"offset\"")) return Format::kRbdJson;
  if (Holds(text, "\"start\"") && Holds(text, "\"zero\"")) return Format::kQemuMap;
  return absl::InvalidArgumentError("JSON, but not a list that is detected by its content");
}

absl::StatusOr<Format> DetectXml(std::string_view text) {
  if (Holds(text, "<blocks")) return Format::kEraInvalidate;
  if (Holds(text, "current_era=")) return Format::kEraDump;
  if (Holds(text, "<diff")) return Format::kThinDelta;
  if (Holds(text, "<device") || Holds(text, "<def")) return Format::kThinDump;
  return absl::InvalidArgumentError("XML, but not a list that is detected by its content");
}

// In small letters, with its dot; empty if the file's name has none.
std::string ExtensionOf(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  return absl::AsciiStrToLower(AbslView(name.substr(dot)));
}

// Extensions of what is not read here. As a raw volume it would be something else.
constexpr std::pair<std::string_view, std::string_view> kForeignNames[] = {
    {".vmdk", "VMDK image"},     {".vhd", "VHD image"},       {".vhdx", "VHDX image"},
    {".vdi", "VDI image"},       {".qed", "QED image"},       {".gz", "compressed data"},
    {".xz", "compressed data"},  {".zst", "compressed data"}, {".bz2", "compressed data"},
    {".lz4", "compressed data"},
};

using Option = std::pair<std::string, std::string>;

// Whether the option `key` of `info` has a value; empty if there is no such option.
std::optional<bool> TakesValue(const SourceFormatInfo& info, std::string_view key) {
  const std::string_view known = info.options;
  // Matches whole words of the list: `key=` or `key` alone.
  for (size_t at = 0; at < known.size() && !key.empty();) {
    const size_t end = std::min(known.find(' ', at), known.size());
    const std::string_view word = known.substr(at, end - at);
    const std::string_view word_key = word.substr(0, word.find('='));
    if (word_key == key) return word_key.size() < word.size();
    at = end + 1;
  }
  return std::nullopt;
}

// Whether `info` takes another option in addition to those in `there`.
absl::Status CheckOption(const SourceFormatInfo& info, std::span<const Option> there,
                         std::string_view key, std::optional<std::string_view> value) {
  const std::string option = absl::StrCat("'", AbslView(key), value.has_value() ? "=" : "",
                                          AbslView(value.value_or("")), "'");
  if (TakesValue(info, key) != value.has_value()) {
    const bool none = std::string_view(info.options).empty();
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", info.name, none ? " has no options" : " takes ", info.options));
  }
  // An empty value would count as given and then be ignored. The export with the empty name is the
  // default one.
  if (value.has_value() && value->empty() && key != "export") {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", info.name, ": ", AbslView(key), " has no value"));
  }
  for (const Option& other : there) {
    if (other.first == key) {
      return absl::InvalidArgumentError(absl::StrCat(option, ": given twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const SourceFormatInfo> SourceFormats() noexcept { return kFormats; }

const SourceFormatInfo& InfoOf(SourceFormat format) noexcept {
  static_assert(std::size(kFormats) == static_cast<size_t>(Format::kPartclone) + 1);
  return kFormats[static_cast<size_t>(format)];
}

absl::StatusOr<SourceFormat> DetectSourceFormat(std::span<const uint8_t> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()),
                              first_bytes.size());
  if (Begins(text,
             "\x89"
             "CBM"))
    return Format::kChangeMap;
  if (LooksLikeQcow2(first_bytes)) return Format::kQcow2;
  if (Begins(text, "rbd diff v") || Begins(text, "rbd image v")) return Format::kRbdDiff;
  if (Begins(text, "partclone-image")) return Format::kPartclone;
  if (Begins(text, std::string_view("btrfs-stream\0", 13))) return Format::kBtrfsSend;
  if (!IsText(text.substr(0, kTextBytes))) return Format::kImage;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Format::kImage;
  // A volume may begin with anything. It counts as a list only if what follows looks like one.
  const size_t second = text.find_first_not_of(" \t\r\n", first + 1);
  const char next = second == std::string_view::npos ? '\0' : text[second];
  if (text[first] == '[' && (next == '{' || next == ']')) return DetectJson(text);
  if (text[first] == '{' && next == '"') return DetectJson(text);
  if (Begins(text, kCsvHeader)) return Format::kCsv;
  if (text[first] == '<' &&
      (Begins(text.substr(first), "<superblock") || Begins(text.substr(first), "<blocks") ||
       Begins(text.substr(first), "<?xml"))) {
    return DetectXml(text);
  }
  return Format::kImage;
}

bool HasNameOf(SourceFormat format, std::string_view path) {
  const std::string extension = ExtensionOf(path);
  const auto is_one_of = [&extension](std::initializer_list<std::string_view> extensions) {
    return std::ranges::find(extensions, extension) != extensions.end();
  };
  switch (format) {
    case Format::kChangeMap:
      return is_one_of({".cbm"});
    case Format::kQcow2:
      return is_one_of({".qcow2"});
    case Format::kRbdDiff:
      return is_one_of({".diff", ".rbd"});
    case Format::kBtrfsSend:
      return is_one_of({".stream", ".btrfs"});
    case Format::kQemuMap:
    case Format::kRbdJson:
    case Format::kEbs:
    case Format::kVmware:
    case Format::kJson:
      return is_one_of({".json"});
    case Format::kThinDelta:
    case Format::kThinDump:
    case Format::kEraInvalidate:
    case Format::kEraDump:
      return is_one_of({".xml"});
    case Format::kNdjson:
      return is_one_of({".ndjson", ".json", ".jsonl"});
    case Format::kPartclone:
      return is_one_of({".partclone", ".pcl", ".pc"});
    case Format::kCsv:
      return is_one_of({".csv"});
    case Format::kRoaring64:
    case Format::kRoaring32:
      return is_one_of({".roaring"});
    case Format::kImage:
    case Format::kBitmap:
    case Format::kNbd:
    case Format::kExt:
      break;
  }
  return false;
}

std::string_view ContentByName(std::string_view path) {
  for (const SourceFormatInfo& info : kFormats) {
    if (HasNameOf(info.format, path)) return info.what;
  }
  const std::string extension = ExtensionOf(path);
  for (const auto& [name, what] : kForeignNames) {
    if (extension == name) return what;
  }
  return {};
}

absl::Status CheckSourceOptions(SourceFormat format, const SourceSpec& spec) {
  const SourceFormatInfo& info = InfoOf(format);
  const std::span<const Option> options = spec.options;
  for (size_t i = 0; i < options.size(); ++i) {
    const auto& [key, text] = options[i];
    // A word alone and one with nothing after its = must be distinguished.
    std::optional<std::string_view> value;
    if (!text.empty() || TakesValue(info, key) == true) value = text;
    absl::Status status = CheckOption(info, options.first(i), key, value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SourceSpec> ParseSourceSpec(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  SourceSpec spec;
  for (const SourceFormatInfo& info : kFormats) {
    if (name == info.name) spec.format = info.format;
  }
  if (!spec.format.has_value()) {
    std::string names;
    for (const SourceFormatInfo& info : kFormats) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", info.name);
    }
    return absl::InvalidArgumentError(absl::StrCat("'", AbslView(name), "': not one of ", names));
  }
  if (name.size() == text.size()) return spec;
  for (std::string_view rest = text.substr(name.size() + 1); !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(option.size() + 1, rest.size()));
    const std::string_view key = option.substr(0, option.find('='));
    std::optional<std::string_view> value;
    if (key.size() < option.size()) value = option.substr(key.size() + 1);
    absl::Status status = CheckOption(InfoOf(*spec.format), spec.options, key, value);
    if (!status.ok()) return status;
    spec.options.emplace_back(key, value.value_or(""));
  }
  return spec;
}

}  // namespace cbt
