// Messages in pieces against the same bytes as a whole.
#include "wire/piece_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "tests/support/seeded_random.h"

namespace cbt {
namespace piece_decoder_test {

using Bytes = std::vector<uint8_t>;

Bytes Encode(const MetadataMessage& message) {
  Bytes bytes(kMaxHeaderBytes + message.tuples.size() * kMaxTupleBytes);
  const size_t header = EncodeHeader(message.type, message.capacity, bytes.data());
  bytes.resize(header + EncodeTuples(message.tuples.offsets(), message.tuples.lengths(),
                                     std::span(bytes).subspan(header))
                            .bytes);
  return bytes;
}

// Decodes `bytes`, cut at `cuts` (ascending), from pieces that are copies: a read past one is seen
// by the sanitizers. True if the decoder took the message, which then equals the whole one.
bool DecodeInPieces(const Bytes& bytes, const std::vector<size_t>& cuts) {
  MetadataMessage message;
  message.tuples.resize(3);
  wire::PieceDecoder decoder(message);
  size_t at = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : bytes.size();
    const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                      bytes.begin() + static_cast<std::ptrdiff_t>(end));
    if (!decoder.Add(piece)) return false;
    at = end;
  }
  if (!decoder.Finish()) return false;
  MetadataMessage whole;
  const absl::Status status = DecodeMetadataMessage(bytes, whole);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(message.type, whole.type);
  EXPECT_EQ(message.capacity, whole.capacity);
  EXPECT_EQ(message.tuples, whole.tuples);
  return true;
}

MetadataMessage Blocks(size_t count) {
  MetadataMessage message;
  message.type = BlockMetadataType::kFixedLength;
  message.capacity = 64 * kTiB;
  for (size_t i = 0; i < count; ++i) message.tuples.push_back({kTiB + 12288 * i, 4096});
  return message;
}

// More tuples than are decoded at a time.
TEST(PieceDecoder, TuplesBeforeAPieceAreNotItsOwn) {
  const MetadataMessage blocks = Blocks(6000);
  const Bytes bytes = Encode(blocks);
  MetadataMessage half;
  for (size_t i = 3000; i < blocks.tuples.size(); ++i) half.tuples.push_back(blocks.tuples[i]);
  const size_t size = Encode(half).size() - Encode({}).size();
  TupleList tuples;
  EXPECT_EQ(wire::DecodeUsualTuples(std::span(bytes).last(size), tuples), size);
  EXPECT_EQ(tuples, half.tuples);
}

TEST(PieceDecoder, TakesMessagesThatAreCutBetweenFields) {
  const Bytes bytes = Encode(Blocks(60));
  const size_t header = Encode(Blocks(0)).size();
  for (size_t first = header; first <= bytes.size(); ++first) {
    for (const size_t after : {0u, 1u, 2u, 19u, 20u, 21u, 200u}) {
      const size_t second = std::min(first + after, bytes.size());
      EXPECT_TRUE(DecodeInPieces(bytes, {first, second})) << first << " and " << second;
    }
  }
  // Nor does it matter where between the scalar fields.
  EXPECT_TRUE(DecodeInPieces(bytes, {0, 2, 2}));
}

TEST(PieceDecoder, TakesPiecesOfEverySize) {
  const Bytes bytes = Encode(Blocks(300));
  for (size_t size = 10; size < 400; ++size) {
    std::vector<size_t> cuts;
    for (size_t at = size; at < bytes.size(); at += size) cuts.push_back(at);
    EXPECT_TRUE(DecodeInPieces(bytes, cuts)) << "pieces of " << size;
  }
}

TEST(PieceDecoder, TakesMessagesWithoutTuplesAndWithoutBytes) {
  MetadataMessage message = Blocks(0);
  EXPECT_TRUE(DecodeInPieces(Encode(message), {2}));
  EXPECT_TRUE(DecodeInPieces({}, {}));
  message = Blocks(1);
  EXPECT_TRUE(DecodeInPieces(Encode(message), {}));
}

TEST(PieceDecoder, LeavesOtherFormsToTheWholeMessage) {
  const Bytes usual = Encode(Blocks(50));
  const auto with = [&](size_t at, const Bytes& more) {
    Bytes bytes = usual;
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
    return bytes;
  };
  // An unknown field and an unknown type before the tuples; a scalar after them, which counts; half
  // a tuple at the end; a capacity past the limit.
  EXPECT_FALSE(DecodeInPieces(with(0, {0x20, 0x01}), {40}));
  EXPECT_FALSE(DecodeInPieces(with(0, {0x08, 0x03}), {40}));
  EXPECT_FALSE(DecodeInPieces(with(usual.size(), {0x08, 0x01}), {40}));
  EXPECT_FALSE(DecodeInPieces(with(usual.size(), {0x1a}), {40}));
  EXPECT_FALSE(DecodeInPieces(with(usual.size(), {0x1a, 0x04, 0x08}), {40}));
  EXPECT_FALSE(DecodeInPieces(
      with(0, {0x10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}), {40}));
}

// Whatever the bytes: what is taken equals what the whole message gives.
TEST(PieceDecoder, NeverDiffersFromTheWholeMessage) {
  test::SeededRandom random(20261124);
  size_t taken = 0;
  for (int round = 0; round < 20'000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    MetadataMessage message;
    message.type = static_cast<BlockMetadataType>(random() % 3);
    message.capacity = random() >> (1 + random() % 63);
    for (size_t i = random() % 40; i > 0; --i) {
      message.tuples.push_back({random() >> (1 + random() % 63), random() >> (1 + random() % 63)});
    }
    Bytes bytes = Encode(message);
    for (uint64_t i = random() % 3; i > 0 && !bytes.empty(); --i) {
      uint8_t& byte = bytes[random() % bytes.size()];
      byte = static_cast<uint8_t>(random() % 3 == 0 ? random() : byte ^ 1u << random() % 8);
    }
    std::vector<size_t> cuts(random() % 6);
    for (size_t& cut : cuts) cut = random() % (bytes.size() + 1);
    std::sort(cuts.begin(), cuts.end());
    taken += DecodeInPieces(bytes, cuts) ? 1 : 0;
    if (HasFailure()) return;
  }
  // Zeros and values of nine bytes are other forms.
  EXPECT_GT(taken, 500u);
}

}  // namespace piece_decoder_test
}  // namespace cbt
