// The containers of several maps by key, united where they meet.
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
  // Blocks at or past `block_count` are left out.
  ContainerMerge(std::vector<std::shared_ptr<const PortableIndex>> maps, uint64_t block_count);

  // Goes on with the first container whose key is `key` or higher.
  void Seek(uint64_t key);

  // The next container, or null when there is none; valid until the next call. One that is united()
  // is a bitset whose cardinality is not known, and may even be empty.
  // Errors: what is wrong with a container that has not been checked before.
  absl::StatusOr<const Container*> Next();
  bool united() const noexcept { return united_; }

  // The key that comes next, at least; past the last one at the end.
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
  ContainerWords words_;
};

}  // namespace cbt

#endif  // CBT_MAP_CONTAINER_MERGE_H_
