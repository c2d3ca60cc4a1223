#include "cbt/source/files_below.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/source/image.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "map/map_limit.h"
#include "source/directory/beneath.h"
#include "source/input/file_version.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

constexpr size_t kMaxPathBytes = 4096;
// Of a map's file, and of the map that is made of it.
constexpr uint64_t kMaxNamedMapBytes = 256 * kMiB;

// `path` in messages: with what a terminal or a log could take for its own replaced.
std::string Shown(const std::string& path) {
  std::string shown = "file \"";
  for (const char c : path.substr(0, 256)) {
    shown.push_back(c < ' ' || c == '"' || c == '\x7f' ? '?' : c);
  }
  return shown + "\"";
}

absl::Status Refused(const std::string& path, std::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(Shown(path), ": ", absl::string_view(why.data(), why.size())));
}

// Transient errors keep their code; what is wrong with a file is FAILED_PRECONDITION.
absl::Status AsAnswer(const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
      absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) || absl::IsAborted(status)) {
    return status;
  }
  return absl::FailedPreconditionError(status.message());
}

class FilesBelowRoot final : public FilesBelow {
 public:
  FilesBelowRoot(std::shared_ptr<const OwnedDescriptor> root, const FilesBelowOptions& options)
      : root_(std::move(root)), options_(options) {}

  absl::StatusOr<MetadataSource> Open(const NamedFiles& files,
                                      const std::stop_token& stop) const override {
    if (files.format == "cbm") {
      if (files.base_path.empty()) return OpenMap(files);
      return Refused(files.base_path, "a change map needs no base file");
    }
    if (files.format != "image" && files.format != "qcow2") {
      return Refused(files.path, "the format is not \"cbm\", \"image\" or \"qcow2\"");
    }
    if (files.delta && files.base_path.empty()) {
      return Refused(files.path, "one image does not show what changed: name the base's too");
    }
    if (!files.delta && !files.base_path.empty()) {
      return Refused(files.base_path, "what is allocated needs no base file");
    }
    for (const std::string* const path : {&files.path, &files.base_path}) {
      if (IsNbdAddress(*path)) return Refused(*path, "is an address, not a path");
    }
    return OpenImages(files, stop);
  }

 private:
  // Open for reading. `root`: the directory's.
  static absl::StatusOr<int> OpenFile(int root, const std::string& path) {
    if (path.empty() || path.size() > kMaxPathBytes || absl::StrContains(path, '\0')) {
      return Refused(path, "is empty, too long or holds a NUL byte");
    }
    if (path.starts_with('/')) return Refused(path, "the path is not relative to the directory");
    OwnedDescriptor descriptor(OpenBeneath(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!descriptor.has_value()) {
      const int error = errno;
      const std::string text = absl::StrCat(Shown(path), ": ", ErrnoText(error));
      if (IsAbsent(error) || error == EACCES) return absl::FailedPreconditionError(text);
      return absl::UnavailableError(text);
    }
    struct stat stat;
    if (::fstat(descriptor.number(), &stat) != 0) return FileError(Shown(path), errno);
    // Devices could be any volume's, and pipes block.
    if (!S_ISREG(stat.st_mode)) return Refused(path, "is not a regular file");
    return descriptor.Release();
  }

  // Not through a mapping: a process that cut the file meanwhile would end this one.
  absl::StatusOr<MetadataSource> OpenMap(const NamedFiles& files) const {
    const absl::StatusOr<int> opened = OpenFile(root_->number(), files.path);
    if (!opened.ok()) return opened.status();
    const OwnedDescriptor descriptor(*opened);
    struct stat stat;
    if (::fstat(descriptor.number(), &stat) != 0) return FileError(Shown(files.path), errno);
    const auto size = static_cast<uint64_t>(stat.st_size);
    if (size > kMaxNamedMapBytes) {
      return Refused(files.path, "a change map over 256 MiB: send its extents instead");
    }
    DataVersion version = FileVersion(descriptor.number());
    std::vector<uint8_t> bytes(size);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t count = Retry([&] {
        return ::pread(descriptor.number(), bytes.data() + done, bytes.size() - done,
                       static_cast<off_t>(done));
      });
      if (count < 0) return absl::UnavailableError(FileError(Shown(files.path), errno).message());
      if (count == 0) return absl::AbortedError(Shown(files.path) + ": was cut while it was read");
      done += static_cast<size_t>(count);
    }
    const MapLimit limit(kMaxNamedMapBytes);
    const absl::StatusOr<ChangeMap> map = DecodeChangeMap(bytes, Shown(files.path));
    if (!map.ok()) return AsAnswer(map.status());
    if (map->identity().base.empty() == files.delta) {
      return Refused(files.path, files.delta
                                     ? "the map has no base: it reports what is allocated"
                                     : "the map reports what changed, not what is allocated");
    }
    return MetadataSource{.cursor = MakeChangeMapCursor(*map),
                          .version = std::move(version.text),
                          .may_change_unseen = version.of_place};
  }

  absl::StatusOr<MetadataSource> OpenImages(const NamedFiles& files,
                                            const std::stop_token& stop) const {
    const auto versions = std::make_shared<DataVersion>();
    SourceOptions options;
    options.spec.format = files.format == "image" ? SourceFormat::kImage : SourceFormat::kQcow2;
    options.purpose = files.delta ? SourcePurpose::kDelta : SourcePurpose::kAllocated;
    options.block_size = options_.block_size;
    options.executor = options_.executor;
    options.time_limit = options_.time;
    options.stop = stop;
    options.open = [root = root_, versions](const std::string& path) {
      absl::StatusOr<int> descriptor = OpenFile(root->number(), path);
      if (descriptor.ok()) versions->Add(FileVersion(*descriptor));
      return descriptor;
    };
    absl::StatusOr<OpenedSource> source = files.delta
                                              ? OpenDelta(files.base_path, files.path, options)
                                              : OpenSource(files.path, options);
    if (!source.ok()) return AsAnswer(source.status());
    return MetadataSource{.cursor = std::move(source->cursor),
                          .version = std::move(versions->text),
                          .may_change_unseen = versions->of_place};
  }

  const std::shared_ptr<const OwnedDescriptor> root_;
  const FilesBelowOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FilesBelow>> FilesBelow::Create(const std::string& root,
                                                               const FilesBelowOptions& options) {
  if (absl::Status status = CheckImageBlockSize(options.block_size); !status.ok()) return status;
  auto descriptor = std::make_shared<const OwnedDescriptor>(
      cbt::OpenFile(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor->has_value()) {
    const int error = errno;
    const std::string text = absl::StrCat(root, ": ", ErrnoText(error));
    if (error == ENOENT) return absl::NotFoundError(text);
    if (error == EACCES) return absl::PermissionDeniedError(text);
    return absl::InvalidArgumentError(text);
  }
  return std::make_unique<FilesBelowRoot>(std::move(descriptor), options);
}

}  // namespace cbt
