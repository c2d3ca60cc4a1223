// Writes sorted ranges of blocks as containers.
#ifndef CBT_MAP_RANGE_WRITER_H_
#define CBT_MAP_RANGE_WRITER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "map/portable_writer.h"

namespace cbt {

// Ranges must be added in ascending order of their beginnings; they may touch, overlap and repeat.
// Full containers cost O(1) each.
class RangeWriter {
 public:
  // Adds blocks [begin, end), begin < end. The writer must not be used after an error or an
  // exception.
  // Errors: RESOURCE_EXHAUSTED over kMaxMapBytes, INTERNAL for a range that begins before the last
  //         one, or ends before it begins.
  absl::Status Add(uint64_t begin, uint64_t end);

  // The portable bytes. The writer must not be used afterwards. Errors as above.
  absl::StatusOr<std::vector<uint8_t>> Finish();

 private:
  absl::Status Write(uint64_t begin, uint64_t end);
  void AddToContainer(uint64_t begin, uint64_t end);
  void CloseContainer();

  PortableWriter writer_;
  // The last range, which the next one may extend. Empty: none.
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  // The open container.
  uint64_t key_ = 0;
  uint32_t cardinality_ = 0;
  std::vector<uint16_t> pairs_;
};

}  // namespace cbt

#endif  // CBT_MAP_RANGE_WRITER_H_
