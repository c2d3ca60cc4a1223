#include "rpc/contract/resumption.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <new>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/extent.h"

namespace cbt::rpc {

void AppendSized(std::string& out, std::string_view text) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(text.size() >> (8 * i)));
  out.append(text);
}

std::string SourceVersion(const std::optional<std::string>& base, std::string_view target,
                          std::string_view version) {
  std::string hashed = "cbt source version 1";
  hashed.push_back(base.has_value() ? 1 : 0);
  AppendSized(hashed, base.value_or(""));
  AppendSized(hashed, target);
  AppendSized(hashed, version);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  // Fails only when out of memory. A missing version must never be compared.
  if (EVP_Digest(hashed.data(), hashed.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return {reinterpret_cast<const char*>(digest), kSourceVersionBytes};
}

std::string SourceVersionText(std::string_view bytes, bool of_place) {
  return absl::StrCat(of_place ? AbslView(kPlacePrefix) : "",
                      absl::BytesToHexString(AbslView(bytes)));
}

namespace {

constexpr char kVersion = 2;
constexpr size_t kHeadBytes = 1 + 8 + kSourceVersionBytes;
constexpr size_t kSealBytes = 16;

absl::Status Foreign() {
  return absl::AbortedError("starting_token: not a token of this request; start without a token");
}

}  // namespace

PageTokens::PageTokens(std::string key) : key_(std::move(key)) {}

std::string PageTokens::SealOf(const std::optional<std::string>& base, std::string_view target,
                               std::string_view head) const {
  std::string sealed(head);
  sealed.push_back(base.has_value() ? 1 : 0);
  AppendSized(sealed, base.value_or(""));
  AppendSized(sealed, target);
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  // Fails only when out of memory. A missing seal must never be sent or accepted.
  if (HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
           reinterpret_cast<const unsigned char*>(sealed.data()), sealed.size(), code,
           &length) == nullptr) {
    throw std::bad_alloc();
  }
  return {reinterpret_cast<const char*>(code), kSealBytes};
}

std::string PageTokens::Seal(const std::optional<std::string>& base, std::string_view target,
                             const PagePlace& place) const {
  std::string token(1, kVersion);
  for (int i = 0; i < 8; ++i) token.push_back(static_cast<char>(place.offset >> (8 * i)));
  token += place.source_version;
  token.resize(kHeadBytes);
  token += SealOf(base, target, token);
  return absl::WebSafeBase64Escape(token);
}

absl::StatusOr<PagePlace> PageTokens::Open(const std::optional<std::string>& base,
                                           std::string_view target, std::string_view token) const {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(AbslView(token), &bytes) ||
      bytes.size() != kHeadBytes + kSealBytes || bytes[0] != kVersion) {
    return Foreign();
  }
  // The decoder accepts several encodings of the same bytes; only ours is valid.
  if (absl::WebSafeBase64Escape(bytes) != token) return Foreign();
  const std::string seal = SealOf(base, target, std::string_view(bytes).substr(0, kHeadBytes));
  if (CRYPTO_memcmp(seal.data(), bytes.data() + kHeadBytes, kSealBytes) != 0) return Foreign();
  uint64_t offset = 0;
  for (size_t i = 0; i < 8; ++i) {
    offset |= uint64_t{static_cast<unsigned char>(bytes[1 + i])} << (8 * i);
  }
  if (offset > kMaxCapacity) return Foreign();
  return PagePlace{offset, bytes.substr(1 + 8, kSourceVersionBytes)};
}

}  // namespace cbt::rpc
