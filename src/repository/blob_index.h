// Which blobs a repository has and where, in memory: about 60 bytes a blob.
#ifndef CBT_REPOSITORY_BLOB_INDEX_H_
#define CBT_REPOSITORY_BLOB_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "repository/id.h"
#include "repository/index_file.h"
#include "repository/pack.h"

namespace cbt::repository {

struct BlobPlace {
  Id pack = {};
  PackedBlob blob = {};
};

// Not thread-safe.
class BlobIndex {
 public:
  // `max_blobs`: how many it takes, at most 2^31.
  explicit BlobIndex(size_t max_blobs);

  // Adds the blobs of a pack. A blob that is there already stays where it is.
  // Errors: RESOURCE_EXHAUSTED.
  absl::Status Add(const IndexedPack& pack);

  // Empty if the blob is missing, or claimed and not added yet.
  std::optional<BlobPlace> Find(BlobType type, const Id& id) const;

  // True for the first caller with a blob that is missing: it must store the blob.
  bool Claim(BlobType type, const Id& id);

  void Clear();

  size_t size() const noexcept { return entries_.size(); }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Entry {
    Id id = {};
    uint32_t pack = 0;  // an index of packs_, shifted, and the type in the lowest bit
    uint32_t offset = 0;
    uint32_t length = 0;  // 0: only claimed
    uint32_t uncompressed = 0;
  };

  size_t SlotOf(BlobType type, const Id& id) const noexcept;
  Entry* FindEntry(BlobType type, const Id& id) const noexcept;
  void Insert(const Entry& entry);
  void Grow();

  const size_t max_blobs_;
  uint64_t seed_ = 0;  // ids are not trusted: their author must not know which collide
  std::vector<Id> packs_;
  mutable std::deque<Entry> entries_;
  std::vector<uint32_t> slots_;  // indexes of entries_, a power of two of them
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_BLOB_INDEX_H_
