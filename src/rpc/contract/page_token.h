// Tokens that name a place in a paged answer.
#ifndef CBT_RPC_CONTRACT_PAGE_TOKEN_H_
#define CBT_RPC_CONTRACT_PAGE_TOKEN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt::rpc {

// Where a page begins, and which state of the data the one before was read from.
struct PagePlace {
  uint64_t offset = 0;
  std::string source_version = {};  // as SourceVersion() makes it; zeros if empty

  friend bool operator==(const PagePlace&, const PagePlace&) = default;
};

// Seals and opens page tokens. A token holds a place and a seal over it and over the request that
// it belongs to (HMAC-SHA256), so one that was changed, or that comes from another request or from
// a server with another key, is found out. It holds no state of the server.
//
// Text of a token, before base64url: version (2), offset (8 bytes, lowest first), source version
// (16), seal (16).
class PageTokens {
 public:
  explicit PageTokens(std::string key);

  std::string Seal(const std::optional<std::string>& base, std::string_view target,
                   const PagePlace& place) const;

  // The place in a token. Errors: ABORTED for a token that was not sealed with this key for these
  // snapshots.
  absl::StatusOr<PagePlace> Open(const std::optional<std::string>& base, std::string_view target,
                                 std::string_view token) const;

 private:
  std::string SealOf(const std::optional<std::string>& base, std::string_view target,
                     std::string_view head) const;

  const std::string key_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_PAGE_TOKEN_H_
