// A server's answer to a call, as a client decodes it.
#ifndef CBT_RPC_HTTP2_RESPONSE_H_
#define CBT_RPC_HTTP2_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "rpc/http2/header_block.h"
#include "rpc/http2/message_reader.h"

namespace cbt::rpc::http2 {

// Turns the frames of an answer into messages and a status, by the rules of gRPC's
// PROTOCOL-HTTP2.md. The status is OK in one case only: the answer is gRPC's, headers and trailers
// together have exactly one grpc-status, which is in the last of them and is 0, and all bytes
// before it were complete messages that have been taken. Belongs to one thread at a time. Functions
// throw std::bad_alloc, and the answer has then failed.
class Response {
 public:
  // Longer messages (bytes) end the answer.
  explicit Response(size_t max_message) noexcept : reader_(max_message) {}

  // The answer's headers. With `end` they are also its trailers ("Trailers-Only").
  void OnHeaders(const HeaderBlock& headers, bool end);
  void OnData(absl::Cord data);
  void OnTrailers(const HeaderBlock& trailers);
  // END_STREAM, after the trailers if there are any.
  void OnEnd();
  // The stream ended in any other way, for this reason (not OK).
  void OnFailure(absl::Status reason);

  // The next message. Returns false if it is incomplete, or if the answer failed before it: see
  // status().
  bool Next(absl::Cord& message);

  // Set once nothing more follows and every message before the end was taken; at once if no further
  // message can be read, as the rest of the stream is then useless.
  const std::optional<absl::Status>& status() const noexcept { return status_; }

  // Whether the stream has ended, possibly with messages left to take.
  bool ended() const noexcept { return end_.has_value() || status_.has_value(); }

  size_t buffered() const noexcept { return reader_.buffered(); }

  // The only value of `key`; kGivenTwice if there are several, for Trailing() also if the headers
  // have one too. Values of "-bin" keys are decoded.
  std::optional<std::string_view> Initial(std::string_view key) const;
  std::optional<std::string_view> Trailing(std::string_view key) const;

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  static absl::Status Keep(const HeaderBlock& block, Fields& fields);
  absl::Status NotGrpc() const;
  absl::Status StatusOfTrailers() const;
  void Fail(absl::StatusCode code, std::string_view text);
  void Finish();

  MessageReader reader_;
  int http_status_ = 0;  // 0: no headers yet
  bool is_grpc_ = false;
  bool has_trailers_ = false;
  Fields initial_;
  Fields trailing_;
  std::optional<absl::Status> end_;  // how the stream ended
  std::optional<absl::Status> status_;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_RESPONSE_H_
