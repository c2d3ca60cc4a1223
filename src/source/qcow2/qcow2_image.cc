// Opens a qcow2 image and its backing files.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/qcow2.h"
#include "source/open/source_request.h"
#include "source/qcow2/qcow2_format.h"
#include "source/signature/signatures.h"

namespace cbt {
namespace {

// Signatures of other image formats. A backing file of one of them, whose format the overlay does
// not give, must not pass for a raw volume.
struct Signature {
  std::string_view bytes;
  size_t offset;
  const char* format;
};
constexpr Signature kForeign[] = {
    {std::string_view("QED\0", 4), 0, "qed"},
    {"KDMV", 0, "vmdk"},
    {"COWD", 0, "vmdk"},
    {"# Disk DescriptorFile", 0, "vmdk"},
    {"vhdxfile", 0, "vhdx"},
    {"conectix", 0, "vpc"},
    {"\x7f\x10\xda\xbe", 64, "vdi"},
    {"LUKS\xba\xbe", 0, "luks"},
    {"WithoutFreeSpace", 0, "parallels"},
    {"WithouFreSpacExt", 0, "parallels"},
};
constexpr size_t kProbeBytes = 68;
constexpr std::string_view kQcow2Format = "qcow2";

// The image format that the file begins like; empty if none.
absl::StatusOr<std::string_view> FormatSeen(const Image& file) {
  std::array<uint8_t, kProbeBytes> bytes;
  if (absl::Status status = file.Read(0, bytes.size(), bytes.data()); !status.ok()) return status;
  if (LooksLikeQcow2(bytes)) return kQcow2Format;
  for (const Signature& signature : kForeign) {
    if (std::equal(signature.bytes.begin(), signature.bytes.end(), &bytes[signature.offset],
                   [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
      return std::string_view(signature.format);
    }
  }
  return std::string_view();
}

// Fails if qemu has the image open for writing: it then holds a lock on this byte, as a sign to
// other programs.
absl::Status CheckNoWriter(const Image& file) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 101;
  lock.l_len = 1;
  // Without support for locks, writers can't be detected.
  if (::fcntl(file.descriptor(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("qcow2: ", file.label(), ": the image is open for writing in another program"));
}

// The path for the name of a backing file.
absl::StatusOr<std::string> BackingPath(const Image& file, const std::string& directory,
                                        std::string name) {
  constexpr std::string_view kFile = "file:";
  const bool plain = name.rfind(kFile, 0) == 0;
  if (plain) name.erase(0, kFile.size());
  const size_t colon = name.find(':');
  const bool protocol = !plain && colon != std::string::npos && colon < name.find('/');
  if (protocol || name.empty() || (plain && name.front() != '/')) {
    return absl::UnimplementedError(absl::StrCat(
        "qcow2: ", file.label(), ": the name of the backing file, which begins with ",
        Qcow2Quoted(protocol ? name.substr(0, colon + 1) : std::string(kFile)), ", is not a path"));
  }
  return (std::filesystem::path(directory) / name).string();
}

// That a file has no known magic number does not prove that it is raw: a damaged qcow2 image has
// none either, and its tables would be read as the volume. So nothing else may contradict it.
absl::Status CheckPassesForRaw(const Image& file, const std::string& path, uint64_t volume_bytes) {
  constexpr std::string_view kRemedy =
      "if it is raw, say so in the overlay (qemu-img rebase -u -F raw)";
  if (const std::string_view named = ContentByName(path); !named.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "qcow2: ", file.label(), ": the backing file is named like a file of the kind \"",
        AbslView(named), "\", but its content is not, and may be damaged: ", AbslView(kRemedy)));
  }
  if (file.size() != volume_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("qcow2: ", file.label(), ": a backing file of ", file.size(),
                     " bytes without a known format below a volume of ", volume_bytes,
                     " may be a damaged image: ", AbslView(kRemedy)));
  }
  return absl::OkStatus();
}

// True for a raw file, false for qcow2. `overlay` leaves to it what it does not hold.
absl::StatusOr<bool> IsRaw(const Image& file, const std::string& path, const Qcow2Layer& overlay) {
  if (const auto& format = overlay.header.backing_format; format) {
    if (*format == "raw") return true;
    if (*format == "qcow2") return false;
    return absl::UnimplementedError(absl::StrCat("qcow2: ", file.label(),
                                                 ": a backing file of the format ",
                                                 Qcow2Quoted(*format), ", neither qcow2 nor raw"));
  }
  const absl::StatusOr<std::string_view> seen = FormatSeen(file);
  if (!seen.ok()) return seen.status();
  if (*seen == kQcow2Format) return false;
  if (!seen->empty()) {
    return absl::UnimplementedError(
        absl::StrCat("qcow2: ", file.label(), ": a backing file that begins like the format ",
                     AbslView(*seen), "; set its format in the overlay if it is another one"));
  }
  if (absl::Status status = CheckPassesForRaw(file, path, overlay.size()); !status.ok()) {
    return status;
  }
  return true;
}

// Where signatures count whatever the size of the clusters: those of managers of volumes lie in the
// first 8 KiB, most of file systems in these.
constexpr uint64_t kSignatureBytes = uint64_t{64} * 1024;

// A header that was left on a disk which is something else by now. Its own cluster holds nothing
// else, and a guest can't write there. Behind a small one a guest's data or tables may follow,
// which look like a signature only where they happen to lie at its place.
absl::Status CheckNothingElse(const Image& file, const Qcow2Header& header) {
  const absl::Status status = CheckOnlySignature(
      file, {.name = "qcow2",
             .types = {},
             .offset = 0,
             .end = std::max(header.cluster_size(), kSignatureBytes),
             .remedy = "if it is qcow2, say so (--from qcow2:other-signatures=ignore)"});
  // The magic number alone is better evidence than that of a file system.
  return absl::IsUnimplemented(status) ? absl::OkStatus() : status;
}

absl::Status AddLayer(std::shared_ptr<const Image> file, bool raw, const Qcow2Options& options,
                      std::vector<Qcow2Layer>& layers) {
  if (!options.allow_writer) {
    if (absl::Status status = CheckNoWriter(*file); !status.ok()) return status;
  }
  Qcow2Layer layer = {std::move(file), raw, {}};
  if (!raw) {
    absl::StatusOr<Qcow2Header> header = ReadQcow2Header(*layer.file);
    if (!header.ok()) return header.status();
    layer.header = *std::move(header);
    if (!options.ignore_other_signatures) {
      absl::Status status = CheckNothingElse(*layer.file, layer.header);
      if (!status.ok()) return status;
    }
  }
  layers.push_back(std::move(layer));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Image>> OpenBacking(const Qcow2Options& options,
                                                         const std::string& path,
                                                         const std::string& label) {
  if (!options.open_backing) return Image::Open(path, label);
  absl::StatusOr<std::shared_ptr<const Image>> file = options.open_backing(path, label);
  if (file.ok() && *file == nullptr) return absl::InvalidArgumentError("qcow2: no backing file");
  return file;
}

// Opens the chain of backing files below the last of `layers`. `hide_paths`: files go by the label
// of the first one and a number.
absl::Status AddBacking(std::string directory, bool hide_paths, const Qcow2Options& options,
                        std::vector<Qcow2Layer>& layers) {
  while (!layers.back().raw && layers.back().header.backing_name) {
    const Qcow2Layer& overlay = layers.back();
    if (layers.size() >= options.max_depth) {
      return absl::UnimplementedError(absl::StrCat("qcow2: ", layers.front().file->label(),
                                                   ": a chain of more than ", options.max_depth,
                                                   " files"));
    }
    absl::StatusOr<std::string> path =
        BackingPath(*overlay.file, directory, *overlay.header.backing_name);
    if (!path.ok()) return path.status();
    const std::string label =
        hide_paths ? absl::StrCat(layers.front().file->label(), ", backing file ", layers.size())
                   : *path;
    absl::StatusOr<std::shared_ptr<const Image>> file = OpenBacking(options, *path, label);
    if (!file.ok()) return file.status();
    for (const Qcow2Layer& layer : layers) {
      // Loops through hard links count, too: when in doubt, refuse.
      if (!(*file)->MayBeSameFileAs(*layer.file)) continue;
      return absl::DataLossError(absl::StrCat("qcow2: ", overlay.file->label(),
                                              ": the chain of backing files comes back to ",
                                              layer.file->label()));
    }
    absl::StatusOr<bool> raw = IsRaw(**file, *path, overlay);
    if (!raw.ok()) return raw.status();
    absl::Status status = AddLayer(*std::move(file), *raw, options, layers);
    if (!status.ok()) return status;
    directory = std::filesystem::path(*path).parent_path();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Qcow2Image::Parts>> OpenParts(
    std::shared_ptr<const Image> file, const std::string& directory, bool hide_paths,
    const Qcow2Options& options) {
  if (file == nullptr) return absl::InvalidArgumentError("qcow2: no image");
  if (options.max_depth < 1 || options.max_depth > kMaxQcow2Depth) {
    return absl::InvalidArgumentError(
        absl::StrCat("qcow2: a depth of ", options.max_depth, ", not 1 to ", kMaxQcow2Depth));
  }
  auto parts = std::make_unique<Qcow2Image::Parts>();
  absl::Status status = AddLayer(std::move(file), false, options, parts->layers);
  if (!status.ok()) return status;
  const Qcow2Layer& top = parts->layers.front();
  absl::StatusOr<std::vector<Qcow2Snapshot>> snapshots = ReadQcow2Snapshots(*top.file, top.header);
  if (!snapshots.ok()) return snapshots.status();
  parts->snapshots = *std::move(snapshots);
  if (options.follow_backing) {
    status = AddBacking(directory, hide_paths, options, parts->layers);
    if (!status.ok()) return status;
  } else {
    parts->cut = top.header.backing_name.has_value();
  }
  return parts;
}

}  // namespace

Qcow2Image::Qcow2Image(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}

Qcow2Image::~Qcow2Image() = default;

absl::Status CheckQcow2Base(const Qcow2Image& overlay, const Image& base) {
  const absl::StatusOr<std::string_view> seen = FormatSeen(base);
  if (!seen.ok()) return seen.status();
  // A guest's data may look like anything.
  const auto& named = overlay.parts().layers.front().header.backing_format;
  if (seen->empty() || (named && *named != *seen)) return absl::OkStatus();
  const std::string what =
      absl::StrCat("qcow2: ", base.label(), ": begins like the format ", AbslView(*seen));
  if (named) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ", which ", overlay.label(),
                     " says its base has: make a raw image of it first (qemu-img convert -O raw)"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      what, ", and ", overlay.label(),
      " does not say which format its base has: make a raw image of it first (qemu-img convert -O "
      "raw), or say that it is one (qemu-img rebase -u -F raw)"));
}

absl::StatusOr<std::shared_ptr<const Qcow2Image>> Qcow2Image::Open(const std::string& path,
                                                                   const Qcow2Options& options,
                                                                   std::string_view label) {
  absl::StatusOr<std::shared_ptr<const Image>> file = Image::Open(path, label);
  if (!file.ok()) return file.status();
  auto parts = OpenParts(*std::move(file), std::filesystem::path(path).parent_path(),
                         !label.empty(), options);
  if (!parts.ok()) return parts.status();
  return std::shared_ptr<const Qcow2Image>(new Qcow2Image(*std::move(parts)));
}

absl::StatusOr<std::shared_ptr<const Qcow2Image>> Qcow2Image::FromImage(
    std::shared_ptr<const Image> file, const std::string& directory, const Qcow2Options& options) {
  auto parts = OpenParts(std::move(file), directory, true, options);
  if (!parts.ok()) return parts.status();
  return std::shared_ptr<const Qcow2Image>(new Qcow2Image(*std::move(parts)));
}

uint64_t Qcow2Image::virtual_size() const noexcept { return parts_->layers.front().size(); }

uint64_t Qcow2Image::cluster_size() const noexcept {
  return parts_->layers.front().header.cluster_size();
}

uint64_t Qcow2Image::allocation_unit() const noexcept {
  return uint64_t{1} << parts_->layers.front().header.unit_bits();
}

const std::string& Qcow2Image::label() const noexcept {
  return parts_->layers.front().file->label();
}

size_t Qcow2Image::depth() const noexcept { return parts_->layers.size(); }

bool Qcow2Image::has_backing() const noexcept {
  return parts_->layers.front().header.backing_name.has_value();
}

const std::vector<Qcow2Snapshot>& Qcow2Image::snapshots() const noexcept {
  return parts_->snapshots;
}

absl::StatusOr<Qcow2Snapshot> Qcow2Image::FindSnapshot(std::string_view id_or_name) const {
  const Qcow2Snapshot* found = nullptr;
  for (const Qcow2Snapshot& snapshot : parts_->snapshots) {
    if (snapshot.id != id_or_name && snapshot.name != id_or_name) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "qcow2: ", label(), ": more than one snapshot is called ", Qcow2Quoted(id_or_name)));
    }
    found = &snapshot;
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("qcow2: ", label(), ": no snapshot ", Qcow2Quoted(id_or_name)));
  }
  return *found;
}

}  // namespace cbt
