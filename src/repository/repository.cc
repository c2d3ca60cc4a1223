#include "repository/repository.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "repository/compression.h"
#include "repository/key_file.h"
#include "repository/parallel.h"

namespace cbt::repository {
namespace {

constexpr uint64_t kMaxConfigBytes = 64 * 1024;
constexpr uint64_t kMaxKeyBytes = 64 * 1024;
constexpr uint64_t kMaxSnapshotBytes = 4 << 20;
constexpr uint64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxKeys = 20;  // that are tried, as with restic
constexpr size_t kMaxFiles = 1 << 20;
constexpr size_t kMaxPacks = 16 << 20;
constexpr size_t kReaders = 4;

// Blobs of the volume's next GiB or so are looked at together: in a pack they stand roughly in the
// order of the volume.
constexpr size_t kGroupedAtOnce = 1024;

std::string BlobName(const std::string& repository, BlobType type, const Id& id) {
  return absl::StrCat(repository, ": blob ", id.Short(),
                      type == BlobType::kTree ? " of a tree" : "");
}

const FileInfo* FindFile(const std::vector<FileInfo>& files, const Id& id) {
  const auto found =
      std::lower_bound(files.begin(), files.end(), id,
                       [](const FileInfo& file, const Id& wanted) { return file.id < wanted; });
  return found != files.end() && found->id == id ? &*found : nullptr;
}

// The first key that the password opens.
absl::StatusOr<CryptoKey> Unlock(FileStore& store, const Secret& password) {
  const absl::StatusOr<std::vector<FileInfo>> files = store.ListAll(FileKind::kKey, kMaxFiles);
  if (!files.ok()) return files.status();
  absl::Status unusable;
  size_t tried = 0;
  for (const FileInfo& info : *files) {
    if (tried++ == kMaxKeys) break;
    const std::string name = store.NameOf(FileKind::kKey, info.id);
    const absl::StatusOr<std::vector<uint8_t>> bytes =
        store.Get(FileKind::kKey, info.id, kMaxKeyBytes);
    if (absl::IsNotFound(bytes.status())) continue;  // removed meanwhile
    if (!bytes.ok()) return bytes.status();
    const absl::StatusOr<KeyFile> file = DecodeKeyFile(std::string(bytes->begin(), bytes->end()));
    if (!file.ok()) {
      unusable = Of(name, file.status());
      continue;
    }
    absl::StatusOr<CryptoKey> key = OpenKeyFile(*file, password);
    if (key.ok()) return key;
    if (!absl::IsUnauthenticated(key.status())) unusable = Of(name, key.status());
  }
  if (!unusable.ok()) return unusable;
  if (files->empty()) {
    return absl::NotFoundError(absl::StrCat(store.name(), ": has no keys of a repository"));
  }
  return absl::UnauthenticatedError(
      absl::StrCat(store.name(), ": wrong password, or no key of it"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Repository>> Repository::Open(std::unique_ptr<bucket::Bucket> bucket,
                                                             std::string prefix,
                                                             const Secret& password, bool lock,
                                                             RepositoryOptions options) {
  auto store = std::make_unique<FileStore>(std::move(bucket), std::move(prefix));
  const absl::StatusOr<bool> there = store->HasConfig();
  if (!there.ok()) return there.status();
  if (!*there) {
    return absl::NotFoundError(
        absl::StrCat(store->name(), ": is no restic repository: `restic init` makes one"));
  }
  absl::StatusOr<CryptoKey> key = Unlock(*store, password);
  if (!key.ok()) return key.status();
  store->SetKey(*std::move(key), 2);
  const absl::StatusOr<std::string> text = store->Load(FileKind::kConfig, {}, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  const absl::StatusOr<Config> config = DecodeConfig(*text);
  if (!config.ok()) return Of(absl::StrCat(store->name(), ": the config"), config.status());
  store->SetVersion(config->version);
  std::unique_ptr<Repository> repository(new Repository(std::move(store), options));
  repository->config_ = *config;
  if (lock) {
    absl::StatusOr<std::unique_ptr<SharedLock>> held =
        options.confirm_later ? SharedLock::Begin(*repository->store_, options.lock)
                              : SharedLock::Take(*repository->store_, options.lock);
    if (!held.ok()) return held.status();
    repository->lock_ = *std::move(held);
  }
  return repository;
}

absl::Status Repository::Create(std::unique_ptr<bucket::Bucket> bucket, std::string prefix,
                                const Secret& password, uint64_t version) {
  FileStore store(std::move(bucket), std::move(prefix));
  const absl::StatusOr<bool> there = store.HasConfig();
  if (!there.ok()) return there.status();
  if (*there) {
    return absl::AlreadyExistsError(absl::StrCat(store.name(), ": is a repository already"));
  }
  absl::StatusOr<Config> config = RandomConfig();
  if (!config.ok()) return config.status();
  config->version = version;
  absl::StatusOr<CryptoKey> key = CryptoKey::Random();
  if (!key.ok()) return key.status();
  const absl::StatusOr<std::string> key_file = EncodeKeyFile(*key, password);
  if (!key_file.ok()) return key_file.status();
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(key_file->data()),
                                       key_file->size());
  if (absl::Status put = store.Put(FileKind::kKey, Id::Of(bytes), bytes); !put.ok()) return put;
  store.SetKey(*std::move(key), version);
  return store.Save(FileKind::kConfig, EncodeConfig(*config)).status();
}

absl::StatusOr<IndexSummary> Repository::ReadIndexes(const std::vector<FileInfo>& files,
                                                     const std::vector<FileInfo>* packs,
                                                     std::vector<Id>& supersedes) {
  IndexSummary summary{.indexes = files.size()};
  std::set<Id> missing;
  const absl::Status read = ParallelFor(files.size(), kReaders, {}, [&](size_t i) -> absl::Status {
    const absl::StatusOr<std::string> text =
        store_->Load(FileKind::kIndex, files[i].id, kMaxIndexBytes);
    if (!text.ok()) return text.status();
    std::vector<Id> replaced;
    const auto add = [&](const IndexedPack& pack) -> absl::Status {
      const FileInfo* const file = packs == nullptr ? nullptr : FindFile(*packs, pack.id);
      uint64_t end = 0;
      for (const PackedBlob& blob : pack.blobs) {
        end = std::max(end, uint64_t{blob.offset} + blob.length);
      }
      const std::lock_guard lock(mutex_);
      // cppcheck-suppress unsignedLessThanZero  // of a pack without blobs only
      if (packs != nullptr && (file == nullptr || file->size < end)) {
        missing.insert(pack.id);
        return absl::OkStatus();
      }
      return index_.Add(pack);
    };
    absl::Status decoded = DecodeIndex(*text, replaced, add);
    if (!decoded.ok()) return Of(store_->NameOf(FileKind::kIndex, files[i].id), decoded);
    const std::lock_guard lock(mutex_);
    supersedes.insert(supersedes.end(), replaced.begin(), replaced.end());
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  summary.missing_packs = missing.size();
  summary.blobs = index_.size();
  return summary;
}

absl::StatusOr<IndexSummary> Repository::LoadIndex(bool check_packs) {
  // Indexes first: a pack that is written meanwhile must not look missing.
  absl::StatusOr<std::vector<FileInfo>> files = store_->ListAll(FileKind::kIndex, kMaxFiles);
  if (!files.ok()) return files.status();
  absl::StatusOr<std::vector<FileInfo>> packs = std::vector<FileInfo>();
  if (check_packs) {
    packs = store_->ListAll(FileKind::kPack, kMaxPacks);
    if (!packs.ok()) return packs.status();
  }
  std::vector<Id> supersedes;
  const std::vector<FileInfo>* const known = check_packs ? &*packs : nullptr;
  absl::StatusOr<IndexSummary> summary = ReadIndexes(*files, known, supersedes);
  if (!summary.ok()) return summary;
  // An index that another one replaces is normally gone. Where it is not, what it names may be.
  const std::set<Id> replaced(supersedes.begin(), supersedes.end());
  const auto is_replaced = [&](const FileInfo& file) { return replaced.contains(file.id); };
  const auto kept = std::remove_if(files->begin(), files->end(), is_replaced);
  if (kept == files->end()) return summary;
  files->erase(kept, files->end());
  index_.Clear();
  return ReadIndexes(*files, known, supersedes);
}

absl::StatusOr<std::vector<Snapshot>> Repository::Snapshots() {
  const absl::StatusOr<std::vector<FileInfo>> files =
      store_->ListAll(FileKind::kSnapshot, kMaxFiles);
  if (!files.ok()) return files.status();
  std::vector<Snapshot> snapshots;
  const absl::Status read = ParallelFor(files->size(), kReaders, {}, [&](size_t i) {
    const Id& id = (*files)[i].id;
    const absl::StatusOr<std::string> text =
        store_->Load(FileKind::kSnapshot, id, kMaxSnapshotBytes);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();  // forgotten meanwhile
    if (!text.ok()) return text.status();
    absl::StatusOr<Snapshot> snapshot = DecodeSnapshot(*text);
    if (!snapshot.ok()) return Of(store_->NameOf(FileKind::kSnapshot, id), snapshot.status());
    snapshot->id = id;
    const std::lock_guard lock(mutex_);
    snapshots.push_back(*std::move(snapshot));
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  std::sort(snapshots.begin(), snapshots.end(), [](const Snapshot& a, const Snapshot& b) {
    return std::pair(a.time, a.id) < std::pair(b.time, b.id);
  });
  return snapshots;
}

std::optional<PackedBlob> Repository::Find(BlobType type, const Id& id) const {
  const std::lock_guard lock(mutex_);
  const std::optional<BlobPlace> place = index_.Find(type, id);
  if (!place.has_value()) return std::nullopt;
  return place->blob;
}

absl::StatusOr<BlobPlace> Repository::PlaceOf(BlobType type, const Id& id) const {
  std::optional<BlobPlace> place;
  {
    const std::lock_guard lock(mutex_);
    place = index_.Find(type, id);
  }
  if (!place.has_value()) {
    return absl::NotFoundError(absl::StrCat(BlobName(name(), type, id), ": is in no index"));
  }
  const uint64_t max = type == BlobType::kTree ? kMaxTreeBytes : kMaxDataBytes;
  if (place->blob.size() > max || place->blob.length > max + kSealBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        BlobName(name(), type, id), ": has more than the ", max, " bytes that a blob may have"));
  }
  return *place;
}

absl::StatusOr<std::span<const uint8_t>> Repository::OpenBlob(const BlobPlace& place,
                                                              std::span<uint8_t> sealed,
                                                              std::vector<uint8_t>& buffer) const {
  const PackedBlob& blob = place.blob;
  const auto open = [&]() -> absl::StatusOr<std::span<const uint8_t>> {
    const absl::StatusOr<std::span<uint8_t>> opened = store_->key().OpenInPlace(sealed);
    if (!opened.ok()) return opened.status();
    std::span<const uint8_t> plain = *opened;
    if (blob.uncompressed != 0) {
      const absl::StatusOr<std::span<const uint8_t>> unpacked =
          DecompressInto(plain, blob.uncompressed, buffer);
      if (!unpacked.ok()) return unpacked.status();
      plain = *unpacked;
    }
    if (Id::Of(plain) != blob.id) {
      return absl::DataLossError("does not have the content of its name");
    }
    return plain;
  };
  const absl::StatusOr<std::span<const uint8_t>> plain = open();
  if (!plain.ok()) {
    return Of(absl::StrCat(BlobName(name(), blob.type, blob.id), " in ",
                           store_->NameOf(FileKind::kPack, place.pack)),
              plain.status());
  }
  return plain;
}

absl::StatusOr<std::vector<uint8_t>> Repository::LoadBlob(BlobType type, const Id& id) {
  std::vector<uint8_t> blob;
  const absl::Status loaded =
      LoadBlobs(type, {&id, 1}, [&](size_t, std::span<const uint8_t> plain) {
        blob.assign(plain.begin(), plain.end());
        return absl::OkStatus();
      });
  if (!loaded.ok()) return loaded;
  return blob;
}

absl::Status Repository::LoadBlobs(BlobType type, std::span<const Id> ids, const BlobUse& use) {
  std::vector<WantedBlob> blobs(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    absl::StatusOr<BlobPlace> place = PlaceOf(type, ids[i]);
    if (!place.ok()) return place.status();
    blobs[i] = {*place, static_cast<uint32_t>(i)};
  }
  const std::vector<BlobRange> ranges = JoinNeighbours(blobs);
  // Where a request costs nothing, a blob at a time stays in the processor's caches.
  const bool each = store_->is_local();
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> buffer;
  size_t next = 0;
  for (const BlobRange& range : ranges) {
    if (!each) {
      absl::StatusOr<std::vector<uint8_t>> got =
          store_->GetRange(FileKind::kPack, blobs[next].place.pack, range.offset, range.length);
      if (!got.ok()) return got.status();
      bytes = *std::move(got);
    }
    while (next < range.end) {
      const BlobPlace& place = blobs[next].place;
      std::span<uint8_t> sealed;
      if (each) {
        if (bytes.size() < place.blob.length) bytes.resize(place.blob.length);
        sealed = std::span(bytes).first(place.blob.length);
        absl::Status read = sealed.empty() ? absl::OkStatus()
                                           : store_->ReadRange(FileKind::kPack, place.pack,
                                                               place.blob.offset, sealed);
        if (!read.ok()) return read;
      } else {
        sealed = std::span(bytes).subspan(place.blob.offset - range.offset, place.blob.length);
      }
      const absl::StatusOr<std::span<const uint8_t>> plain = OpenBlob(place, sealed, buffer);
      if (!plain.ok()) return plain.status();
      // A blob that is wanted several times stands side by side with itself.
      for (; next < range.end && blobs[next].place.blob.id == place.blob.id; ++next) {
        if (absl::Status used = use(blobs[next].number, *plain); !used.ok()) return used;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BlobGroups> Repository::GroupBlobs(BlobType type, std::span<const Id> ids,
                                                  std::span<const uint32_t> numbers) const {
  BlobGroups groups;
  while (!numbers.empty()) {
    const std::span<const uint32_t> some = numbers.first(std::min(numbers.size(), kGroupedAtOnce));
    numbers = numbers.subspan(some.size());
    std::vector<WantedBlob> blobs;
    blobs.reserve(some.size());
    for (const uint32_t number : some) {
      absl::StatusOr<BlobPlace> place = PlaceOf(type, ids[number]);
      if (!place.ok()) return place.status();
      blobs.push_back({*place, number});
    }
    groups.Add(std::move(blobs));
  }
  return groups;
}

absl::StatusOr<Id> Repository::SaveBlob(BlobType type, std::span<const uint8_t> plain) {
  const Id id = Id::Of(plain);
  if (absl::Status saved = SaveBlobAs(type, id, plain); !saved.ok()) return saved;
  return id;
}

absl::Status Repository::SaveBlobAs(BlobType type, const Id& id, std::span<const uint8_t> plain) {
  if (plain.size() > (type == BlobType::kTree ? kMaxTreeBytes : kMaxDataBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a blob of ", plain.size(), " bytes is too large"));
  }
  // One that is claimed and not stored would be there for every later caller.
  try {
    absl::Status stored = StoreBlob(type, id, plain);
    return stored.ok() ? stored : packs_.Fail(stored);
  } catch (const std::exception&) {
    return packs_.Fail(packs_.out_of_memory());
  }
}

absl::Status Repository::StoreBlob(BlobType type, const Id& id, std::span<const uint8_t> plain) {
  {
    const std::lock_guard lock(mutex_);
    if (!index_.Claim(type, id)) return packs_.failure();
  }
  PackedBlob blob{.id = id, .type = type};
  std::span<const uint8_t> content = plain;
  // Memory is kept by each thread for its next blob: new one costs as much as to encrypt it.
  if (config_.version >= 2 && !plain.empty()) {
    thread_local std::vector<uint8_t> frame;
    const absl::StatusOr<std::span<const uint8_t>> packed =
        CompressInto(plain, options_.compression_level, frame);
    if (!packed.ok()) return packed.status();
    if (packed->size() < plain.size()) {
      blob.uncompressed = static_cast<uint32_t>(plain.size());
      content = *packed;
    }
  }
  thread_local std::vector<uint8_t> sealed_room;
  if (sealed_room.size() < content.size() + kSealBytes) {
    sealed_room.resize(content.size() + kSealBytes);
  }
  const std::span<uint8_t> sealed = std::span(sealed_room).first(content.size() + kSealBytes);
  if (absl::Status done = store_->key().SealTo(content, sealed); !done.ok()) return done;
  blob.length = static_cast<uint32_t>(sealed.size());
  return packs_.Add(blob, sealed);
}

absl::StatusOr<Id> Repository::SaveSnapshot(const Snapshot& snapshot) {
  if (lock_ == nullptr) return absl::FailedPreconditionError("the repository is not locked");
  // Without the lock, blobs that the snapshot relies on may have been removed.
  if (absl::Status held = lock_->Check(); !held.ok()) return held;
  return store_->Save(FileKind::kSnapshot, EncodeSnapshot(snapshot));
}

}  // namespace cbt::repository
