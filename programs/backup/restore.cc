#include "programs/backup/restore.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "repository/parallel.h"

namespace cbt::backup {
namespace {

using repository::BlobType;
using repository::Id;

// The sums of zeros, of the lengths that occur most.
class ZeroIds {
 public:
  explicit ZeroIds(const VolumeContent& content) {
    std::set<uint64_t> lengths;
    for (size_t i = 0; i < content.blobs.size() && lengths.size() < kMaxLengths; ++i) {
      lengths.insert(content.LengthOf(i));
    }
    if (!content.blobs.empty()) lengths.insert(content.LengthOf(content.blobs.size() - 1));
    for (const uint64_t length : lengths) {
      if (length > repository::kMaxDataBytes) continue;
      ids_[length] = Id::Of(std::vector<uint8_t>(static_cast<size_t>(length)));
    }
  }

  bool IsZero(const VolumeContent& content, size_t blob) const {
    const auto found = ids_.find(content.LengthOf(blob));
    return found != ids_.end() && found->second == content.blobs[blob];
  }

 private:
  static constexpr size_t kMaxLengths = 8;
  std::map<uint64_t, Id> ids_;
};

// Counts under a lock, and reports.
class Counter {
 public:
  Counter(const TransferOptions& options, uint64_t total) : options_(options) {
    progress_.bytes_total = total;
  }

  void Add(uint64_t done, uint64_t written, uint64_t fetched) {
    const std::lock_guard lock(mutex_);
    progress_.bytes_done += done;
    progress_.bytes_written += written;
    progress_.bytes_fetched += fetched;
    if (options_.on_progress) options_.on_progress(progress_);
  }
  const TransferProgress& progress() const { return progress_; }

 private:
  const TransferOptions& options_;
  std::mutex mutex_;
  TransferProgress progress_;
};

}  // namespace

absl::StatusOr<TransferProgress> Restore(repository::Repository& repository,
                                         const VolumeContent& content, CopyOutput& output,
                                         Target target, const TransferOptions& options) {
  const ZeroIds zeros(content);
  uint64_t total = content.size;
  if (options.only.has_value()) {
    total = 0;
    for (const uint32_t i : *options.only) total += content.LengthOf(i);
  }
  Counter counter(options, total);
  const auto extent_of = [&](size_t i) { return Extent{content.offsets[i], content.LengthOf(i)}; };
  // Whether what is there is the blob already.
  const auto is_there = [&](size_t i) -> absl::StatusOr<bool> {
    const Extent extent = extent_of(i);
    if (target != Target::kKept || extent.length == 0 ||
        extent.length > repository::kMaxDataBytes) {
      return false;
    }
    std::vector<uint8_t> present(static_cast<size_t>(extent.length));
    if (absl::Status read = output.Read(extent.offset, present); !read.ok()) return read;
    return Id::Of(present) == content.blobs[i];
  };
  std::vector<uint32_t> zero_blobs;
  std::vector<uint32_t> data_blobs;
  const size_t wanted = options.only.has_value() ? options.only->size() : content.blobs.size();
  for (size_t step = 0; step < wanted; ++step) {
    const uint32_t i =
        options.only.has_value() ? (*options.only)[step] : static_cast<uint32_t>(step);
    (zeros.IsZero(content, i) ? zero_blobs : data_blobs).push_back(i);
  }
  const auto restore_zeros = [&](size_t step) -> absl::Status {
    const size_t i = zero_blobs[step];
    const absl::StatusOr<bool> there = is_there(i);
    if (!there.ok()) return there.status();
    if (!*there && target != Target::kZero) {
      if (absl::Status zeroed = output.WriteZeros(extent_of(i)); !zeroed.ok()) return zeroed;
    }
    counter.Add(content.LengthOf(i), 0, 0);
    return absl::OkStatus();
  };
  absl::Status restored =
      repository::ParallelFor(zero_blobs.size(), options.threads, options.stop, restore_zeros);
  if (!restored.ok()) return restored;
  const absl::StatusOr<repository::BlobGroups> groups =
      repository.GroupBlobs(BlobType::kData, content.blobs, data_blobs);
  if (!groups.ok()) return groups.status();
  restored = repository::ParallelFor(
      groups->size(), options.threads, options.stop, [&](size_t group) -> absl::Status {
        std::vector<uint32_t> needed;
        std::vector<Id> ids;
        for (const uint32_t i : (*groups)[group]) {
          const absl::StatusOr<bool> there = is_there(i);
          if (!there.ok()) return there.status();
          if (*there) {
            counter.Add(content.LengthOf(i), 0, 0);
            continue;
          }
          needed.push_back(i);
          ids.push_back(content.blobs[i]);
        }
        return repository.LoadBlobs(
            BlobType::kData, ids, [&](size_t k, std::span<const uint8_t> blob) -> absl::Status {
              const Extent extent = extent_of(needed[k]);
              if (absl::Status written = output.Write(extent.offset, blob); !written.ok()) {
                return written;
              }
              counter.Add(extent.length, extent.length, extent.length);
              return absl::OkStatus();
            });
      });
  if (!restored.ok()) return restored;
  if (absl::Status synced = output.Sync(); !synced.ok()) return synced;
  return counter.progress();
}

absl::StatusOr<Comparison> Compare(repository::Repository& repository, const VolumeContent& content,
                                   const CopyInput& input, double percent,
                                   const TransferOptions& options) {
  if (input.size() != content.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data has ", input.size(), " bytes, the snapshot ", content.size));
  }
  std::vector<uint32_t> chosen(content.blobs.size());
  std::iota(chosen.begin(), chosen.end(), uint32_t{0});
  if (percent < 100 && !chosen.empty()) {
    std::mt19937_64 random(std::random_device{}());
    std::shuffle(chosen.begin(), chosen.end(), random);
    const double wanted = std::ceil(percent / 100 * static_cast<double>(chosen.size()));
    chosen.resize(std::clamp<size_t>(static_cast<size_t>(wanted), 1, chosen.size()));
    std::sort(chosen.begin(), chosen.end());
  }
  uint64_t total = 0;
  for (const uint32_t blob : chosen) total += content.LengthOf(blob);
  Counter counter(options, total);
  std::mutex mutex;
  Comparison comparison{.blobs = chosen.size()};
  const absl::StatusOr<repository::BlobGroups> groups =
      repository.GroupBlobs(BlobType::kData, content.blobs, chosen);
  if (!groups.ok()) return groups.status();
  const absl::Status compared =
      repository::ParallelFor(groups->size(), options.threads, options.stop, [&](size_t step) {
        const std::span<const uint32_t> group = (*groups)[step];
        std::vector<Id> ids;
        for (const uint32_t i : group) ids.push_back(content.blobs[i]);
        return repository.LoadBlobs(
            BlobType::kData, ids, [&](size_t k, std::span<const uint8_t> blob) -> absl::Status {
              const Extent extent{content.offsets[group[k]], content.LengthOf(group[k])};
              std::vector<uint8_t> bytes(blob.size());
              if (absl::Status read = input.Read(extent.offset, bytes); !read.ok()) return read;
              counter.Add(extent.length, 0, extent.length);
              if (std::equal(bytes.begin(), bytes.end(), blob.begin())) return absl::OkStatus();
              const std::lock_guard lock(mutex);
              if (!comparison.difference.has_value() ||
                  extent.offset < comparison.difference->offset) {
                comparison.difference = extent;
              }
              return absl::OkStatus();
            });
      });
  if (!compared.ok()) return compared;
  comparison.progress = counter.progress();
  return comparison;
}

}  // namespace cbt::backup
