#include "rpc/http2/request_rules.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace cbt::rpc::http2 {
namespace {

const uint8_t* BytesOf(std::string_view text) noexcept {
  return reinterpret_cast<const uint8_t*>(text.data());
}

// Each once; the last one may be missing.
constexpr std::array<std::string_view, 4> kPseudoFields = {":method", ":scheme", ":path",
                                                           ":authority"};
constexpr unsigned kNeeded = 0b0111;

// Of a connection of HTTP/1 (section 8.2.2).
constexpr std::array<std::string_view, 5> kConnectionFields = {
    "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"};

bool HasUpperCase(std::string_view name) noexcept {
  return std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

bool RequestRules::Take(std::string_view name, std::string_view value) noexcept {
  const bool sound = nghttp2_check_header_value(BytesOf(value), value.size()) == 1;
  if (name.starts_with(':')) {
    malformed_ = malformed_ || !sound;
    TakePseudo(name, value);
    return !malformed_;
  }
  fields_begun_ = true;
  if (nghttp2_check_header_name(BytesOf(name), name.size()) != 1) {
    malformed_ = malformed_ || HasUpperCase(name);
    return false;
  }
  if (!sound) return false;
  const bool of_connection = std::find(kConnectionFields.begin(), kConnectionFields.end(), name) !=
                                 kConnectionFields.end() ||
                             (name == "te" && value != "trailers");
  malformed_ = malformed_ || of_connection;
  if (name == "content-length" && !trailers_) TakeLength(value);
  return !malformed_;
}

void RequestRules::TakePseudo(std::string_view name, std::string_view value) noexcept {
  const auto found = std::find(kPseudoFields.begin(), kPseudoFields.end(), name);
  const auto bit = 1U << (found - kPseudoFields.begin());
  const bool is_path = name == ":path";
  malformed_ = malformed_ || trailers_ || fields_begun_ || found == kPseudoFields.end() ||
               (seen_ & bit) != 0 || (is_path && !value.starts_with('/'));
  seen_ |= bit;
}

void RequestRules::TakeLength(std::string_view value) noexcept {
  constexpr size_t kMaxDigits = 19;  // of a number that fits
  const bool number =
      !value.empty() && value.size() <= kMaxDigits &&
      std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
  malformed_ = malformed_ || !number || content_length_.has_value();
  if (malformed_) return;
  uint64_t length = 0;
  for (const char digit : value) length = 10 * length + static_cast<uint64_t>(digit - '0');
  content_length_ = length;
}

bool RequestRules::IsWellFormed(bool ends) const noexcept {
  if (malformed_) return false;
  return trailers_ ? ends : (seen_ & kNeeded) == kNeeded;
}

}  // namespace cbt::rpc::http2
