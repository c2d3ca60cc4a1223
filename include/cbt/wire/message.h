// The messages of the metadata streams as protobuf bytes, without libprotobuf.
//
// Response messages of csi.v1.SnapshotMetadata and of the Kubernetes API have one layout:
//
//   1 block_metadata_type (enum)   2 volume_capacity_bytes (int64)
//   3 repeated block_metadata { 1 byte_offset (int64), 2 size_bytes (int64) }
//
// Encoded bytes are identical with libprotobuf's for the same values (fields in the order of their
// numbers, zero-valued scalars left out).
#ifndef CBT_WIRE_MESSAGE_H_
#define CBT_WIRE_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/extent.h"

namespace cbt {

// The values are the wire's.
enum class BlockMetadataType : int32_t {
  kUnknown = 0,
  kFixedLength = 1,     // every tuple of a stream has the same size
  kVariableLength = 2,  // extents
};

// "FIXED_LENGTH", "VARIABLE_LENGTH" or "UNKNOWN".
std::string_view BlockMetadataTypeName(BlockMetadataType type) noexcept;

// The most bytes that one tuple, and that the two scalar fields of a message, can take.
inline constexpr size_t kMaxTupleBytes = 22;
inline constexpr size_t kMaxHeaderBytes = 12;

// Writes fields 1 and 2 to `out`, which has room for kMaxHeaderBytes; returns the bytes written.
// Requires: capacity <= kMaxCapacity.
size_t EncodeHeader(BlockMetadataType type, uint64_t capacity, uint8_t* out) noexcept;

// What EncodeTuples() did.
struct EncodedTuples {
  size_t tuples = 0;  // how many of the tuples were written, from the first on
  size_t bytes = 0;   // how many bytes they took
};

// Writes as many tuples as surely fit into `out` (at least out.size() / kMaxTupleBytes of them if
// there are so many), each as one element of field 3.
// Requires: both spans have the same size; every value <= kMaxCapacity.
// Cost:     one pass; no allocation.
EncodedTuples EncodeTuples(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths,
                           std::span<uint8_t> out) noexcept;

// The tuples of a message: byte_offset and size_bytes of each, as two arrays that kernels fill.
// Memory grows with the largest message and is used again.
class TupleList {
 public:
  TupleList() = default;
  TupleList(std::initializer_list<Extent> tuples) {
    for (const Extent& tuple : tuples) push_back(tuple);
  }

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = 0; }
  // What new tuples hold is unspecified.
  void resize(size_t size) {
    if (size > offsets_.size()) {
      const size_t room = size > 2 * offsets_.size() ? size : 2 * offsets_.size();
      // Whether there is room is seen by the offsets: last, in case that memory runs out.
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

// Decodes one response message from anybody: fields in any order, unknown fields are skipped,
// repeated scalars count by their last value. What it returns is well formed, not yet plausible:
// StreamChecker looks at that.
// Errors: INVALID_ARGUMENT with the byte position for bytes that are no such message, for negative
//         values and for types that the contract does not know.
// Cost:   one pass; memory at most 16 times the message and 16 KiB.
absl::StatusOr<MetadataMessage> DecodeMetadataMessage(std::span<const uint8_t> bytes);

// As above into `message`, whose memory is used again: what a loop over messages wants. What it
// holds after an error is no message.
absl::Status DecodeMetadataMessage(std::span<const uint8_t> bytes, MetadataMessage& message);

// Checks the messages of one stream, in order, against the rules that a receiver may rely on:
// tuples ascend and never overlap, also across messages, have size > 0, start below the capacity,
// end after the starting offset; no message has more than max_results tuples; type and capacity
// are known, the capacity not 0, and never change; FIXED_LENGTH tuples have one size and end at or
// below 2^63, VARIABLE_LENGTH ones at or below the capacity.
class StreamChecker {
 public:
  // `starting_offset` (bytes) and `max_results` (0: no limit) as they were requested.
  explicit StreamChecker(uint64_t starting_offset, uint32_t max_results = 0)
      : starting_offset_(starting_offset), max_results_(max_results) {}

  // Errors: DATA_LOSS that names the first offending tuple by its place in the stream.
  absl::Status Check(const MetadataMessage& message);

  uint64_t messages() const noexcept { return messages_; }
  uint64_t tuples() const noexcept { return tuples_; }
  // Sum of the tuples' sizes in bytes.
  uint64_t bytes() const noexcept { return bytes_; }
  // End of the last tuple (bytes), the starting offset while there was none: where to resume.
  uint64_t resume_offset() const noexcept { return tuples_ == 0 ? starting_offset_ : end_; }

 private:
  // Looks at tuple after tuple; takes those before the first offending one.
  absl::Status CheckOneByOne(const TupleList& tuples);

  const uint64_t starting_offset_;
  const uint32_t max_results_;
  BlockMetadataType type_ = BlockMetadataType::kUnknown;
  uint64_t capacity_ = 0;
  uint64_t block_size_ = 0;
  uint64_t end_ = 0;
  uint64_t messages_ = 0;
  uint64_t tuples_ = 0;
  uint64_t bytes_ = 0;
};

// What a whole stream said, in three numbers: how many tuples, how many bytes they report, and a
// digest over them, all independent of how they were cut into messages. A server sends it behind
// the stream and a client that computes the same holds the proof that nothing was lost on the way
// (docs/completeness.md).
//
// The digest is XXH3 with 64 bits (https://github.com/Cyan4973/xxHash) over 16 bytes for each tuple
// in stream order: byte_offset, then size_bytes, each as 8 bytes, the lowest first.
class StreamDigest {
 public:
  StreamDigest();
  ~StreamDigest();
  StreamDigest(StreamDigest&&) noexcept;
  StreamDigest& operator=(StreamDigest&&) noexcept;
  StreamDigest(const StreamDigest&) = delete;
  StreamDigest& operator=(const StreamDigest&) = delete;

  // Takes the next tuples; both spans have the same size. Cost: about a nanosecond a tuple.
  void Add(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths) noexcept;

  uint64_t tuples() const noexcept { return tuples_; }
  // Sum of the tuples' sizes in bytes.
  uint64_t bytes() const noexcept { return bytes_; }
  uint64_t digest() const noexcept;

  // The digest as it travels: 16 hexadecimal digits.
  std::string DigestText() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  uint64_t tuples_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace cbt

#endif  // CBT_WIRE_MESSAGE_H_
