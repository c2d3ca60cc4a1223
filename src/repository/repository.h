// A restic repository: https://restic.readthedocs.io/en/stable/100_references.html. Format 2 is
// read and written, format 1 as well.
#ifndef CBT_REPOSITORY_REPOSITORY_H_
#define CBT_REPOSITORY_REPOSITORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/bucket.h"
#include "cbt/secrets.h"
#include "repository/blob_index.h"
#include "repository/blob_ranges.h"
#include "repository/config.h"
#include "repository/file_store.h"
#include "repository/index_file.h"
#include "repository/lock.h"
#include "repository/pack_writer.h"
#include "repository/snapshot.h"

namespace cbt::repository {

// The largest blobs that are read: restic cuts files into blobs of up to 8 MiB.
inline constexpr uint64_t kMaxDataBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMaxTreeBytes = uint64_t{512} << 20;

struct RepositoryOptions {
  // About 60 bytes of memory each. 32 TiB in blobs of 1 MiB.
  size_t max_blobs = size_t{32} << 20;
  int compression_level = 3;  // zstd's
  LockOptions lock = {};
  // Leaves the second half of taking the lock to ConfirmLock(), for those who only read.
  bool confirm_later = false;
  // The most packs on their way to a place that is not local; at most about 8, by their memory.
  size_t uploads = 8;
};

// What LoadIndex() found.
struct IndexSummary {
  size_t indexes = 0;
  size_t blobs = 0;
  // Packs that an index names and that are not there, or are too short; their blobs count as
  // missing, and are stored again.
  size_t missing_packs = 0;
};

// Thread-safe from LoadIndex() on. Errors name the file. The repository's files are not trusted,
// although they are authenticated: anyone with the password can write them. A hostile repository
// costs at most `max_blobs` and about 512 MiB of memory, beside the blobs that are asked for.
class Repository {
 public:
  // Reads the config with the first key that `password` opens, and takes a shared lock unless
  // `lock` is false (a repository that can't be written).
  // `prefix`: of keys, with a slash at its end, or empty.
  // Errors: NOT_FOUND without a repository; UNAUTHENTICATED if the password opens none of its keys;
  //         FAILED_PRECONDITION if it is locked exclusively; UNIMPLEMENTED for other formats.
  static absl::StatusOr<std::unique_ptr<Repository>> Open(std::unique_ptr<bucket::Bucket> bucket,
                                                          std::string prefix,
                                                          const Secret& password, bool lock,
                                                          RepositoryOptions options = {});

  // Makes a new repository of format `version`.
  // Errors: ALREADY_EXISTS.
  static absl::Status Create(std::unique_ptr<bucket::Bucket> bucket, std::string prefix,
                             const Secret& password, uint64_t version = 2);

  const Config& config() const noexcept { return config_; }
  std::string name() const { return store_->name(); }

  // With `confirm_later`: waits until restic's pause is over, and makes sure that no exclusive lock
  // was written at the same time. Call it before a result leaves the process. OK without a lock.
  // Errors: FAILED_PRECONDITION.
  absl::Status ConfirmLock() { return lock_ == nullptr ? absl::OkStatus() : lock_->Confirm(); }

  // Reads the index. `check_packs`: lists the packs as well, so that nothing relies on those that
  // are gone.
  absl::StatusOr<IndexSummary> LoadIndex(bool check_packs);

  // All snapshots, the oldest first.
  absl::StatusOr<std::vector<Snapshot>> Snapshots();

  // Empty if the index has no such blob.
  std::optional<PackedBlob> Find(BlobType type, const Id& id) const;

  // A blob, whose content has this SHA-256 sum.
  // Errors: NOT_FOUND; DATA_LOSS; RESOURCE_EXHAUSTED past kMaxDataBytes or kMaxTreeBytes.
  absl::StatusOr<std::vector<uint8_t>> LoadBlob(BlobType type, const Id& id);

  // Several blobs, those that lie close together in a pack with one request. Calls `use` with the
  // place of each in `ids`, in any order, and ends at its first error.
  // Memory: kMaxRangeBytes or one blob, and one blob decompressed.
  // Errors: those of LoadBlob() and of `use`.
  using BlobUse = std::function<absl::Status(size_t, std::span<const uint8_t>)>;
  absl::Status LoadBlobs(BlobType type, std::span<const Id> ids, const BlobUse& use);

  // Groups those of `ids` that `numbers` names, so that LoadBlobs() reads a group with one request.
  // Memory: 8 bytes a blob, and 8 a group.
  // Errors: NOT_FOUND.
  absl::StatusOr<BlobGroups> GroupBlobs(BlobType type, std::span<const Id> ids,
                                        std::span<const uint32_t> numbers) const;

  // Stores a blob unless the repository has it. Packs are written as PackWriter says, and an index
  // of some packs from time to time: what an index names survives the process. After an error other
  // than INVALID_ARGUMENT every later call fails as well.
  absl::StatusOr<Id> SaveBlob(BlobType type, std::span<const uint8_t> plain);
  // The same with the blob's SHA-256 sum.
  absl::Status SaveBlobAs(BlobType type, const Id& id, std::span<const uint8_t> plain);

  // Stores the packs that are not full, and an index of all that has none yet. No SaveBlob() may
  // run.
  absl::Status Flush() { return packs_.Flush(); }

  // Stores a snapshot of what was flushed; its `id` is ignored.
  // Errors: ABORTED if the lock was lost.
  absl::StatusOr<Id> SaveSnapshot(const Snapshot& snapshot);

  StoredBytes stored() const { return packs_.stored(); }

 private:
  Repository(std::unique_ptr<FileStore> store, RepositoryOptions options)
      : store_(std::move(store)),
        options_(options),
        index_(options.max_blobs),
        packs_(*store_, options.uploads, [this](const IndexedPack& pack) {
          const std::lock_guard lock(mutex_);
          return index_.Add(pack);
        }) {}

  absl::StatusOr<IndexSummary> ReadIndexes(const std::vector<FileInfo>& files,
                                           const std::vector<FileInfo>* packs,
                                           std::vector<Id>& supersedes);
  absl::Status StoreBlob(BlobType type, const Id& id, std::span<const uint8_t> plain);
  absl::StatusOr<BlobPlace> PlaceOf(BlobType type, const Id& id) const;
  // The content of a blob whose sealed bytes are given: they are decrypted where they are, and
  // decompressed to `buffer`.
  absl::StatusOr<std::span<const uint8_t>> OpenBlob(const BlobPlace& place,
                                                    std::span<uint8_t> sealed,
                                                    std::vector<uint8_t>& buffer) const;

  const std::unique_ptr<FileStore> store_;
  const RepositoryOptions options_;
  Config config_;
  std::unique_ptr<SharedLock> lock_;

  mutable std::mutex mutex_;
  BlobIndex index_;
  PackWriter packs_;  // last: its threads use the others
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_REPOSITORY_H_
