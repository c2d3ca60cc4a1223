// The mapping of gRPC onto HTTP/2, as pure functions. Sections named here are those of gRPC's
// PROTOCOL-HTTP2.md; its http-grpc-status-mapping.md has the rule for HTTP statuses.
#ifndef CBT_RPC_HTTP2_PROTOCOL_H_
#define CBT_RPC_HTTP2_PROTOCOL_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::rpc::http2 {

// "Requests": the value of grpc-timeout, one to eight digits and a unit. Zero is a deadline that
// has passed. Values over nanoseconds::max() (292 years) become that. nullopt if malformed.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text) noexcept;

// The shortest grpc-timeout (at most nine characters) that is not less than `time`, and at most a
// thousandth more; "1n" if `time` is not positive. Never throws: the result fits into the string
// object.
std::string FormatTimeout(std::chrono::nanoseconds time) noexcept;

// "Requests": values of keys that end in "-bin". Encoded without padding; decoded with or without
// it. nullopt if the value is not base64 (RFC 4648, section 4), or its unused bits are not zero.
// Both throw std::bad_alloc.
bool IsBinaryKey(std::string_view key) noexcept;
std::string Base64Encode(std::string_view bytes);
std::optional<std::string> Base64Decode(std::string_view value);

// "Responses": the value of grpc-status. UNKNOWN for codes that gRPC does not have, and for
// anything but a decimal number without leading zeros.
absl::StatusCode ParseStatusCode(std::string_view text) noexcept;

// The code of an answer without grpc-status, from its HTTP status. Never OK.
absl::StatusCode CodeOfHttpStatus(int status) noexcept;

// "Errors": the status of a stream that the peer reset with an HTTP/2 error code, as seen by a
// client. Never OK; INTERNAL for unknown codes.
absl::StatusCode CodeOfReset(uint32_t http2_error) noexcept;

// The HTTP/2 error code that resets a stream for a status. Never REFUSED_STREAM, which promises
// that nothing was processed.
uint32_t ResetOfCode(absl::StatusCode code) noexcept;

// The name of an HTTP/2 error code (RFC 9113, section 7), "error 99" for others. Throws
// std::bad_alloc.
std::string ResetName(uint32_t http2_error);

// "Requests": whether a content type is gRPC's: application/grpc, alone or followed by "+" or ";".
bool IsGrpcContentType(std::string_view value) noexcept;

// "Requests": the size of a message's prefix: the compressed flag, and the length in four bytes,
// most significant first.
inline constexpr size_t kPrefixBytes = 5;
std::array<char, kPrefixBytes> MessagePrefix(uint32_t length) noexcept;

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_PROTOCOL_H_
