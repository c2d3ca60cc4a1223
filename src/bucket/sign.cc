#include "bucket/sign.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"

namespace cbt::bucket {
namespace {

using Digest = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

std::string HexOf(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

Digest Hmac(std::span<const uint8_t> key, std::string_view text) {
  Digest digest{};
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length);
  return digest;
}

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The value without spaces at its ends, and with one where several are.
std::string TrimmedValue(std::string_view value) {
  std::string out;
  out.reserve(value.size());
  for (const char c : value) {
    const bool space = c == ' ' || c == '\t' || c == '\n';
    if (!space) {
      out.push_back(c);
    } else if (!out.empty() && out.back() != ' ') {
      out.push_back(' ');
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// Headers by lower-case name, with the values of one name joined; wiped, since one may be a session
// token.
class CanonicalHeaders {
 public:
  explicit CanonicalHeaders(const SignedRequest& request) {
    for (const auto& [name, value] : request.headers) {
      std::string lower = name;
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const auto [place, added] = values_.try_emplace(std::move(lower), TrimmedValue(value));
      if (!added) absl::StrAppend(&place->second, ",", TrimmedValue(value));
    }
  }
  ~CanonicalHeaders() {
    for (auto& [name, value] : values_) WipeWhole(value);
  }
  CanonicalHeaders(const CanonicalHeaders&) = delete;
  CanonicalHeaders& operator=(const CanonicalHeaders&) = delete;

  const std::map<std::string, std::string>& values() const noexcept { return values_; }

 private:
  std::map<std::string, std::string> values_;
};

std::string SignedNames(const SignedRequest& request) {
  std::string names;
  const CanonicalHeaders headers(request);
  for (const auto& [name, value] : headers.values()) {
    absl::StrAppend(&names, names.empty() ? "" : ";", name);
  }
  return names;
}

std::string ScopeText(const SigningScope& scope) {
  return absl::StrCat(AmzDate(scope.time).substr(0, 8), "/", scope.region, "/", scope.service,
                      "/aws4_request");
}

}  // namespace

std::string UriEncode(std::string_view text, bool keep_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

std::string CanonicalQuery(const std::vector<NameAndValue>& query) {
  std::vector<NameAndValue> encoded;
  for (const auto& [name, value] : query) {
    encoded.emplace_back(UriEncode(name, false), UriEncode(value, false));
  }
  // By name, then by value; "a=" would sort after "a-b=" as a text.
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) {
    absl::StrAppend(&text, text.empty() ? "" : "&", name, "=", value);
  }
  return text;
}

std::string AmzDate(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return std::string(text, size);
}

std::string Sha256Hex(std::span<const uint8_t> bytes) {
  Digest digest{};
  SHA256(bytes.data(), bytes.size(), digest.data());
  return HexOf(digest);
}

std::string Sha256Hex(std::string_view text) { return Sha256Hex(BytesOf(text)); }

std::string CanonicalRequest(const SignedRequest& request) {
  const CanonicalHeaders headers(request);
  std::string text;
  size_t room = 1024 + 3 * request.path.size();
  for (const auto& [name, value] : headers.values()) room += 2 * name.size() + value.size() + 3;
  for (const auto& [name, value] : request.query) room += 3 * (name.size() + value.size()) + 2;
  text.reserve(room);  // growing would leave copies of secrets behind
  absl::StrAppend(&text, request.method, "\n", UriEncode(request.path, true), "\n",
                  CanonicalQuery(request.query), "\n");
  for (const auto& [name, value] : headers.values()) {
    absl::StrAppend(&text, name, ":", value, "\n");
  }
  absl::StrAppend(&text, "\n", SignedNames(request), "\n", request.payload_sha256);
  return text;
}

std::string Signature(const SignedRequest& request, const SigningScope& scope,
                      const Secret& secret_key) {
  // May hold a session token.
  std::string canonical = CanonicalRequest(request);
  const Wiper wipe_canonical(canonical);
  const std::string to_sign = absl::StrCat("AWS4-HMAC-SHA256\n", AmzDate(scope.time), "\n",
                                           ScopeText(scope), "\n", Sha256Hex(canonical));
  std::string first = absl::StrCat("AWS4", AbslView(secret_key.Reveal()));
  const Wiper wipe_first(first);
  Digest key = Hmac(BytesOf(first), AmzDate(scope.time).substr(0, 8));
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service),
        std::string_view("aws4_request")}) {
    key = Hmac(key, part);
  }
  const Digest signature = Hmac(key, to_sign);
  OPENSSL_cleanse(key.data(), key.size());
  return HexOf(signature);
}

std::string Authorization(const SignedRequest& request, const SigningScope& scope,
                          std::string_view access_key, const Secret& secret_key) {
  return absl::StrCat("AWS4-HMAC-SHA256 Credential=", AbslView(access_key), "/", ScopeText(scope),
                      ",SignedHeaders=", SignedNames(request),
                      ",Signature=", Signature(request, scope, secret_key));
}

}  // namespace cbt::bucket
