#include "source/directory/volume_maps.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "source/directory/beneath.h"

namespace cbt {
namespace {

// Maps up to this size are checked in full before the stream begins, which takes milliseconds;
// larger ones as they are read.
constexpr uint64_t kCheckedAtOnce = 16 * kMiB;

// The manifest file of a chain, see docs/reference/format.md.
constexpr char kManifest[] = "CHAIN";

// The number of attempts to open a chain that keeps changing.
constexpr int kLooksAtAChain = 5;

absl::StatusOr<std::vector<uint8_t>> ManifestBytes(const std::string& directory,
                                                   const std::string& name) {
  const absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      MappedFile::Open(absl::StrCat(directory, "/", kManifest), name);
  if (!file.ok()) return file.status();
  return std::vector<uint8_t>((*file)->bytes().begin(), (*file)->bytes().end());
}

// The maps that a delta between two snapshots of a chain consists of. Appending to the chain does
// not change it.
std::string VersionOf(const ChainManifest& manifest, const std::string& base,
                      const std::string& target) {
  std::string version = absl::StrCat("chain:", manifest.granularity);
  bool inside = false;
  for (const ChainEntry& entry : manifest.entries) {
    if (inside) absl::StrAppend(&version, ":", entry.capacity, ".", entry.file.checksum);
    inside = (inside || entry.id == base) && entry.id != target;
  }
  return version;
}

// The extents of a cursor, one at a time.
class Extents {
 public:
  explicit Extents(ExtentCursor& cursor) : cursor_(cursor) {}

  // Empty at the end.
  absl::StatusOr<std::optional<Extent>> Next() {
    while (at_ == batch_.size()) {
      if (complete_) return std::nullopt;
      at_ = 0;
      const absl::StatusOr<Step> step = cursor_.Next(batch_);
      if (!step.ok()) return step.status();
      complete_ = *step == Step::kComplete;
    }
    return batch_[at_++];
  }

 private:
  ExtentCursor& cursor_;
  ExtentBatch batch_;
  size_t at_ = 0;
  bool complete_ = false;
};

// True if both, of the same granularity, have the same capacity and the same extents, which are
// maximal in both.
absl::StatusOr<bool> TellTheSame(ExtentCursor& a, ExtentCursor& b) {
  if (a.capacity() != b.capacity()) return false;
  Extents of_a(a);
  Extents of_b(b);
  for (;;) {
    const absl::StatusOr<std::optional<Extent>> from_a = of_a.Next();
    if (!from_a.ok()) return from_a.status();
    const absl::StatusOr<std::optional<Extent>> from_b = of_b.Next();
    if (!from_b.ok()) return from_b.status();
    if (*from_a != *from_b) return false;
    if (!from_a->has_value()) return true;
  }
}

}  // namespace

VolumeMaps::VolumeMaps(int root, std::string volume, const std::vector<std::string>& root_paths,
                       OpenMaps& open)
    : root_(root), volume_(std::move(volume)), root_paths_(root_paths), open_(&open) {}

VolumeMaps VolumeMaps::Read(const SnapshotDirectory& directory,
                            const std::vector<std::string>& root_paths, OpenMaps& open) {
  VolumeMaps maps(directory.root(), directory.volume(), root_paths, open);
  if (!directory.status().ok()) maps.NoteDamage(directory.status());
  for (const std::string& name : directory.names()) {
    const std::string path = directory.PathOf(name);  // before anything is open: it may throw
    if (absl::EndsWith(name, AbslView(kMapExtension))) {
      const int file = directory.Open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (file >= 0) {
        maps.AddMap(file, name, path);
      } else if (MayBeThere(errno)) {
        maps.NoteDamage(FileError(name, errno));
      }
    } else if (absl::EndsWith(name, AbslView(kChainExtension))) {
      const int chain = directory.Open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (chain >= 0) {
        maps.AddChain(chain, name);
      } else if (MayBeThere(errno)) {
        maps.NoteDamage(FileError(name, errno));
      }
    }
  }
  return maps;
}

void VolumeMaps::NoteDamage(const absl::Status& status) {
  if (damage_.ok()) damage_ = AsDamage(status);
}

void VolumeMaps::AddMap(int descriptor, const std::string& file, const std::string& path) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> bytes =
      MappedFile::FromDescriptor(OwnedDescriptor(descriptor), file);
  if (!bytes.ok()) return NoteDamage(bytes.status());
  absl::StatusOr<MapFileParts> parts = ParseMapFile((*bytes)->bytes(), file);
  if (!parts.ok()) return NoteDamage(parts.status());
  if (IsOurs(parts->header.identity.volume)) {
    maps_.push_back({file, path, std::move(parts->header)});
  }
}

void VolumeMaps::AddChain(int descriptor, const std::string& file) {
  // Through the descriptor, because the path may lead out of the root by now.
  OwnedDescriptor owner(descriptor);
  auto directory = std::make_shared<const OwnedDescriptor>(std::move(owner));
  const std::string path = absl::StrCat("/proc/self/fd/", descriptor);
  // The manifest must be the one that the chain was opened with: it identifies the chain's answers.
  absl::StatusOr<std::vector<uint8_t>> before = ManifestBytes(path, file);
  for (int look = 1;; ++look) {
    absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
        ChangeChain::Open(path, ChangeChain::Access::kRead, {.name = file});
    if (absl::IsNotFound(chain.status())) return;
    if (!chain.ok()) return NoteDamage(chain.status());
    absl::StatusOr<std::vector<uint8_t>> after = ManifestBytes(path, file);
    if (!after.ok()) return NoteDamage(after.status());
    if (!before.ok() || *before != *after) {
      if (look == kLooksAtAChain) {
        return NoteDamage(absl::UnavailableError(absl::StrCat(file, ": keeps changing")));
      }
      before = std::move(after);
      continue;
    }
    absl::StatusOr<ChainManifest> manifest = DecodeManifest(*after, file);
    if (!manifest.ok()) return NoteDamage(manifest.status());
    if (IsOurs((*chain)->volume())) {
      chains_.push_back({std::move(directory), *std::move(chain), file, *std::move(manifest)});
    }
    return;
  }
}

bool VolumeMaps::IsOurs(const std::string& volume) const {
  // `cbtctl delta ./mon.img ./tue.img` calls its directory ".".
  if (volume.empty() || volume == "." || volume == volume_) return true;
  if (volume_.empty()) {
    return std::any_of(root_paths_.begin(), root_paths_.end(), [&volume](const std::string& path) {
      return absl::EndsWith(path, absl::StrCat("/", volume));
    });
  }
  return absl::EndsWith(volume_, absl::StrCat("/", volume));
}

std::string VolumeMaps::IdOf(const std::string& name) const {
  return volume_.empty() ? name : absl::StrCat(volume_, "/", name);
}

bool VolumeMaps::Names(const std::string& claimed, const std::string& name) const {
  return claimed == name || claimed == IdOf(name);
}

bool VolumeMaps::Knows(const std::string& name) const {
  for (const Map& map : maps_) {
    const ChangeMapIdentity& identity = map.header.identity;
    if (Names(identity.base, name) || Names(identity.target, name)) return true;
  }
  for (const Chain& each : chains_) {
    if (each.chain->Contains(name) || each.chain->Contains(IdOf(name))) return true;
  }
  return false;
}

// An empty base asks for what is allocated.
std::vector<VolumeMaps::Witness> VolumeMaps::MapsOf(const std::string& base,
                                                    const std::string& target) const {
  std::vector<Witness> witnesses;
  std::vector<uint64_t> checksums;
  for (const Map& map : maps_) {
    const ChangeMapIdentity& identity = map.header.identity;
    const bool same_base = base.empty() ? identity.base.empty() : Names(identity.base, base);
    if (!same_base || !Names(identity.target, target)) continue;
    // Copies of a map need no comparison.
    if (std::find(checksums.begin(), checksums.end(), map.header.checksum) != checksums.end()) {
      continue;
    }
    checksums.push_back(map.header.checksum);
    witnesses.push_back({map.file, absl::StrCat("map:", map.header.checksum),
                         [this, &map] { return OpenMap(map); }});
  }
  return witnesses;
}

// Not opened earlier, because a directory may hold more maps than a process may have open files.
absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::OpenMap(const Map& of) const {
  const auto is_another = [&of] {
    return absl::AbortedError(
        absl::StrCat(of.file, ": was replaced or removed since the directory was listed"));
  };
  OwnedDescriptor descriptor(OpenBeneath(root_, of.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.has_value()) {
    return IsAbsent(errno) ? is_another() : AsDamage(FileError(of.file, errno));
  }
  const absl::StatusOr<LazyMap> map =
      open_->Open(std::move(descriptor), of.path, of.file, of.header.checksum);
  if (!map.ok()) return AsDamage(map.status());
  if (map->header.checksum != of.header.checksum) return is_another();
  if (map->header.payload_bytes <= kCheckedAtOnce) {
    for (size_t i = 0; i < map->index->size(); ++i) {
      if (absl::StatusOr<Container> container = map->index->Load(i); !container.ok()) {
        return absl::FailedPreconditionError(container.status().message());
      }
    }
  }
  return MakeLazyMapCursor(*map);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::AgreedBy(
    const std::vector<Witness>& witnesses, std::string* version) {
  if (witnesses.empty()) return nullptr;
  const auto answer = [version](const Witness& witness) {
    if (version != nullptr) *version = witness.version;
    return witness.open();
  };
  if (witnesses.size() == 1) return answer(witnesses.front());
  const auto differ = [](const Witness& a, const Witness& b) {
    return absl::FailedPreconditionError(
        absl::StrCat(a.file, " and ", b.file, " are about the same snapshots and differ"));
  };
  std::vector<std::unique_ptr<ExtentCursor>> cursors;
  absl::Status backward;
  for (size_t i = 0; i < witnesses.size(); ++i) {
    absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = witnesses[i].open();
    if (cursor.ok()) {
      cursors.push_back(*std::move(cursor));
    } else if (absl::IsInvalidArgument(cursor.status())) {
      // According to this one the base is newer, which another one contradicts.
      if (!cursors.empty()) return differ(witnesses[0], witnesses[i]);
      backward = cursor.status();
    } else {
      return cursor.status();
    }
    if (!backward.ok() && !cursors.empty()) return differ(witnesses[0], witnesses[i]);
  }
  if (cursors.empty()) return backward;
  // Rounded answers can only be compared in coarse blocks. The coarsest has to answer: a finer one
  // may have been rounded from other changes in the same blocks.
  size_t coarsest = 0;
  for (size_t i = 1; i < cursors.size(); ++i) {
    if (cursors[i]->granularity() > cursors[coarsest]->granularity()) coarsest = i;
  }
  const uint64_t granularity = cursors[coarsest]->granularity();
  for (size_t i = 0; i < cursors.size(); ++i) {
    if (i == coarsest) continue;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> other =
        AlignOutward(std::move(cursors[i]), granularity);
    if (!other.ok()) return other.status();
    if (absl::Status status = cursors[coarsest]->Seek(0); !status.ok()) return status;
    const absl::StatusOr<bool> same = TellTheSame(*cursors[coarsest], **other);
    if (absl::IsDataLoss(same.status())) {
      return absl::FailedPreconditionError(same.status().message());
    }
    if (!same.ok()) return same.status();
    if (!*same) return differ(witnesses[std::min(i, coarsest)], witnesses[std::max(i, coarsest)]);
  }
  // Opened again, because this cursor has been read.
  return answer(witnesses[coarsest]);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::Delta(const std::string& base,
                                                                const std::string& target,
                                                                std::string* version) const {
  std::vector<Witness> witnesses = MapsOf(base, target);
  for (const Chain& each : chains_) {
    const ChangeChain* const chain = each.chain.get();
    const auto name_of = [&](const std::string& name) {
      return chain->Contains(name) ? name : IdOf(name);
    };
    if (!chain->Contains(name_of(base)) || !chain->Contains(name_of(target))) continue;
    witnesses.push_back({each.file, VersionOf(each.manifest, name_of(base), name_of(target)),
                         [chain, from = name_of(base),
                          to = name_of(target)]() -> absl::StatusOr<std::unique_ptr<ExtentCursor>> {
                           auto cursor = chain->Delta(from, to);
                           if (absl::IsDataLoss(cursor.status()) ||
                               absl::IsUnimplemented(cursor.status())) {
                             return absl::FailedPreconditionError(cursor.status().message());
                           }
                           return cursor;
                         }});
  }
  return AgreedBy(witnesses, version);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::Allocated(const std::string& target,
                                                                    std::string* version) const {
  return AgreedBy(MapsOf({}, target), version);
}

}  // namespace cbt
