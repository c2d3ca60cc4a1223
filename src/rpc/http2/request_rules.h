// What HTTP/2 demands of a request's header fields.
#ifndef CBT_RPC_HTTP2_REQUEST_RULES_H_
#define CBT_RPC_HTTP2_REQUEST_RULES_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace cbt::rpc::http2 {

// RFC 9113, section 8, for one header block after another. Used instead of nghttp2's check, which
// refuses clients of gRPC for their `:authority`: over Unix sockets it is the socket's path, empty
// or missing. Nothing here reads it.
class RequestRules {
 public:
  // A new block: of a request, or of its trailers.
  void Begin(bool trailers) noexcept { *this = RequestRules(trailers); }
  RequestRules() = default;

  // Returns false if the field is to be left out: it has bytes that no field may have, or makes the
  // block malformed.
  bool Take(std::string_view name, std::string_view value) noexcept;

  // After the last field: whether the block may be used. `ends`: the request ends with it.
  bool IsWellFormed(bool ends) const noexcept;

  // The length of the body, if the client has said it.
  std::optional<uint64_t> content_length() const noexcept { return content_length_; }

 private:
  explicit RequestRules(bool trailers) noexcept : trailers_(trailers) {}
  void TakePseudo(std::string_view name, std::string_view value) noexcept;
  void TakeLength(std::string_view value) noexcept;

  bool trailers_ = false;
  bool malformed_ = false;
  bool fields_begun_ = false;  // pseudo-header fields come first
  unsigned seen_ = 0;          // pseudo-header fields
  std::optional<uint64_t> content_length_;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_REQUEST_RULES_H_
