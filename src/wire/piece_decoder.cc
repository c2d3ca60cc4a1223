#include "wire/piece_decoder.h"

#include <algorithm>

#include "simd/kernels.h"
#include "wire/proto_reader.h"

namespace cbt::wire {
namespace {

// Tuples decoded per call of the kernel.
constexpr size_t kTuplesAtATime = 1024;

constexpr uint8_t kTupleTag = 3 << 3 | 2;

}  // namespace

size_t DecodeUsualTuples(std::span<const uint8_t> bytes, TupleList& tuples) {
  size_t done = 0;
  for (;;) {
    const size_t before = tuples.size();
    tuples.resize(before + kTuplesAtATime);
    const simd::TupleScan scan = simd::DecodeTuples().decode(
        bytes.data() + done, bytes.size() - done, tuples.mutable_offsets().data() + before,
        tuples.mutable_lengths().data() + before, kTuplesAtATime);
    tuples.resize(before + scan.tuples);
    done += scan.bytes;
    if (scan.tuples < kTuplesAtATime) return done;
  }
}

bool PieceDecoder::TakeHeader(std::span<const uint8_t>& piece) {
  ProtoReader reader(piece);
  size_t taken = 0;
  while (taken < piece.size() && piece[taken] != kTupleTag) {
    // A field that lies in two pieces is rare enough.
    if (!reader.Next()) return false;
    if (reader.Is(1, WireType::kVarint)) {
      if (reader.varint() > static_cast<uint64_t>(BlockMetadataType::kVariableLength)) return false;
      message_.type = static_cast<BlockMetadataType>(reader.varint());
    } else if (reader.Is(2, WireType::kVarint)) {
      if (reader.varint() > kMaxCapacity) return false;
      message_.capacity = reader.varint();
    } else {
      return false;
    }
    taken = reader.position();
  }
  has_tuples_ = taken < piece.size();
  piece = piece.subspan(taken);
  return true;
}

bool PieceDecoder::TakeCarried(std::span<const uint8_t>& piece) {
  const size_t more = std::min(piece.size(), kMaxBytes - carried_);
  std::copy_n(piece.data(), more, carry_.data() + carried_);
  uint64_t offset = 0;
  uint64_t length = 0;
  const simd::TupleScan scan =
      simd::DecodeTuples().decode(carry_.data(), carried_ + more, &offset, &length, 1);
  if (scan.tuples == 0) {
    // Perhaps this piece does not complete it either.
    carried_ += more;
    piece = {};
    return carried_ < kMaxBytes;
  }
  if (scan.bytes <= carried_) return false;
  message_.tuples.push_back({offset, length});
  piece = piece.subspan(scan.bytes - carried_);
  carried_ = 0;
  return true;
}

bool PieceDecoder::Add(std::span<const uint8_t> piece) {
  if (!has_tuples_ && !TakeHeader(piece)) return false;
  if (carried_ != 0 && !TakeCarried(piece)) return false;
  if (piece.empty()) return true;
  const size_t done = DecodeUsualTuples(piece, message_.tuples);
  const std::span<const uint8_t> rest = piece.subspan(done);
  // More bytes than those of the longest tuple are one of another form, or none.
  if (rest.size() >= kMaxBytes) return false;
  std::copy(rest.begin(), rest.end(), carry_.begin());
  carried_ = rest.size();
  return true;
}

}  // namespace cbt::wire
