// Volumes in memory, what changed between their snapshots, and buckets that die.
#ifndef CBT_TESTS_BACKUP_FIXTURE_H_
#define CBT_TESTS_BACKUP_FIXTURE_H_

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cbt/memory.h"
#include "programs/backup/create.h"
#include "programs/backup/restore.h"
#include "tests/bucket/passing_bucket.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::backup::test_support {

using Bytes = std::vector<uint8_t>;

inline constexpr char kPassword[] = "a password";

class MemoryInput final : public CopyInput {
 public:
  explicit MemoryInput(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset + out.size() > bytes_.size()) return absl::OutOfRangeError("past the end");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read_ += out.size();
    return absl::OkStatus();
  }
  uint64_t bytes_read() const { return read_; }

 private:
  const Bytes bytes_;
  mutable std::atomic<uint64_t> read_{0};
};

class MemoryOutput final : public CopyOutput {
 public:
  explicit MemoryOutput(Bytes bytes) : bytes(std::move(bytes)) {}
  absl::Status Write(uint64_t offset, std::span<const uint8_t> data) override {
    if (offset + data.size() > bytes.size()) return absl::OutOfRangeError("past the end");
    if (!data.empty()) std::memcpy(bytes.data() + offset, data.data(), data.size());
    written += data.size();
    return absl::OkStatus();
  }
  absl::Status WriteZeros(Extent extent) override {
    if (extent.end() > bytes.size()) return absl::OutOfRangeError("past the end");
    if (extent.length > 0) std::memset(bytes.data() + extent.offset, 0, extent.length);
    return absl::OkStatus();
  }
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset + out.size() > bytes.size()) return absl::OutOfRangeError("past the end");
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
    return absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }

  Bytes bytes;
  std::atomic<uint64_t> written{0};
};

// The snapshots of a volume by handle, compared byte by byte, in blocks of 4 KiB.
class History final : public RangeSource {
 public:
  static constexpr size_t kBlock = 4096;

  void Add(const std::string& handle, Bytes bytes) {
    target_ = handle;
    snapshots_[handle] = std::move(bytes);
  }
  void Forget(const std::string& handle) { snapshots_.erase(handle); }
  const Bytes& at(const std::string& handle) const { return snapshots_.at(handle); }
  const Bytes& newest() const { return snapshots_.at(target_); }

  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base) override {
    if (!delta.ok()) return delta;
    const auto found = snapshots_.find(base);
    if (found == snapshots_.end()) return absl::NotFoundError("no snapshot " + base);
    return Blocks([&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        if (newest()[i] != (i < found->second.size() ? found->second[i] : 0)) return true;
      }
      return false;
    });
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() override {
    if (!allocated.ok()) return allocated;
    return Blocks([&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        if (newest()[i] != 0) return true;
      }
      return false;
    });
  }

  absl::Status delta;
  absl::Status allocated;
  uint64_t capacity_error = 0;

 private:
  template <typename Differs>
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Blocks(Differs differs) const {
    const size_t size = newest().size();
    std::vector<Extent> extents;
    for (size_t begin = 0; begin < size; begin += kBlock) {
      const size_t end = std::min(begin + kBlock, size);
      if (!differs(begin, end)) continue;
      if (!extents.empty() && extents.back().end() == begin) {
        extents.back().length += end - begin;
      } else {
        extents.push_back({begin, end - begin});
      }
    }
    return MakeExtentCursor(std::move(extents),
                            {.capacity = size + capacity_error, .granularity = 1});
  }

  std::map<std::string, Bytes> snapshots_;
  std::string target_;
};

// Refuses everything from the n-th object on that is stored, as a process that is killed then. With
// `torn`, that object is stored, and the answer is lost.
class DyingBucket final : public bucket::PassingBucket {
 public:
  DyingBucket(std::unique_ptr<bucket::Bucket> bucket, int puts, bool torn)
      : PassingBucket(std::move(bucket)), left_(puts), torn_(torn) {}

  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    const int left = left_.fetch_sub(1);
    if (left > 0) return PassingBucket::Put(key, bytes);
    if (left == 0 && torn_) PassingBucket::Put(key, bytes).IgnoreError();
    return Dead();
  }
  absl::Status PutParts(const std::string& key, uint64_t size, const PartReader& read) override {
    return left_.fetch_sub(1) > 0 ? PassingBucket::PutParts(key, size, read) : Dead();
  }
  absl::Status Delete(const std::string& key) override {
    return left_.load() <= 0 ? Dead() : PassingBucket::Delete(key);
  }

 private:
  static absl::Status Dead() { return absl::UnavailableError("the process was killed"); }

  std::atomic<int> left_;
  const bool torn_;
};

inline std::unique_ptr<bucket::Bucket> BucketAt(const std::string& path) {
  return test::ValueOf(bucket::OpenDirectoryBucket(path));
}

inline void MakeRepository(const std::string& path) {
  test::RequireOk(repository::Repository::Create(BucketAt(path), "", Secret(kPassword)));
}

inline std::unique_ptr<repository::Repository> OpenIn(std::unique_ptr<bucket::Bucket> bucket,
                                                      size_t uploads = 8) {
  auto repository = test::ValueOf(repository::Repository::Open(
      std::move(bucket), "", Secret(kPassword), true,
      {.lock = {.pause = std::chrono::milliseconds(0)}, .uploads = uploads}));
  test::ValueOf(repository->LoadIndex(true));
  return repository;
}

inline absl::StatusOr<CreateResult> BackUp(repository::Repository& repository, History& history,
                                           const std::string& handle, CreateOptions options = {}) {
  if (options.volume.empty()) options.volume = "vol";
  options.handle = handle;
  return Create(repository, MemoryInput(history.at(handle)), history, options);
}

inline Bytes RestoreOf(repository::Repository& repository, const std::string& volume,
                       const std::string& which) {
  const VolumeContent content = test::ValueOf(
      LoadContent(repository, test::ValueOf(FindVolumeSnapshot(repository, volume, which))));
  MemoryOutput output(Bytes(content.size));
  test::ValueOf(Restore(repository, content, output, Target::kZero, {.threads = 2}));
  return output.bytes;
}

}  // namespace cbt::backup::test_support

#endif  // CBT_TESTS_BACKUP_FIXTURE_H_
