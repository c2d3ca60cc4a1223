#include "rpc/http2/protocol.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace cbt::rpc::http2 {
namespace {

using std::chrono::nanoseconds;

struct Unit {
  char letter;
  int64_t nanoseconds;
};
constexpr Unit kUnits[] = {{'n', 1},
                           {'u', 1'000},
                           {'m', 1'000'000},
                           {'S', 1'000'000'000},
                           {'M', 60'000'000'000},
                           {'H', 3'600'000'000'000}};
constexpr size_t kTimeoutDigits = 8;
constexpr int64_t kMaxTimeout = 99'999'999;

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool IsDigit(char c) noexcept { return c >= '0' && c <= '9'; }

char Lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int Base64Digit(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (IsDigit(c)) return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

constexpr std::string_view kResetNames[] = {"NO_ERROR",
                                            "PROTOCOL_ERROR",
                                            "INTERNAL_ERROR",
                                            "FLOW_CONTROL_ERROR",
                                            "SETTINGS_TIMEOUT",
                                            "STREAM_CLOSED",
                                            "FRAME_SIZE_ERROR",
                                            "REFUSED_STREAM",
                                            "CANCEL",
                                            "COMPRESSION_ERROR",
                                            "CONNECT_ERROR",
                                            "ENHANCE_YOUR_CALM",
                                            "INADEQUATE_SECURITY",
                                            "HTTP_1_1_REQUIRED"};
constexpr uint32_t kInternalError = 2;
constexpr uint32_t kRefusedStream = 7;
constexpr uint32_t kCancel = 8;
constexpr uint32_t kEnhanceYourCalm = 11;
constexpr uint32_t kInadequateSecurity = 12;

}  // namespace

std::optional<nanoseconds> ParseTimeout(std::string_view text) noexcept {
  if (text.size() < 2 || text.size() > kTimeoutDigits + 1) return std::nullopt;
  const auto* const unit =
      std::find_if(std::begin(kUnits), std::end(kUnits),
                   [&](const Unit& candidate) { return candidate.letter == text.back(); });
  if (unit == std::end(kUnits)) return std::nullopt;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (!IsDigit(c)) return std::nullopt;
    value = 10 * value + (c - '0');
  }
  if (value > std::numeric_limits<int64_t>::max() / unit->nanoseconds) return nanoseconds::max();
  return nanoseconds(value * unit->nanoseconds);
}

std::string FormatTimeout(nanoseconds time) noexcept {
  const int64_t count = std::max<int64_t>(time.count(), 1);
  for (const Unit& unit : kUnits) {
    // Rounded up: a server that gives up before its client would hide which side was late.
    const int64_t value = count / unit.nanoseconds + (count % unit.nanoseconds != 0 ? 1 : 0);
    if (value > kMaxTimeout) continue;
    char digits[kTimeoutDigits + 1];
    char* const end = std::to_chars(digits, digits + kTimeoutDigits, value).ptr;
    *end = unit.letter;
    return {digits, end + 1};
  }
  return "99999999H";
}

bool IsBinaryKey(std::string_view key) noexcept { return key.ends_with("-bin"); }

std::string Base64Encode(std::string_view bytes) {
  std::string value;
  value.reserve((bytes.size() * 4 + 2) / 3);
  uint32_t bits = 0;
  int count = 0;  // bits that wait for a digit
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (count += 8; count >= 6; count -= 6) value += kBase64[bits >> (count - 6) & 63];
  }
  if (count > 0) value += kBase64[bits << (6 - count) & 63];
  return value;
}

std::optional<std::string> Base64Decode(std::string_view value) {
  // Padding completes the last group of four, or is omitted.
  if (value.size() % 4 == 0) {
    for (int i = 0; i < 2 && value.ends_with('='); ++i) value.remove_suffix(1);
  }
  if (value.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  bytes.reserve(value.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : value) {
    const int digit = Base64Digit(c);
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 255);
  }
  if ((bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return bytes;
}

absl::StatusCode ParseStatusCode(std::string_view text) noexcept {
  constexpr auto kUnknown = absl::StatusCode::kUnknown;
  constexpr int kLastCode = 16;  // UNAUTHENTICATED
  if (text.empty() || text.size() > 2 || !std::all_of(text.begin(), text.end(), IsDigit)) {
    return kUnknown;
  }
  if (text.size() == 2 && text[0] == '0') return kUnknown;
  int code = 0;
  for (const char c : text) code = 10 * code + (c - '0');
  return code > kLastCode ? kUnknown : static_cast<absl::StatusCode>(code);
}

absl::StatusCode CodeOfHttpStatus(int status) noexcept {
  switch (status) {
    case 400:
    case 431:
      return absl::StatusCode::kInternal;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kUnimplemented;
    case 429:
    case 502:
    case 503:
    case 504:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::StatusCode CodeOfReset(uint32_t http2_error) noexcept {
  switch (http2_error) {
    case kRefusedStream:
      return absl::StatusCode::kUnavailable;
    case kCancel:
      return absl::StatusCode::kCancelled;
    case kEnhanceYourCalm:
      return absl::StatusCode::kResourceExhausted;
    case kInadequateSecurity:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kInternal;
  }
}

uint32_t ResetOfCode(absl::StatusCode code) noexcept {
  switch (code) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return kCancel;
    case absl::StatusCode::kResourceExhausted:
      return kEnhanceYourCalm;
    case absl::StatusCode::kPermissionDenied:
      return kInadequateSecurity;
    default:
      return kInternalError;
  }
}

std::string ResetName(uint32_t http2_error) {
  if (http2_error < std::size(kResetNames)) return std::string(kResetNames[http2_error]);
  return "error " + std::to_string(http2_error);
}

bool IsGrpcContentType(std::string_view value) noexcept {
  constexpr std::string_view kType = "application/grpc";
  if (value.size() < kType.size()) return false;
  // Media types are case-insensitive (RFC 9110, section 8.3.1).
  if (!std::equal(kType.begin(), kType.end(), value.begin(),
                  [](char a, char b) { return a == Lower(b); })) {
    return false;
  }
  return value.size() == kType.size() || value[kType.size()] == '+' || value[kType.size()] == ';';
}

std::array<char, kPrefixBytes> MessagePrefix(uint32_t length) noexcept {
  return {0, static_cast<char>(length >> 24), static_cast<char>(length >> 16 & 255),
          static_cast<char>(length >> 8 & 255), static_cast<char>(length & 255)};
}

}  // namespace cbt::rpc::http2
