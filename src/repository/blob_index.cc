#include "repository/blob_index.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"

namespace cbt::repository {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr size_t kMostBlobs = size_t{1} << 31;

}  // namespace

BlobIndex::BlobIndex(size_t max_blobs)
    : max_blobs_(std::min(max_blobs, kMostBlobs)), slots_(kFirstSlots, kNone) {
  std::random_device random;
  seed_ = uint64_t{random()} << 32 | random();
}

size_t BlobIndex::SlotOf(BlobType type, const Id& id) const noexcept {
  uint64_t words[2] = {};
  std::memcpy(words, id.bytes.data(), sizeof words);
  uint64_t hash = (words[0] ^ seed_) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 32) ^ words[1] ^ static_cast<uint64_t>(type)) * 0xd6e8feb86659fd93u;
  return static_cast<size_t>(hash ^ (hash >> 32)) & (slots_.size() - 1);
}

BlobIndex::Entry* BlobIndex::FindEntry(BlobType type, const Id& id) const noexcept {
  for (size_t slot = SlotOf(type, id);; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot] == kNone) return nullptr;
    Entry& entry = entries_[slots_[slot]];
    if (entry.id == id && (entry.pack & 1) == static_cast<uint32_t>(type)) return &entry;
  }
}

void BlobIndex::Insert(const Entry& entry) {
  // First: without memory, nothing has changed.
  if (4 * (entries_.size() + 1) > 3 * slots_.size()) Grow();
  entries_.push_back(entry);
  size_t slot = SlotOf(static_cast<BlobType>(entry.pack & 1), entry.id);
  while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = static_cast<uint32_t>(entries_.size() - 1);
}

void BlobIndex::Grow() {
  slots_.assign(2 * slots_.size(), kNone);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = SlotOf(static_cast<BlobType>(entries_[i].pack & 1), entries_[i].id);
    while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<uint32_t>(i);
  }
}

absl::Status BlobIndex::Add(const IndexedPack& pack) {
  if (packs_.size() >= kMostBlobs) return absl::ResourceExhaustedError("has too many packs");
  const auto number = static_cast<uint32_t>(packs_.size() << 1);
  // Before an entry names it, as an error may come after some.
  packs_.push_back(pack.id);
  bool used = false;
  for (const PackedBlob& blob : pack.blobs) {
    Entry* const known = FindEntry(blob.type, blob.id);
    if (known != nullptr && known->length != 0) continue;
    Entry entry{blob.id, number | static_cast<uint32_t>(blob.type), blob.offset, blob.length,
                blob.uncompressed};
    used = true;
    if (known != nullptr) {
      *known = entry;
      continue;
    }
    if (entries_.size() >= max_blobs_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the index has more than the ", max_blobs_, " blobs that it may have"));
    }
    Insert(entry);
  }
  if (!used) packs_.pop_back();
  return absl::OkStatus();
}

std::optional<BlobPlace> BlobIndex::Find(BlobType type, const Id& id) const {
  const Entry* const entry = FindEntry(type, id);
  if (entry == nullptr || entry->length == 0) return std::nullopt;
  return BlobPlace{packs_[entry->pack >> 1],
                   {id, type, entry->offset, entry->length, entry->uncompressed}};
}

bool BlobIndex::Claim(BlobType type, const Id& id) {
  if (FindEntry(type, id) != nullptr) return false;
  Insert({.id = id, .pack = static_cast<uint32_t>(type)});
  return true;
}

void BlobIndex::Clear() {
  entries_.clear();
  packs_.clear();
  slots_.assign(kFirstSlots, kNone);
}

}  // namespace cbt::repository
