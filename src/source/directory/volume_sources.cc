#include "source/directory/volume_sources.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/lines.h"
#include "base/text.h"
#include "cbt/source/byte_stream.h"
#include "cbt/units.h"
#include "map/map_limit.h"
#include "source/directory/beneath.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

// The maximum size of a `*.source` file.
constexpr size_t kMaxBytes = 64 * kKiB;

absl::StatusOr<std::string> ReadText(int descriptor, const std::string& name) {
  const std::unique_ptr<ByteStream> stream = MakeDescriptorStream(descriptor, name);
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const absl::StatusOr<size_t> count =
        stream->Read({reinterpret_cast<uint8_t*>(text.data()) + size, text.size() - size});
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    size += *count;
  }
  if (size > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": has more than ", kMaxBytes, " bytes"));
  }
  text.resize(size);
  return text;
}

absl::Status NotListed(const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": is outside of the root and not listed (cbtctl serve --allow-source)"));
}

// Returns `descriptor` if reading it can't block; otherwise closes it. A pipe without a writer
// would block the thread, and with it one stream after the other.
absl::StatusOr<int> DataFile(int descriptor, const std::string& name) {
  OwnedDescriptor owner(descriptor);
  struct stat stat;
  if (::fstat(descriptor, &stat) != 0) return FileError(name, errno);
  if (S_ISREG(stat.st_mode) || S_ISBLK(stat.st_mode)) return owner.Release();
  return absl::FailedPreconditionError(
      absl::StrCat(name, ": is neither a regular file nor a block device"));
}

}  // namespace

VolumeSources VolumeSources::Read(const SnapshotDirectory& directory, const Rules& rules) {
  VolumeSources sources(directory.root(), directory.volume(), rules);
  if (!directory.status().ok()) sources.damage_ = AsDamage(directory.status());
  for (const std::string& name : directory.names()) {
    if (!absl::EndsWith(name, AbslView(kExtension))) continue;
    const int file = sources.Descriptor(name);
    if (file < 0 && !MayBeThere(errno)) continue;
    const absl::StatusOr<int> opened = file < 0 ? FileError(name, errno) : DataFile(file, name);
    const absl::StatusOr<std::string> text =
        opened.ok() ? ReadText(*opened, name) : opened.status();
    absl::StatusOr<Entry> entry = text.ok() ? sources.Parse(name, *text) : text.status();
    if (entry.ok()) {
      sources.entries_.push_back(*std::move(entry));
    } else if (sources.damage_.ok()) {
      sources.damage_ = AsDamage(entry.status());
    }
  }
  // Only entries are compared with them, and each open would pay for all files of the volume.
  if (sources.entries_.empty()) return sources;
  for (const std::string& name : directory.names()) {
    if (absl::EndsWith(name, AbslView(kExtension))) continue;
    sources.files_.insert(name.substr(0, name.rfind('.')));
  }
  return sources;
}

int VolumeSources::Descriptor(const std::string& path) const {
  const std::string beneath = volume_.empty() ? path : absl::StrCat(volume_, "/", path);
  return OpenBeneath(root_, beneath, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

absl::StatusOr<int> VolumeSources::OpenFile(const std::string& path) const {
  const bool outside = path.starts_with('/');
  if (outside && !rules_->allowed.AllowsPath(path)) return NotListed(path);
  const int descriptor =
      outside ? rules_->allowed.Open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : Descriptor(path);
  if (descriptor >= 0) return DataFile(descriptor, path);
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", ErrnoText(errno)));
}

absl::Status VolumeSources::CheckReach(const Entry& entry) const {
  if (!IsNbdAddress(entry.address)) return absl::OkStatus();
  bool any_export = false;
  for (const auto& [key, value] : entry.options.spec.options) {
    any_export |= key == "export";
    const bool is_path = key == "tls-certificates" || key == "tls-psk";
    if (is_path && !rules_->allowed.AllowsPath(value)) return NotListed(value);
  }
  if (rules_->allowed.AllowsExport(entry.address, any_export)) return absl::OkStatus();
  return NotListed(entry.address);
}

absl::StatusOr<VolumeSources::Entry> VolumeSources::Parse(const std::string& file,
                                                          std::string_view text) const {
  Entry entry;
  entry.file = file;
  entry.text = text;
  // The system's calls would take what is before it.
  if (text.find('\0') != std::string_view::npos) {
    return absl::FailedPreconditionError(absl::StrCat(file, ": holds a NUL byte"));
  }
  std::set<std::string_view> keys;
  const absl::Status status = ForEachLine(text, [&](size_t number, std::string_view line) {
    const size_t key_begin = line.find_first_not_of(kBlanks);
    const size_t key_end = std::min(line.find_first_of(kBlanks, key_begin), line.size());
    const std::string_view key = line.substr(key_begin, key_end - key_begin);
    // Two values are ambiguous.
    if (!keys.insert(key).second) return BadLine(number, "each key once");
    const size_t value_begin = line.find_first_not_of(kBlanks, key_end);
    if (value_begin == std::string_view::npos) return BadLine(number, "a key and its value");
    const std::string_view value =
        line.substr(value_begin, line.find_last_not_of(kBlanks) + 1 - value_begin);
    const auto size = [&](std::optional<uint64_t>& out) {
      const absl::StatusOr<uint64_t> parsed = ParseNumber(value, kMaxCapacity);
      if (parsed.ok()) out = *parsed;
      return parsed.ok() ? absl::OkStatus() : BadLine(number, "a size in bytes");
    };
    if (key == "base") {
      entry.base = value;
    } else if (key == "target") {
      entry.target = value;
    } else if (key == "address") {
      entry.address = value;
    } else if (key == "capacity") {
      return size(entry.options.capacity);
    } else if (key == "base-capacity") {
      return size(entry.options.base_capacity);
    } else if (key == "from") {
      absl::StatusOr<SourceSpec> spec = ParseSourceSpec(value);
      if (!spec.ok()) return spec.status();
      entry.options.spec = *std::move(spec);
    } else {
      return BadLine(number, "base, target, address, from, capacity or base-capacity");
    }
    return absl::OkStatus();
  });
  if (!status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(file, ": ", status.message()));
  }
  if (entry.target.empty() || entry.address.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(file, ": names no target, or no address"));
  }
  return entry;
}

bool VolumeSources::Knows(const std::string& name) const {
  for (const Entry& entry : entries_) {
    if (entry.base == name || entry.target == name) return true;
  }
  return false;
}

absl::Status VolumeSources::CheckNames(const Entry& entry, const OpenedSource& source) const {
  const ChangeMapIdentity& identity = source.identity;
  // Other formats use the storage system's own names of volumes.
  if (source.format == SourceFormat::kChangeMap && !identity.volume.empty() &&
      identity.volume != "." &&
      !absl::EndsWith(absl::StrCat("/", volume_), absl::StrCat("/", identity.volume)) &&
      !volume_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        entry.file, ": ", entry.address, " is a map of the volume \"", identity.volume, "\""));
  }
  const auto check = [&](std::string_view what, const std::string& name, const std::string& meant) {
    const std::string prefix = absl::StrCat(volume_, "/");
    const std::string own = absl::StartsWith(name, prefix) ? name.substr(prefix.size()) : name;
    if (own.empty() || own == meant || (!files_.contains(own) && !Knows(own))) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(entry.file, ": ", entry.address,
                                                      " names the ", AbslView(what), " \"", name,
                                                      "\", not \"", meant, "\""));
  };
  absl::Status status = check("base", identity.base, entry.base);
  return status.ok() ? check("target", identity.target, entry.target) : status;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeSources::Open(
    const std::string& base, const std::string& target, uint64_t block_size, DataVersion* version,
    const std::stop_token& stop) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.base != base || entry.target != target) continue;
    if (found != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(found->file, " and ", entry.file, " are about the same snapshots"));
    }
    found = &entry;
  }
  if (found == nullptr) return nullptr;
  if (absl::Status status = CheckReach(*found); !status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(found->file, ": ", status.message()));
  }
  SourceOptions options = found->options;
  options.purpose = base.empty() ? SourcePurpose::kAllocated : SourcePurpose::kDelta;
  options.block_size = block_size;
  options.label = found->file;
  options.time_limit = rules_->time;
  options.stop = stop;
  // Captured by value: the cursor of a chain of files may outlive this object.
  const auto files = std::make_shared<DataVersion>();
  // What an NBD server serves there, and since when, can't be known.
  files->of_place = IsNbdAddress(found->address);
  options.open = [self = VolumeSources(root_, volume_, *rules_), files](const std::string& path) {
    absl::StatusOr<int> descriptor = self.OpenFile(path);
    if (descriptor.ok()) files->Add(FileVersion(*descriptor));
    return descriptor;
  };
  const MapLimit limit(kMaxOwnMapBytes);
  absl::StatusOr<OpenedSource> source = OpenSource(found->address, options);
  if (version != nullptr) {
    *version = {.text = absl::StrCat("source:", found->text, "\n", files->text),
                .of_place = files->of_place};
  }
  if (source.ok() && source->format == SourceFormat::kImage &&
      !found->options.spec.format.has_value()) {
    // Images are snapshots here without a `*.source` file. One that is an image only because no
    // other format matches may be a list that lost its beginning.
    return absl::FailedPreconditionError(
        absl::StrCat(found->file, ": ", found->address,
                     " has no format that is detected by its content: name the format (from)"));
  }
  if (source.ok()) {
    absl::Status names = CheckNames(*found, *source);
    if (!names.ok()) return names;
    return std::move(source->cursor);
  }
  if (absl::IsUnavailable(source.status()) || absl::IsResourceExhausted(source.status()) ||
      absl::IsDeadlineExceeded(source.status()) || absl::IsCancelled(source.status())) {
    return source.status();
  }
  return absl::FailedPreconditionError(source.status().message());
}

}  // namespace cbt
