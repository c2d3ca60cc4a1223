// What lets an answer be continued: the offset where it starts, the version of the data that it is
// read from, and the token of the next page.
#ifndef CBT_RPC_CONTRACT_RESUMPTION_H_
#define CBT_RPC_CONTRACT_RESUMPTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt::rpc {

// The number of leading tuples that end at or before `starting_offset`: the client has them
// already. Stops at the first tuple that reaches past the offset, and at an empty one: malformed
// tuples must reach the checks. Values whose sum wraps count as reaching past the offset.
// Requires: both spans have the same size.
// Cost:     O(result).
inline size_t CountTuplesBefore(std::span<const uint64_t> offsets,
                                std::span<const uint64_t> lengths,
                                uint64_t starting_offset) noexcept {
  size_t count = 0;
  while (count < offsets.size() && lengths[count] != 0 && offsets[count] < starting_offset &&
         lengths[count] <= starting_offset - offsets[count]) {
    ++count;
  }
  return count;
}

// Key of initial metadata. Our values are 32 hexadecimal digits, after kPlacePrefix if they say
// only where the data is (MetadataSource::may_change_unseen).
inline constexpr std::string_view kSourceVersionKey = "cbt-source-version";

inline constexpr std::string_view kPlacePrefix = "place:";

// Whether data of this version, as sent in metadata, may change while the version stays the same.
inline bool IsOfPlace(std::string_view version_text) noexcept {
  return version_text.starts_with(kPlacePrefix);
}

// The error for a version that is given twice: it can't be compared with a later one.
inline constexpr std::string_view kTwoVersions = "cbt-source-version is given more than once";

inline constexpr size_t kSourceVersionBytes = 16;

// A digest of the requested snapshots' handles and of the provider's version of the data
// (MetadataSource::version, may be empty). It reveals neither, and is the same after a restart.
// Throws std::bad_alloc.
std::string SourceVersion(const std::optional<std::string>& base, std::string_view target,
                          std::string_view version);

// As sent in metadata.
std::string SourceVersionText(std::string_view bytes, bool of_place);

// Appends the length and the text, so that a sequence of them is unambiguous.
void AppendSized(std::string& out, std::string_view text);

// Where a page begins, and the version of the data that the previous page was read from.
struct PagePlace {
  uint64_t offset = 0;
  std::string source_version = {};  // from SourceVersion(); encoded as zeros if empty

  friend bool operator==(const PagePlace&, const PagePlace&) = default;
};

// Seals and opens page tokens. A token holds a position and an HMAC-SHA256 over it and its request,
// so a token that was changed, or that belongs to another request or another key, is detected. The
// server keeps no state for it.
//
// Layout before base64url: version (2), offset (8 bytes, little-endian), source version (16), seal
// (16).
class PageTokens {
 public:
  explicit PageTokens(std::string key);

  std::string Seal(const std::optional<std::string>& base, std::string_view target,
                   const PagePlace& place) const;

  // Returns the position in a token. Errors: ABORTED for a token that was not sealed with this key
  // for these snapshots.
  absl::StatusOr<PagePlace> Open(const std::optional<std::string>& base, std::string_view target,
                                 std::string_view token) const;

 private:
  std::string SealOf(const std::optional<std::string>& base, std::string_view target,
                     std::string_view head) const;

  const std::string key_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_RESUMPTION_H_
