// An index of the containers in portable 64-bit roaring bytes (RoaringFormatSpec): a number of
// groups, each the upper 32 bits of its blocks and a 32-bit bitmap, which starts with a table of
// its containers.
#ifndef CBT_MAP_PORTABLE_INDEX_H_
#define CBT_MAP_PORTABLE_INDEX_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "map/container.h"

namespace cbt {

// Checks whether bytes are as they were written, before they are used.
class ByteGuard {
 public:
  virtual ~ByteGuard() = default;
  // OK if the bytes [begin, end) of the payload are sound, otherwise DATA_LOSS. Thread-safe.
  virtual absl::Status Check(uint64_t begin, uint64_t end) const = 0;
};

class PortableIndex {
 public:
  // Reads the tables of `bytes`, which must outlive the index (see Keep()), and checks them: sizes,
  // order of the keys, exact offsets, no block at or past `block_count`. Load() checks the contents
  // of a container, CheckAll() those of all. `guard`: called before bytes are read; null: they are
  // in memory and don't change. `where` prefixes every message. Errors: INVALID_ARGUMENT for a
  // block past the end, DATA_LOSS with offset and reason.
  static absl::StatusOr<std::shared_ptr<PortableIndex>> Parse(
      std::span<const uint8_t> bytes, uint64_t block_count,
      std::shared_ptr<const ByteGuard> guard = nullptr, std::string where = {});

  // Checks every container; Get() may be used afterwards.
  absl::Status CheckAll();

  // Makes the index keep what its bytes lie in.
  void Keep(std::shared_ptr<const void> owner) noexcept { owner_ = std::move(owner); }
  const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

  std::span<const uint8_t> bytes() const noexcept { return bytes_; }
  // Containers, numbered in ascending order of their keys, and the sum of their cardinalities.
  size_t size() const noexcept { return size_; }
  uint64_t cardinality() const noexcept { return cardinality_; }

  // The first container whose key is `key` or higher; size() if no such container exists.
  size_t LowerBound(uint64_t key) const noexcept;
  // The number of blocks in the containers before `ordinal`.
  uint64_t CardinalityBefore(size_t ordinal) const noexcept;
  // Requires: ordinal < size().
  uint64_t Key(size_t ordinal) const noexcept;

  // A container; checks its contents unless that has been done. Requires: ordinal < size().
  absl::StatusOr<Container> Load(size_t ordinal) const;

  // True after CheckAll().
  bool checked() const noexcept { return checked_; }

  // As Load(). Requires: checked().
  Container Get(size_t ordinal) const noexcept;

  // The 32-bit bitmap of the blocks whose upper 32 bits are 0; empty if there are none.
  std::span<const uint8_t> FirstGroup() const noexcept;
  // True if there are blocks from 2^32 on.
  bool HasMoreGroups() const noexcept { return !groups_.empty() && groups_.back().high != 0; }

 private:
  // A run container's number of runs, in front of the runs.
  static constexpr size_t kRunHeader = 2;

  struct Group {
    uint64_t begin;        // of the bitmap in the bytes
    uint64_t first;        // ordinal of its first container
    uint64_t before;       // blocks in the groups before
    uint32_t high;         // upper 32 bits of its blocks
    uint32_t count;        // containers
    uint32_t size;         // of the bitmap
    uint32_t flags;        // where the run flags begin in the bitmap; 0: no runs
    uint32_t descriptors;  // where the pairs (key, cardinality - 1) begin
    uint32_t offsets;      // where the containers' offsets begin; 0: see `starts`
    std::array<uint32_t, 3> starts;
  };

  PortableIndex(std::span<const uint8_t> bytes, uint64_t block_count,
                std::shared_ptr<const ByteGuard> guard, std::string where) noexcept
      : bytes_(bytes),
        block_count_(block_count),
        guard_(std::move(guard)),
        where_(std::move(where)) {}

  absl::Status ParseAll();
  absl::StatusOr<uint64_t> ParseGroup(uint64_t at, uint32_t high);
  absl::Status ParseContainers(Group& group);
  absl::Status Guard(uint64_t begin, uint64_t end) const;
  absl::Status Damaged(uint64_t at, const char* why) const;
  absl::Status PastTheEnd(uint64_t at) const;

  const Group& GroupOf(size_t ordinal) const noexcept {
    return groups_.size() == 1 ? groups_.front() : FindGroup(ordinal);
  }
  const Group& FindGroup(size_t ordinal) const noexcept;
  bool IsRun(const Group& group, size_t index) const noexcept;
  uint32_t Start(const Group& group, size_t index) const noexcept;
  uint32_t End(const Group& group, size_t index) const noexcept;
  uint32_t CardinalityAt(const Group& group, size_t index) const noexcept;
  Container At(const Group& group, size_t index) const noexcept;

  std::shared_ptr<const void> owner_;  // of the bytes; empty if the caller keeps them
  std::span<const uint8_t> bytes_;
  uint64_t block_count_;
  std::shared_ptr<const ByteGuard> guard_;
  std::string where_;
  std::vector<Group> groups_;
  size_t size_ = 0;
  uint64_t cardinality_ = 0;
  bool checked_ = false;
  // Which containers Load() has checked, a byte each; for lazy reading.
  mutable std::vector<std::atomic<bool>> sound_;
};

}  // namespace cbt

#endif  // CBT_MAP_PORTABLE_INDEX_H_
