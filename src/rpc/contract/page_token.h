// Tokens for positions in a paged answer.
#ifndef CBT_RPC_CONTRACT_PAGE_TOKEN_H_
#define CBT_RPC_CONTRACT_PAGE_TOKEN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt::rpc {

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

#endif  // CBT_RPC_CONTRACT_PAGE_TOKEN_H_
