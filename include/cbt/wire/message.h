// The messages of the metadata streams as protobuf bytes, without libprotobuf.
//
// Response messages of csi.v1.SnapshotMetadata and of the Kubernetes API have one layout:
//
//   1 block_metadata_type (enum)   2 volume_capacity_bytes (int64)
//   3 repeated block_metadata { 1 byte_offset (int64), 2 size_bytes (int64) }
//
// Encoded bytes are identical to libprotobuf's for the same values (fields in numerical order,
// zero-valued scalars omitted).
#ifndef CBT_WIRE_MESSAGE_H_
#define CBT_WIRE_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/extent.h"

namespace cbt {

// The maximum size in bytes of one tuple, and of the two scalar fields of a message.
inline constexpr size_t kMaxTupleBytes = 22;
inline constexpr size_t kMaxHeaderBytes = 12;

// Writes fields 1 and 2 to `out`, which has room for kMaxHeaderBytes; returns the bytes written.
// Requires: capacity <= kMaxCapacity.
size_t EncodeHeader(BlockMetadataType type, uint64_t capacity, uint8_t* out) noexcept;

// The result of EncodeTuples().
struct EncodedTuples {
  size_t tuples = 0;  // tuples written, from the first on
  size_t bytes = 0;   // bytes written
};

// Writes tuples, each as one element of field 3, while the next one is certain to fit into `out`:
// at least min(offsets.size(), out.size() / kMaxTupleBytes) of them.
// Requires: offsets and lengths have the same size; every value <= kMaxCapacity.
// Cost:     one pass; no allocation.
EncodedTuples EncodeTuples(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths,
                           std::span<uint8_t> out) noexcept;

// The tuples of a message: byte_offset and size_bytes of each, as two arrays that kernels fill.
// Memory grows to the largest message and is reused.
class TupleList {
 public:
  TupleList() = default;
  TupleList(std::initializer_list<Extent> tuples) {
    for (const Extent& tuple : tuples) push_back(tuple);
  }

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = 0; }
  // The values of new tuples are unspecified.
  void resize(size_t size) {
    if (size > offsets_.size()) {
      const size_t room = size > 2 * offsets_.size() ? size : 2 * offsets_.size();
      // `offsets_` decides whether there is room: resized last, in case memory runs out.
      lengths_.resize(room);
      offsets_.resize(room);
    }
    size_ = size;
  }
  void push_back(const Extent& tuple) {
    resize(size_ + 1);
    set(size_ - 1, tuple);
  }

  // Requires: index < size().
  Extent operator[](size_t index) const noexcept { return {offsets_[index], lengths_[index]}; }
  void set(size_t index, const Extent& tuple) noexcept {
    offsets_[index] = tuple.offset;
    lengths_[index] = tuple.length;
  }
  // Requires: !empty().
  Extent front() const noexcept { return (*this)[0]; }
  Extent back() const noexcept { return (*this)[size_ - 1]; }

  // Valid until the list changes.
  std::span<const uint64_t> offsets() const noexcept { return {offsets_.data(), size_}; }
  std::span<const uint64_t> lengths() const noexcept { return {lengths_.data(), size_}; }
  std::span<uint64_t> mutable_offsets() noexcept { return {offsets_.data(), size_}; }
  std::span<uint64_t> mutable_lengths() noexcept { return {lengths_.data(), size_}; }

  friend bool operator==(const TupleList& a, const TupleList& b) noexcept {
    return std::equal(a.offsets().begin(), a.offsets().end(), b.offsets().begin(),
                      b.offsets().end()) &&
           std::equal(a.lengths().begin(), a.lengths().end(), b.lengths().begin(),
                      b.lengths().end());
  }

 private:
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> lengths_;
  size_t size_ = 0;
};

// A response message, decoded.
struct MetadataMessage {
  BlockMetadataType type = BlockMetadataType::kUnknown;
  uint64_t capacity = 0;  // bytes
  TupleList tuples = {};
};

// Decodes one response message from any encoder: fields may come in any order, unknown fields are
// skipped, the last value of a repeated scalar counts. The result is well formed but not checked
// against the rules of a stream: StreamChecker does that.
// Errors: INVALID_ARGUMENT with the byte position for malformed bytes, negative values and unknown
//         types.
// Cost:   one pass; memory at most 16 times the message plus 16 KiB.
absl::StatusOr<MetadataMessage> DecodeMetadataMessage(std::span<const uint8_t> bytes);

// As above, into `message`, reusing its memory: for loops over messages. Its contents are
// unspecified after an error.
absl::Status DecodeMetadataMessage(std::span<const uint8_t> bytes, MetadataMessage& message);

}  // namespace cbt

#endif  // CBT_WIRE_MESSAGE_H_
