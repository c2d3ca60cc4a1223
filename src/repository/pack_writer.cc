#include "repository/pack_writer.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace cbt::repository {
namespace {

// An index is written once so many blobs have none: restic's own number.
constexpr size_t kMaxUnindexedBlobs = 50'000;
// And after an eighth of the packs that are there already, within these bounds: a backup that is
// killed loses little, and a large one does not leave thousands of indexes.
constexpr size_t kMinUnindexedPacks = 4;
constexpr size_t kMaxUnindexedPacks = 256;

// Memory of packs that were written is kept for so many others, where threads write them.
constexpr size_t kLocalSpares = 2;

// A pack is full once it has kPackBytes: the last blob lies past that.
constexpr size_t kRoomForTheLast = size_t{2} << 20;
constexpr size_t kFirstBlobs = 16;

}  // namespace

PackWriter::PackWriter(FileStore& store, size_t uploads,
                       std::function<absl::Status(const IndexedPack&)> on_stored)
    : store_(store),
      uploads_(store.is_local() ? 0 : std::clamp<size_t>(uploads, 1, kMaxUploadBytes / kPackBytes)),
      on_stored_(std::move(on_stored)) {}

PackWriter::~PackWriter() = default;

bool PackWriter::HasRoom() const {
  return uploads_ == 0 || under_way_ == 0 ||
         (under_way_ < uploads_ && bytes_under_way_ + kPackBytes <= kMaxUploadBytes);
}

absl::Status PackWriter::Fail(const absl::Status& status) noexcept {
  const std::lock_guard lock(mutex_);
  failure_.Update(status);
  changed_.notify_all();
  return failure_;
}

absl::Status PackWriter::failure() const noexcept {
  const std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status PackWriter::Add(PackedBlob blob, std::span<const uint8_t> sealed) noexcept {
  try {
    absl::Status added = AddToPack(blob, sealed);
    return added.ok() ? added : Fail(added);
  } catch (const std::exception&) {
    return Fail(out_of_memory_);
  }
}

absl::Status PackWriter::AddToPack(PackedBlob blob, std::span<const uint8_t> sealed) {
  OpenPack full;
  {
    std::unique_lock lock(mutex_);
    OpenPack& open = open_[static_cast<size_t>(blob.type)];
    // Waiting before a pack is begun keeps their number bounded, whatever the number of callers.
    changed_.wait(lock, [&] { return !failure_.ok() || !open.blobs.empty() || HasRoom(); });
    if (!failure_.ok()) return failure_;
    // A tree may be larger than a pack, and offsets have 32 bits.
    if (open.blobs.empty()) {
      if (open.bytes.capacity() == 0 && !spare_.empty()) {
        open.bytes = std::move(spare_.back());
        spare_.pop_back();
      }
      open.bytes.reserve(std::max(kPackBytes + kRoomForTheLast, sealed.size()));
    }
    // Other threads may go on with the pack after an exception, so it must not have bytes of no blob.
    if (open.blobs.size() == open.blobs.capacity()) {
      open.blobs.reserve(2 * open.blobs.size() + kFirstBlobs);
    }
    blob.offset = static_cast<uint32_t>(open.bytes.size());
    open.bytes.insert(open.bytes.end(), sealed.begin(), sealed.end());
    open.blobs.push_back(blob);
    ++stored_.blobs;
    if (open.bytes.size() < kPackBytes && open.blobs.size() < kMaxPackBlobs) {
      return absl::OkStatus();
    }
    full = std::exchange(open, {});
    if (uploads_ > 0) {
      WriteLater(std::move(full));
      return failure_;
    }
  }
  return Store(full);
}

// Under the lock.
void PackWriter::WriteLater(OpenPack pack) {
  const uint64_t bytes = pack.bytes.size();
  try {
    if (!pool_.has_value()) pool_.emplace(uploads_);
    const auto held = std::make_shared<OpenPack>(std::move(pack));
    pool_->Schedule([this, held, bytes] { Upload(*held, bytes); });
  } catch (const std::exception&) {
    failure_.Update(out_of_memory_);
    return;
  }
  ++under_way_;
  bytes_under_way_ += bytes;
}

void PackWriter::Upload(OpenPack& pack, uint64_t bytes) {
  absl::Status status = out_of_memory_;
  try {
    status = Store(pack);
  } catch (const std::exception&) {
    // As it is.
  }
  const std::lock_guard lock(mutex_);
  failure_.Update(status);
  --under_way_;
  bytes_under_way_ -= bytes;
  changed_.notify_all();
}

absl::Status PackWriter::Store(OpenPack& pack) {
  const absl::StatusOr<std::vector<uint8_t>> header =
      store_.key().Seal(EncodePackHeader(pack.blobs));
  if (!header.ok()) return header.status();
  pack.bytes.insert(pack.bytes.end(), header->begin(), header->end());
  const auto length = static_cast<uint32_t>(header->size());
  for (int shift = 0; shift < 32; shift += 8) {
    pack.bytes.push_back(static_cast<uint8_t>(length >> shift));
  }
  IndexedPack indexed{Id::Of(pack.bytes), std::move(pack.blobs)};
  if (absl::Status put = store_.Put(FileKind::kPack, indexed.id, pack.bytes); !put.ok()) return put;
  if (absl::Status known = on_stored_(indexed); !known.ok()) return known;
  std::vector<IndexedPack> ready;
  {
    const std::lock_guard lock(mutex_);
    ++stored_.packs;
    stored_.bytes += pack.bytes.size();
    unindexed_blobs_ += indexed.blobs.size();
    unindexed_.push_back(std::move(indexed));
    if (spare_.size() < std::max(kLocalSpares, uploads_)) {
      pack.bytes.clear();
      spare_.push_back(std::move(pack.bytes));
    }
    const size_t enough = std::clamp<size_t>(static_cast<size_t>(stored_.packs / 8),
                                             kMinUnindexedPacks, kMaxUnindexedPacks);
    if (unindexed_.size() < enough && unindexed_blobs_ < kMaxUnindexedBlobs) {
      return absl::OkStatus();
    }
    ready = std::exchange(unindexed_, {});
    unindexed_blobs_ = 0;
  }
  return StoreIndex(ready);
}

absl::Status PackWriter::StoreIndex(std::span<const IndexedPack> packs) {
  if (packs.empty()) return absl::OkStatus();
  return store_.Save(FileKind::kIndex, EncodeIndex(packs)).status();
}

absl::Status PackWriter::Flush() noexcept {
  try {
    absl::Status flushed = FlushAll();
    return flushed.ok() ? flushed : Fail(flushed);
  } catch (const std::exception&) {
    return Fail(out_of_memory_);
  }
}

absl::Status PackWriter::FlushAll() {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
  }
  for (OpenPack& open : open_) {
    if (open.blobs.empty()) continue;
    OpenPack last = std::exchange(open, {});
    if (uploads_ == 0) {
      if (absl::Status stored = Store(last); !stored.ok()) return stored;
      continue;
    }
    const std::lock_guard lock(mutex_);
    WriteLater(std::move(last));
  }
  std::vector<IndexedPack> rest;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return under_way_ == 0; });
    if (!failure_.ok()) return failure_;
    rest = std::exchange(unindexed_, {});
    unindexed_blobs_ = 0;
  }
  return StoreIndex(rest);
}

StoredBytes PackWriter::stored() const {
  const std::lock_guard lock(mutex_);
  return stored_;
}

}  // namespace cbt::repository
