// Tokens that name a place in a paged answer.
#ifndef CBT_RPC_PAGE_TOKEN_H_
#define CBT_RPC_PAGE_TOKEN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt::rpc {

// Seals and opens page tokens. A token holds an offset and a seal over it and over the request that
// it belongs to (HMAC-SHA256), so one that was changed, or that comes from another request or from
// a server with another key, is found out. It holds no state of the server.
//
// Text of a token, before base64url: version (1), offset (8 bytes, lowest first), seal (16).
class PageTokens {
 public:
  explicit PageTokens(std::string key);

  std::string Seal(const std::optional<std::string>& base, std::string_view target,
                   uint64_t offset) const;

  // The offset in a token. Errors: ABORTED for a token that was not sealed with this key for these
  // snapshots.
  absl::StatusOr<uint64_t> Open(const std::optional<std::string>& base, std::string_view target,
                                std::string_view token) const;

 private:
  std::string SealOf(const std::optional<std::string>& base, std::string_view target,
                     std::string_view head) const;

  const std::string key_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_PAGE_TOKEN_H_
