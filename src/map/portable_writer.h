// Containers to portable 64-bit roaring bytes (RoaringFormatSpec). Every container takes its
// smallest kind, so that one set of blocks has one serialisation.
#ifndef CBT_MAP_PORTABLE_WRITER_H_
#define CBT_MAP_PORTABLE_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/container.h"

namespace cbt {

// Containers come in ascending order of their keys, each once.
class PortableWriter {
 public:
  // `expected`: bytes that there will be at most, if that is known; room is made for them at once.
  // `most`: bytes that there may be.
  explicit PortableWriter(uint64_t expected = 0, uint64_t most = kMaxMapBytes);

  // The set bits of a container, 1024 words at any alignment. Without any, nothing is added.
  void AddWords(uint64_t key, const uint8_t* words);

  // `count` > 0 maximal runs, as pairs (first value, number of further values) that hold
  // `cardinality` blocks.
  void AddRuns(uint64_t key, const uint16_t* pairs, uint32_t count, uint32_t cardinality);

  // All blocks of a container.
  void AddFull(uint64_t key);

  // A container of another bitmap, which is sound.
  void AddContainer(const Container& container);

  // True when there is more than a map may have; whoever adds many things should look.
  bool too_large() const noexcept;
  static absl::Status TooLarge();

  // The bytes; the writer is done with.
  // Errors: RESOURCE_EXHAUSTED when they are more than there may be.
  absl::StatusOr<std::vector<uint8_t>> Finish();

 private:
  static constexpr size_t kMaxRunsKept = 2047;  // more take more bytes than a bitset

  void OpenGroup(uint64_t key);
  void CloseGroup();
  void BeginContainer(uint64_t key, uint32_t cardinality, bool runs);
  void Append(const void* bytes, size_t size);
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
  std::vector<uint8_t> flags_;         // one a container
  std::vector<uint32_t> starts_;       // in payload_
  std::vector<uint8_t> payload_;
};

}  // namespace cbt

#endif  // CBT_MAP_PORTABLE_WRITER_H_
