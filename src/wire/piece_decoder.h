// Messages that lie in several pieces of memory, as they arrive, decoded where they lie.
#ifndef CBT_WIRE_PIECE_DECODER_H_
#define CBT_WIRE_PIECE_DECODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cbt/wire/message.h"

namespace cbt::wire {

// Appends the tuples at the beginning of `bytes` that have the usual encoding; returns the bytes
// consumed.
size_t DecodeUsualTuples(std::span<const uint8_t> bytes, TupleList& tuples);

// Decodes a message in the form that encoders write: the scalar fields, then the tuples in their
// usual encoding. Copies only tuples that lie in two pieces or more. A message of any other form is
// not decoded here, even if it is valid: DecodeMetadataMessage() takes it as a whole, and is the
// one that reports errors.
//
//   PieceDecoder decoder(message);
//   for (piece : pieces) if (!decoder.Add(piece)) return false;
//   return decoder.Finish();
class PieceDecoder {
 public:
  // `message` must outlive the decoder; its memory is reused.
  explicit PieceDecoder(MetadataMessage& message) noexcept : message_(message) {
    message.type = BlockMetadataType::kUnknown;
    message.capacity = 0;
    message.tuples.clear();
  }

  // Adds the next piece. False if the message has another form; its contents are then unspecified.
  // May throw std::bad_alloc.
  bool Add(std::span<const uint8_t> piece);

  // True if the message is complete and decoded, as DecodeMetadataMessage() would.
  bool Finish() const noexcept { return carried_ == 0; }

 private:
  // A tuple in its usual encoding has at most this many bytes: three tags, its length, and varints
  // of eight bytes.
  static constexpr size_t kMaxBytes = 20;

  // Reads the scalar fields at the beginning of `piece` and removes them from it.
  bool TakeHeader(std::span<const uint8_t>& piece);
  // Completes the tuple whose first bytes are carried, and removes the others from `piece`.
  bool TakeCarried(std::span<const uint8_t>& piece);

  MetadataMessage& message_;
  bool has_tuples_ = false;
  size_t carried_ = 0;  // bytes at the end of earlier pieces that are not a whole tuple
  std::array<uint8_t, kMaxBytes> carry_;
};

}  // namespace cbt::wire

#endif  // CBT_WIRE_PIECE_DECODER_H_
