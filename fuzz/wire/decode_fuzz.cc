// Untrusted bytes through the decoder: an error, or a message that encodes to bytes that decode to
// the same message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/message.h"
#include "fuzz/support/check.h"
#include "wire/piece_decoder.h"

namespace {

// The same bytes in pieces of `length`: what is taken equals the whole message.
void DecodeInPieces(std::span<const uint8_t> bytes, size_t length,
                    const absl::StatusOr<cbt::MetadataMessage>& whole) {
  cbt::MetadataMessage message;
  cbt::wire::PieceDecoder decoder(message);
  for (size_t at = 0; at < bytes.size(); at += length) {
    const auto part = bytes.subspan(at, std::min(length, bytes.size() - at));
    // A copy, so that a read past it is seen.
    if (!decoder.Add(std::vector<uint8_t>(part.begin(), part.end()))) return;
  }
  if (!decoder.Finish()) return;
  CBT_FUZZ_CHECK(whole.ok());
  CBT_FUZZ_CHECK(whole->type == message.type && whole->capacity == message.capacity &&
                 whole->tuples == message.tuples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = cbt::DecodeMetadataMessage({data, size});
  for (const size_t length : {size_t{7}, size_t{50}, size / 2 + 1}) {
    DecodeInPieces({data, size}, length, message);
  }
  if (!message.ok()) return 0;
  CBT_FUZZ_CHECK(message->capacity <= cbt::kMaxCapacity);
  CBT_FUZZ_CHECK(message->tuples.size() <= size / 2);
  const auto offsets = message->tuples.offsets();
  const auto lengths = message->tuples.lengths();
  for (size_t i = 0; i < offsets.size(); ++i) {
    CBT_FUZZ_CHECK(offsets[i] <= cbt::kMaxCapacity && lengths[i] <= cbt::kMaxCapacity);
  }
  std::vector<uint8_t> bytes(cbt::kMaxHeaderBytes + offsets.size() * cbt::kMaxTupleBytes);
  const size_t header = cbt::EncodeHeader(message->type, message->capacity, bytes.data());
  const auto encoded = cbt::EncodeTuples(offsets, lengths, std::span(bytes).subspan(header));
  CBT_FUZZ_CHECK(encoded.tuples == offsets.size());
  const auto again = cbt::DecodeMetadataMessage({bytes.data(), header + encoded.bytes});
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->type == message->type && again->capacity == message->capacity &&
                 again->tuples == message->tuples);
  // The checker handles any message.
  cbt::StreamChecker checker(size);
  static_cast<void>(checker.Check(*message));
  return 0;
}
