#include "cbt/source/directory_provider.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/text.h"
#include "cbt/source/image.h"
#include "cbt/source/open.h"
#include "cbt/source/qcow2.h"
#include "cbt/transform.h"
#include "source/directory/allowed_sources.h"
#include "source/directory/beneath.h"
#include "source/directory/open_maps.h"
#include "source/directory/snapshot_directory.h"
#include "source/directory/volume_maps.h"
#include "source/directory/volume_sources.h"
#include "source/input/file_version.h"
#include "source/open/source_request.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {
namespace {

constexpr size_t kMaxIdBytes = 4096;
constexpr char kNotReadyExtension[] = ".partial";

// An id, which may hold any bytes, quoted for a message.
std::string Quote(std::string_view id) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(AbslView(id.substr(0, 256))), "\"");
}

// A parsed id: the volume is the directory ("" for the root itself).
struct SnapshotId {
  std::string id;
  std::string volume;
  std::string name;
};

absl::StatusOr<SnapshotId> ParseId(std::string_view id) {
  const auto invalid = [id](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("snapshot id ", Quote(id), ": ", why));
  };
  if (id.size() > kMaxIdBytes) return invalid("is too long");
  if (id.find('\0') != std::string_view::npos) return invalid("holds a NUL byte");
  if (!id.empty() && id.front() == '/') return invalid("is an absolute path");
  size_t begin = 0;
  for (;;) {
    const size_t slash = id.find('/', begin);
    const std::string_view part = id.substr(begin, slash - begin);
    if (part.empty()) return invalid("has an empty part");
    if (part == "." || part == "..") return invalid("has a part that is \".\" or \"..\"");
    if (slash == std::string_view::npos) {
      const std::string_view volume = begin == 0 ? std::string_view() : id.substr(0, begin - 1);
      return SnapshotId{std::string(id), std::string(volume), std::string(part)};
    }
    begin = slash + 1;
  }
}

// Whether the file `name` can be an image of the snapshot.
bool CanBeImageOf(const SnapshotId& id, std::string_view name) {
  return name.substr(0, name.rfind('.')) == id.name && !name.ends_with(VolumeMaps::kMapExtension) &&
         !name.ends_with(VolumeSources::kExtension);
}

// The absolute path of the root as given, and with links resolved: a map may have been made through
// either. Paths that can't be determined are left out.
std::vector<std::string> PathsOf(const std::string& root) {
  std::vector<std::string> paths;
  std::error_code ignored;
  std::filesystem::path given = std::filesystem::absolute(root, ignored).lexically_normal();
  // "vol1/" and "vol1/." are "vol1".
  if (!given.has_filename()) given = given.parent_path();
  if (!given.empty()) paths.push_back(given.string());
  const std::filesystem::path real = std::filesystem::canonical(root, ignored);
  if (!real.empty() && real != given) paths.push_back(real.string());
  return paths;
}

// Whether the file can hold an image; empty if that is unknown.
std::optional<bool> HoldsImage(int descriptor) noexcept {
  struct stat stat;
  if (::fstat(descriptor, &stat) != 0) return std::nullopt;
  return S_ISREG(stat.st_mode) || S_ISBLK(stat.st_mode);
}

class DirectoryProvider final : public SnapshotProvider {
 public:
  DirectoryProvider(OwnedDescriptor root, std::vector<std::string> root_paths,
                    const DirectoryProviderOptions& options, AllowedSources allowed)
      : root_(std::move(root)),
        root_paths_(std::move(root_paths)),
        options_(options),
        rules_{std::move(allowed), options.source_time} {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    absl::StatusOr<SnapshotId> id = ParseId(snapshot_id);
    if (!id.ok()) return id.status();
    const SnapshotDirectory directory = SnapshotDirectory::Read(root_.number(), id->volume);
    absl::StatusOr<Snapshot> image = OpenImage(directory, *id);
    if (!image.ok() && !absl::IsNotFound(image.status())) return image.status();
    const VolumeSources sources = VolumeSources::Read(directory, rules_);
    DataVersion version;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> reported =
        sources.Open({}, id->name, options_.block_size, &version, context.stop);
    if (!reported.ok()) return About(*id, reported.status());
    if (*reported != nullptr) return FromSource(*id, *std::move(reported), image, version);
    if (image.ok() && image->qcow2 != nullptr) {
      return FromMap(MakeQcow2AllocationCursor({image->qcow2, std::nullopt}), VersionOf(*image));
    }
    if (image.ok()) {
      return Source(MakeImageAllocationCursor(image->file, CursorOptions()), VersionOf(*image));
    }
    // The image may be gone while a map of it is left.
    const VolumeMaps maps = VolumeMaps::Read(directory, root_paths_, open_maps_);
    absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = maps.Allocated(id->name, &version.text);
    if (!cursor.ok()) return About(*id, cursor.status());
    if (*cursor != nullptr) return FromMap(*std::move(cursor), version);
    return WithoutImage(maps, sources, *id, image.status());
  }

  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    absl::StatusOr<SnapshotId> base_id = ParseId(base_snapshot_id);
    if (!base_id.ok()) return base_id.status();
    absl::StatusOr<SnapshotId> target_id = ParseId(target_snapshot_id);
    if (!target_id.ok()) return target_id.status();
    if (base_id->volume != target_id->volume) return OfDifferentVolumes(*base_id, *target_id);
    SnapshotDirectory directory = SnapshotDirectory::Read(root_.number(), target_id->volume);
    absl::StatusOr<Snapshot> base = OpenImage(directory, *base_id);
    absl::StatusOr<Snapshot> target = OpenImage(directory, *target_id);
    // A snapshot that exists but is not ready is not answered from a map either.
    for (const auto* image : {&base, &target}) {
      if (!image->ok() && !absl::IsNotFound(image->status())) return image->status();
    }
    VolumeMaps maps = VolumeMaps::Read(directory, root_paths_, open_maps_);
    DataVersion version;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
        maps.Delta(base_id->name, target_id->name, &version.text);
    // Something changed since the directory was listed: list it again.
    for (int tries = 2; absl::IsAborted(cursor.status()) && tries > 0; --tries) {
      directory = SnapshotDirectory::Read(root_.number(), target_id->volume);
      maps = VolumeMaps::Read(directory, root_paths_, open_maps_);
      cursor = maps.Delta(base_id->name, target_id->name, &version.text);
    }
    if (!cursor.ok()) return About(*target_id, cursor.status());
    if (*cursor != nullptr) return FromSource(*target_id, *std::move(cursor), target, version);
    const VolumeSources sources = VolumeSources::Read(directory, rules_);
    cursor =
        sources.Open(base_id->name, target_id->name, options_.block_size, &version, context.stop);
    if (!cursor.ok()) return About(*target_id, cursor.status());
    if (*cursor != nullptr) return FromSource(*target_id, *std::move(cursor), target, version);
    // An unknown target is the more useful error than one whose data is gone.
    const bool known = !maps.damage().ok() || !sources.damage().ok() ||
                       maps.Knows(target_id->name) || sources.Knows(target_id->name);
    if (!target.ok() && !known) return target.status();
    if (!base.ok()) return WithoutImage(maps, sources, *base_id, base.status());
    if (!target.ok()) return WithoutImage(maps, sources, *target_id, target.status());
    version = VersionOf(*base);
    version.Add(VersionOf(*target));
    if (base->qcow2 != nullptr && target->qcow2 != nullptr) {
      return FromMap(
          MakeQcow2DeltaCursor({base->qcow2, std::nullopt}, {target->qcow2, std::nullopt}),
          version);
    }
    if (base->qcow2 != nullptr || target->qcow2 != nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("snapshots ", Quote(base_id->id), " and ",
                                                        Quote(target_id->id),
                                                        " are images of different formats"));
    }
    return Source(MakeImageDeltaCursor(base->file, target->file, CursorOptions()), version);
  }

 private:
  // An open image: its file, and its contents if that is qcow2.
  struct Snapshot {
    std::shared_ptr<const Image> file;
    std::shared_ptr<const Qcow2Image> qcow2;

    uint64_t size() const noexcept {
      return qcow2 != nullptr ? qcow2->virtual_size() : file->size();
    }
  };

  // The version of all files that an answer is read from.
  static DataVersion VersionOf(const Snapshot& snapshot) {
    if (snapshot.qcow2 == nullptr) return FileVersion(snapshot.file->descriptor());
    DataVersion version;
    for (const Qcow2Layer& layer : snapshot.qcow2->parts().layers) {
      version.Add(FileVersion(layer.file->descriptor()));
    }
    return version;
  }

  ImageOptions CursorOptions() const {
    ImageOptions options;
    options.block_size = options_.block_size;
    options.executor = options_.executor;
    return options;
  }

  absl::StatusOr<MetadataSource> Source(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor,
                                        DataVersion version) const {
    if (!cursor.ok()) return cursor.status();
    return MetadataSource{.cursor = *std::move(cursor),
                          .type = options_.type,
                          .block_size = options_.block_size,
                          .version = std::move(version.text),
                          .may_change_unseen = version.of_place};
  }

  // The answer of a map, in blocks of the requested size if its own are smaller.
  absl::StatusOr<MetadataSource> FromMap(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor,
                                         DataVersion version) const {
    if (!cursor.ok()) return cursor.status();
    if ((*cursor)->granularity() % options_.block_size == 0) {
      return Source(std::move(cursor), std::move(version));
    }
    return Source(AlignOutward(*std::move(cursor), options_.block_size), std::move(version));
  }

  // The same next to an image, if there is one: both must have the same size.
  absl::StatusOr<MetadataSource> FromSource(const SnapshotId& id,
                                            std::unique_ptr<ExtentCursor> cursor,
                                            const absl::StatusOr<Snapshot>& image,
                                            DataVersion version) const {
    if (image.ok() && image->size() != cursor->capacity()) {
      return absl::FailedPreconditionError(
          absl::StrCat("snapshot ", Quote(id.id), ": its image has ", image->size(),
                       " bytes, the map is of a volume of ", cursor->capacity()));
    }
    return FromMap(std::move(cursor), std::move(version));
  }

  static absl::Status About(const SnapshotId& id, const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("snapshot ", Quote(id.id), ": ", status.message()));
  }

  // The error for a snapshot without an image and without an answer.
  static absl::Status WithoutImage(const VolumeMaps& maps, const VolumeSources& sources,
                                   const SnapshotId& id, const absl::Status& not_found) {
    if (!maps.damage().ok()) return About(id, maps.damage());
    if (!sources.damage().ok()) return About(id, sources.damage());
    if (!maps.Knows(id.name) && !sources.Knows(id.name)) return not_found;
    return About(id, absl::FailedPreconditionError("its image is gone, and no map has the answer"));
  }

  // Backing files must lie below the root, too.
  absl::StatusOr<Snapshot> OpenQcow2(const SnapshotId& id,
                                     std::shared_ptr<const Image> file) const {
    Qcow2Options options;
    options.open_backing =
        [root = root_.number()](
            const std::string& path,
            const std::string& label) -> absl::StatusOr<std::shared_ptr<const Image>> {
      const int descriptor = OpenBeneath(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (descriptor >= 0) return Image::FromDescriptor(descriptor, label);
      return absl::NotFoundError(absl::StrCat(label, ": the backing file can't be opened"));
    };
    auto qcow2 = Qcow2Image::FromImage(file, id.volume.empty() ? "." : id.volume, options);
    if (qcow2.ok()) return Snapshot{std::move(file), *std::move(qcow2)};
    if (absl::IsUnavailable(qcow2.status()) || absl::IsAborted(qcow2.status())) {
      return qcow2.status();
    }
    return absl::FailedPreconditionError(qcow2.status().message());
  }

  // The error for a delta between volumes. A snapshot that can't be had is reported first.
  absl::Status OfDifferentVolumes(const SnapshotId& base, const SnapshotId& target) const {
    for (const SnapshotId* const id : {&base, &target}) {
      const absl::StatusOr<Snapshot> image =
          OpenImage(SnapshotDirectory::Read(root_.number(), id->volume), *id);
      if (!image.ok()) return image.status();
    }
    return absl::InvalidArgumentError(absl::StrCat("snapshots ", Quote(base.id), " and ",
                                                   Quote(target.id), " are of different volumes"));
  }

  absl::StatusOr<Snapshot> OpenImage(const SnapshotDirectory& directory,
                                     const SnapshotId& id) const {
    const auto not_found = [&id] {
      return absl::NotFoundError(absl::StrCat("snapshot ", Quote(id.id), ": no such snapshot"));
    };
    // A snapshot that can't be looked for is not reported as absent.
    if (!directory.status().ok()) {
      return absl::UnavailableError(
          absl::StrCat("snapshot ", Quote(id.id), ": ", directory.status().message()));
    }
    OwnedDescriptor found;
    bool not_ready = false;
    bool unreadable = false;
    bool ambiguous = false;
    bool is_qcow2 = false;
    std::string_view foreign;
    for (const std::string& name : directory.names()) {
      if (!CanBeImageOf(id, name)) continue;
      OwnedDescriptor descriptor(directory.Open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
      if (!descriptor.has_value()) {
        // Links that lead out of the root and files that have just been removed are not snapshots;
        // one that exists and can't be opened is not reported as absent.
        unreadable |= errno != ENOENT && errno != EXDEV && errno != ELOOP && errno != ENXIO;
        continue;
      }
      const std::optional<bool> holds_image = HoldsImage(descriptor.number());
      if (!holds_image.value_or(true)) continue;
      if (!holds_image.has_value()) {
        unreadable = true;
      } else if (name == id.name + kNotReadyExtension) {
        not_ready = true;
      } else if (found.has_value()) {
        ambiguous = true;
      } else {
        found = std::move(descriptor);
        is_qcow2 = HasNameOf(SourceFormat::kQcow2, name);
        if (!is_qcow2) foreign = ContentByName(name);
      }
    }
    if (ambiguous) {
      return absl::FailedPreconditionError(
          absl::StrCat("snapshot ", Quote(id.id), ": more than one file has this name"));
    }
    // Even if another file was found: which of the two is the snapshot is unknown.
    if (not_ready || unreadable) {
      return absl::UnavailableError(absl::StrCat("snapshot ", Quote(id.id), ": ",
                                                 not_ready ? "not ready" : "can't be opened"));
    }
    if (!found.has_value()) return not_found();
    if (!foreign.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "snapshot ", Quote(id.id), ": its file is named like a file of the kind \"",
          AbslView(foreign), "\", not like a raw image: rename it, or describe it in a file ",
          AbslView(VolumeSources::kExtension)));
    }
    const std::string label = Quote(id.id);
    absl::StatusOr<std::shared_ptr<const Image>> image =
        Image::FromDescriptor(found.Release(), label);
    if (!image.ok()) return image.status();
    if (is_qcow2) return OpenQcow2(id, *std::move(image));
    return Snapshot{*std::move(image), nullptr};
  }

  const OwnedDescriptor root_;
  const std::vector<std::string> root_paths_;
  const DirectoryProviderOptions options_;
  const VolumeSources::Rules rules_;
  OpenMaps open_maps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotProvider>> MakeDirectoryProvider(
    const std::string& root, const DirectoryProviderOptions& options) {
  if (absl::Status status = CheckImageBlockSize(options.block_size); !status.ok()) return status;
  if (options.type == BlockMetadataType::kUnknown) {
    return absl::InvalidArgumentError("the block metadata type must be known");
  }
  if (options.source_time <= std::chrono::milliseconds(0)) {
    return absl::InvalidArgumentError("source_time must be above 0");
  }
  absl::StatusOr<AllowedSources> allowed = AllowedSources::Create(options.allowed_sources);
  if (!allowed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("allowed source ", allowed.status().message()));
  }
  OwnedDescriptor descriptor(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.has_value()) {
    const int error = errno;
    const std::string text = absl::StrCat("root: ", root, ": ", ErrnoText(error));
    if (error == ENOENT) return absl::NotFoundError(text);
    if (error == EACCES) return absl::PermissionDeniedError(text);
    return absl::InvalidArgumentError(text);
  }
  return std::make_unique<DirectoryProvider>(std::move(descriptor), PathsOf(root), options,
                                             *std::move(allowed));
}

}  // namespace cbt
