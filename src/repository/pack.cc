#include "repository/pack.h"

#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "repository/crypto.h"

namespace cbt::repository {
namespace {

// The kinds of entries: a type, and whether the blob is compressed.
constexpr uint8_t kCompressed = 2;
constexpr uint8_t kMaxKind = 3;

void AppendNumber(std::vector<uint8_t>& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<uint8_t>(value >> shift));
}

uint32_t TakeNumber(std::span<const uint8_t>& bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | bytes[static_cast<size_t>(i)];
  bytes = bytes.subspan(4);
  return value;
}

}  // namespace

uint32_t PackedBlob::size() const noexcept {
  return uncompressed != 0 ? uncompressed : length - static_cast<uint32_t>(kSealBytes);
}

std::vector<uint8_t> EncodePackHeader(std::span<const PackedBlob> blobs) {
  std::vector<uint8_t> header;
  header.reserve(blobs.size() * 41);
  for (const PackedBlob& blob : blobs) {
    const auto type = static_cast<uint8_t>(blob.type);
    header.push_back(blob.uncompressed == 0 ? type : static_cast<uint8_t>(type | kCompressed));
    AppendNumber(header, blob.length);
    if (blob.uncompressed != 0) AppendNumber(header, blob.uncompressed);
    header.insert(header.end(), blob.id.bytes.begin(), blob.id.bytes.end());
  }
  return header;
}

absl::StatusOr<std::vector<PackedBlob>> DecodePackHeader(std::span<const uint8_t> header,
                                                         uint64_t body_bytes) {
  const auto damaged = [] {
    return absl::DataLossError("has a header that does not describe its content");
  };
  std::vector<PackedBlob> blobs;
  uint64_t offset = 0;
  while (!header.empty()) {
    const uint8_t kind = header.front();
    const bool compressed = (kind & kCompressed) != 0;
    const size_t size = (compressed ? 9 : 5) + Id().bytes.size();
    if (kind > kMaxKind || header.size() < size) return damaged();
    header = header.subspan(1);
    PackedBlob blob;
    blob.type = static_cast<BlobType>(kind & 1);
    blob.length = TakeNumber(header);
    if (compressed) blob.uncompressed = TakeNumber(header);
    std::memcpy(blob.id.bytes.data(), header.data(), blob.id.bytes.size());
    header = header.subspan(blob.id.bytes.size());
    if (blob.length < kSealBytes || offset > std::numeric_limits<uint32_t>::max() ||
        (compressed && blob.uncompressed == 0)) {
      return damaged();
    }
    blob.offset = static_cast<uint32_t>(offset);
    offset += blob.length;
    blobs.push_back(blob);
  }
  if (offset != body_bytes) return damaged();
  return blobs;
}

}  // namespace cbt::repository
