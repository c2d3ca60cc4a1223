// Fills packs with sealed blobs, and writes them and their indexes.
#ifndef CBT_REPOSITORY_PACK_WRITER_H_
#define CBT_REPOSITORY_PACK_WRITER_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "repository/file_store.h"
#include "repository/index_file.h"
#include "repository/pack.h"

namespace cbt::repository {

// What was stored since the repository was opened.
struct StoredBytes {
  uint64_t blobs = 0;
  uint64_t packs = 0;
  uint64_t bytes = 0;  // of packs
};

// Thread-safe. Where a request takes time, packs are written by threads of their own, as many at a
// time as are allowed: how many blobs are hashed at a time has nothing to do with it. In a local
// place the thread that fills a pack writes it.
//
// Memory: packs of 16 MiB and a blob; at most `uploads` of them are on their way, of
// kMaxUploadBytes together, and one of each type is filled.
class PackWriter {
 public:
  static constexpr uint64_t kMaxUploadBytes = uint64_t{144} << 20;

  // `on_stored` is called for each pack that is there, by any thread, before an index names it.
  // `store` must live longer.
  PackWriter(FileStore& store, size_t uploads,
             std::function<absl::Status(const IndexedPack&)> on_stored);
  // Waits for what is on its way; what is not full is dropped.
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // Adds a blob, whose place is not known yet; waits while too many packs are on their way.
  // Errors: those of the store, RESOURCE_EXHAUSTED without memory; the first one stays, since a blob
  // that was taken may be lost.
  absl::Status Add(PackedBlob blob, std::span<const uint8_t> sealed) noexcept;

  // Writes the packs that are not full, and an index of all that has none yet. No Add() may run.
  absl::Status Flush() noexcept;

  // A blob that counts as stored could not be added: nothing succeeds from now on. Returns the first
  // error.
  absl::Status Fail(const absl::Status& status) noexcept;
  // The error that stays.
  absl::Status failure() const noexcept;
  // Needs no memory.
  const absl::Status& out_of_memory() const noexcept { return out_of_memory_; }

  StoredBytes stored() const;

 private:
  struct OpenPack {
    std::vector<uint8_t> bytes = {};
    std::vector<PackedBlob> blobs = {};
  };

  bool HasRoom() const;
  absl::Status AddToPack(PackedBlob blob, std::span<const uint8_t> sealed);
  absl::Status FlushAll();
  void WriteLater(OpenPack pack);
  void Upload(OpenPack& pack, uint64_t bytes);
  absl::Status Store(OpenPack& pack);
  absl::Status StoreIndex(std::span<const IndexedPack> packs);

  FileStore& store_;
  const size_t uploads_;  // 0: none behind the caller
  const std::function<absl::Status(const IndexedPack&)> on_stored_;

  // Created while memory is available.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory");

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::array<OpenPack, 2> open_;  // by BlobType
  std::vector<std::vector<uint8_t>> spare_;
  std::vector<IndexedPack> unindexed_;
  size_t unindexed_blobs_ = 0;
  StoredBytes stored_;
  size_t under_way_ = 0;
  uint64_t bytes_under_way_ = 0;
  std::optional<ThreadPool> pool_;  // last: its threads use the others
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_PACK_WRITER_H_
