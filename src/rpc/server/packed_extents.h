// Extents in a few bytes each, until they are needed.
#ifndef CBT_RPC_SERVER_PACKED_EXTENTS_H_
#define CBT_RPC_SERVER_PACKED_EXTENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cbt/batch.h"

namespace cbt::rpc {

// Holds the distances between neighbours and the lengths, seven bits a byte, the lowest first
// (LEB128). Any extents come back as they were; neighbours in stream order, a few blocks apart,
// take 4 to 6 bytes instead of 16.
class PackedExtents {
 public:
  // Replaces the content with the extents of `batch` from index `from` on. If it throws
  // std::bad_alloc, nothing has changed. O(n).
  void Pack(const ExtentBatch& batch, size_t from);

  // Moves the content to the end of `batch`, which has room for it. O(n).
  void UnpackTo(ExtentBatch& batch) noexcept;

  bool empty() const noexcept { return count_ == 0; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t count_ = 0;  // extents
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_PACKED_EXTENTS_H_
