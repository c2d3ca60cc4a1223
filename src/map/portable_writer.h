// Encodes containers as portable 64-bit roaring bytes (RoaringFormatSpec). Every container gets its
// smallest kind, so that a set of blocks has exactly one serialisation.
#ifndef CBT_MAP_PORTABLE_WRITER_H_
#define CBT_MAP_PORTABLE_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/container.h"
#include "map/map_limit.h"

namespace cbt {

// Containers must be added in ascending order of keys, each key once.
class PortableWriter {
 public:
  // `expected`: an upper bound of the bytes, 0 if unknown; reserved at once. `most`: the limit in
  // bytes.
  explicit PortableWriter(uint64_t expected = 0, uint64_t most = MapLimit::Current());

  // Adds the set bits of a container, 1024 words at any alignment. If there are none, adds nothing.
  void AddWords(uint64_t key, const uint8_t* words);

  // Adds `count` > 0 maximal runs, as pairs (first value, number of further values) that hold
  // `cardinality` blocks.
  void AddRuns(uint64_t key, const uint16_t* pairs, uint32_t count, uint32_t cardinality);

  // Adds all blocks of a container.
  void AddFull(uint64_t key);

  // Adds a sound container of another bitmap.
  void AddContainer(const Container& container);

  // True if the bytes exceed the limit. Callers that add many containers should check it.
  bool too_large() const noexcept;
  static absl::Status TooLarge();

  // The bytes. The writer must not be used afterwards.
  // Errors: RESOURCE_EXHAUSTED if they exceed the limit.
  absl::StatusOr<std::vector<uint8_t>> Finish();

 private:
  static constexpr size_t kMaxRunsKept = 2047;  // more would exceed a bitset's size

  void OpenGroup(uint64_t key);
  void CloseGroup();
  void BeginContainer(uint64_t key, uint32_t cardinality, bool runs);
  void Append(const void* bytes, size_t size);
  // Writes a bitset with few bits in each word as an array; returns false if there are too many.
  bool AppendFew(uint64_t key, const uint8_t* words);
  void AppendArray(uint64_t key, const uint8_t* words, uint32_t cardinality);
  void AppendPairs(uint64_t key, const uint8_t* pairs, uint32_t count, uint32_t cardinality);

  const uint64_t most_;
  std::vector<uint8_t> bytes_;  // of the groups that are complete
  uint64_t groups_ = 0;
  // Of the open group.
  uint32_t high_ = 0;
  bool open_ = false;
  bool any_runs_ = false;
  std::vector<uint16_t> descriptors_;  // key, cardinality - 1
  std::vector<uint8_t> flags_;         // one per container
  std::vector<uint32_t> starts_;       // in payload_
  std::vector<uint8_t> payload_;
};

}  // namespace cbt

#endif  // CBT_MAP_PORTABLE_WRITER_H_
