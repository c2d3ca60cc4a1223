// The containers of several maps in order of keys; those of equal keys are united.
#ifndef CBT_MAP_CONTAINER_MERGE_H_
#define CBT_MAP_CONTAINER_MERGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "map/container.h"
#include "map/portable_index.h"

namespace cbt {

class ContainerMerge {
 public:
  // Blocks at or past `block_count` are dropped.
  ContainerMerge(std::vector<std::shared_ptr<const PortableIndex>> maps, uint64_t block_count);

  // Moves to the first container whose key is `key` or higher.
  void Seek(uint64_t key);

  // The next container, or null at the end; valid until the next call. If united(), it is a bitset
  // of unknown cardinality, and may be empty.
  // Errors: those of PortableIndex::Load().
  absl::StatusOr<const Container*> Next();
  bool united() const noexcept { return united_; }

  // A lower bound for the next key; past the last one at the end.
  uint64_t next_key() const noexcept { return next_key_; }

 private:
  void Advance(size_t map);
  void FindNext() noexcept;

  const std::vector<std::shared_ptr<const PortableIndex>> maps_;
  const uint64_t block_count_;
  const uint64_t end_key_;
  std::vector<size_t> ordinals_;  // of the next container, for each map
  std::vector<uint64_t> keys_;    // its key, UINT64_MAX at the end
  uint64_t next_key_ = 0;
  bool united_ = false;
  Container container_;
  std::unique_ptr<ContainerWords> words_;  // null until they may be needed
};

}  // namespace cbt

#endif  // CBT_MAP_CONTAINER_MERGE_H_
