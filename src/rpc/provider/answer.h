// The messages of cbt.provider.v1 (src/proto/provider.proto), without libprotobuf.
#ifndef CBT_RPC_PROVIDER_ANSWER_H_
#define CBT_RPC_PROVIDER_ANSWER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

inline constexpr std::string_view kProviderOpen = "/cbt.provider.v1.SnapshotProvider/Open";

// INTERNAL: the plugin breaks the contract.
absl::Status ProviderBroken(std::string_view why);

// An OpenRequest, encoded. It may hold secrets.
std::string EncodeOpenRequest(std::string_view base, std::string_view target,
                              const Secrets& secrets, uint64_t starting_offset);

enum class AnswerContent : uint8_t { kBitmap = 1, kExtents = 2, kFile = 3 };

// A Head whose values are in range: a geometry that cursors take, a content that is known, an
// offset that the content allows.
struct AnswerHead {
  VolumeGeometry geometry;  // of a file, perhaps of capacity 0: what the file says
  AnswerContent content = AnswerContent::kExtents;
  bool most_significant_first = false;
  bool inverted = false;
  std::string path;
  std::string base_path;
  std::string format;
  uint64_t block_size = 0;
  std::string version;
  bool may_change_unseen = false;
  bool starts_anywhere = false;
  uint64_t begins_at = 0;

  // Whether `other` describes the same answer, wherever it begins.
  bool SameAs(const AnswerHead& other) const;
};

// One Answer. Belongs to one thread.
struct AnswerPart {
  enum class Kind : uint8_t { kHead, kBitmap, kExtents, kEnd };
  Kind kind = Kind::kHead;
  AnswerHead head;
  std::span<const uint8_t> bitmap;  // of the message's bytes
  std::vector<uint64_t> offsets;    // bytes; as many as lengths
  std::vector<uint64_t> lengths;
  uint64_t covered = 0;
  uint64_t count = 0;
};

// Decodes a message; `bytes` must outlive the use of part.bitmap. What a part of another kind has
// left in `part` stays.
// Errors: INTERNAL with what is wrong: malformed bytes, not exactly one part, values of a head that
//         are out of range, not as many offsets as lengths.
absl::Status DecodeAnswer(std::span<const uint8_t> bytes, AnswerPart& part);

}  // namespace cbt::rpc

#endif  // CBT_RPC_PROVIDER_ANSWER_H_
