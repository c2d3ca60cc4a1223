#include "repository/id.h"

#include <openssl/evp.h>

#include <new>

namespace cbt::repository {
namespace {

// 16 for anything else.
unsigned DigitOf(char c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return 16;
}

}  // namespace

std::string Id::Hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<Id> Id::Parse(std::string_view text) noexcept {
  Id id;
  if (text.size() != 2 * id.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    const unsigned high = DigitOf(text[2 * i]);
    const unsigned low = DigitOf(text[2 * i + 1]);
    if (high > 15 || low > 15) return std::nullopt;
    id.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return id;
}

Id Id::Of(std::span<const uint8_t> bytes) {
  Id id;
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), id.bytes.data(), &length, EVP_sha256(), nullptr) !=
      1) {
    throw std::bad_alloc();
  }
  return id;
}

}  // namespace cbt::repository
