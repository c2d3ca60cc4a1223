// Packs: blobs one after the other, and a header that lists them at the end.
#ifndef CBT_REPOSITORY_PACK_H_
#define CBT_REPOSITORY_PACK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "repository/id.h"

namespace cbt::repository {

enum class BlobType : uint8_t { kData = 0, kTree = 1 };

// A blob and its place in a pack.
struct PackedBlob {
  Id id = {};
  BlobType type = BlobType::kData;
  uint32_t offset = 0;        // of the sealed bytes in the pack
  uint32_t length = 0;        // of the sealed bytes
  uint32_t uncompressed = 0;  // length of the blob; 0: it is not compressed

  // The blob's own length. `length` must be at least kSealBytes.
  uint32_t size() const noexcept;
};

// The most blobs of a pack here: restic reads headers of up to 16 MiB.
inline constexpr size_t kMaxPackBlobs = 10'000;
// A pack with this many bytes gets no more blobs, as with restic.
inline constexpr size_t kPackBytes = size_t{16} << 20;

// The header before it is sealed. The blobs must stand in the order of their offsets.
std::vector<uint8_t> EncodePackHeader(std::span<const PackedBlob> blobs);

// `body_bytes`: what lies before the header in the pack. Memory: twice the header's.
// Errors: DATA_LOSS, also if the blobs are not exactly what lies before it.
absl::StatusOr<std::vector<PackedBlob>> DecodePackHeader(std::span<const uint8_t> header,
                                                         uint64_t body_bytes);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_PACK_H_
