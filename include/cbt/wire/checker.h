// Checks the rules that a stream of metadata messages follows.
#ifndef CBT_WIRE_CHECKER_H_
#define CBT_WIRE_CHECKER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"

namespace cbt {

// Checks the messages of one stream, in order, against the rules that a receiver may rely on:
// tuples ascend and never overlap, also across messages, have size > 0, start below the capacity,
// end after the starting offset; no message has more than max_results tuples; the type is known,
// the capacity is not 0, and neither changes; FIXED_LENGTH tuples have one size and end at or below
// 2^63, VARIABLE_LENGTH ones at or below the capacity.
class StreamChecker {
 public:
  // `starting_offset` (bytes) and `max_results` (0: no limit) as in the request.
  explicit StreamChecker(uint64_t starting_offset, uint32_t max_results = 0)
      : starting_offset_(starting_offset), max_results_(max_results) {}

  // Errors: DATA_LOSS, naming the first invalid tuple by its index in the stream.
  absl::Status Check(const MetadataMessage& message);

  uint64_t messages() const noexcept { return messages_; }
  uint64_t tuples() const noexcept { return tuples_; }
  // Sum of the tuples' sizes in bytes.
  uint64_t bytes() const noexcept { return bytes_; }
  // Where to resume (bytes): the end of the last tuple, or the starting offset if there was none.
  uint64_t resume_offset() const noexcept { return tuples_ == 0 ? starting_offset_ : end_; }

 private:
  // Checks tuple by tuple; accepts those before the first invalid one.
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

}  // namespace cbt

#endif  // CBT_WIRE_CHECKER_H_
