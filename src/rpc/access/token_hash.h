// Tables of tokens. They are ordered by hashes, so that a lookup does not read the whole table, and
// its time reveals nothing about tokens: an attacker can't choose a token's hash. Nor does the
// table hold the tokens.
#ifndef CBT_RPC_ACCESS_TOKEN_HASH_H_
#define CBT_RPC_ACCESS_TOKEN_HASH_H_

#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "cbt/secrets.h"

namespace cbt::rpc {

using TokenHash = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

inline TokenHash HashOf(const Secret& token) noexcept {
  TokenHash hash;
  const std::string_view text = token.Reveal();
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  return hash;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_ACCESS_TOKEN_HASH_H_
