// A stream of a connection.
#ifndef CBT_RPC_HTTP2_STREAM_H_
#define CBT_RPC_HTTP2_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/cord.h"
#include "rpc/http2/header_block.h"

namespace cbt::rpc::http2 {

class Connection;

// Why a stream has ended.
struct StreamEnd {
  enum class By {
    kBoth,        // both sides have sent END_STREAM
    kPeer,        // RST_STREAM from the peer, or a GOAWAY that excludes the stream
    kProtocol,    // the peer broke a rule, and was sent RST_STREAM
    kConnection,  // the connection has ended
  };
  By by = By::kBoth;
  uint32_t code = 0;         // HTTP/2's error code
  bool unprocessed = false;  // the peer has certainly not processed the request
};

// Base class for a stream's user. Events come in the connection's loop, one at a time. They may
// call every function of the connection; after Connection::Reset() the stream may be destroyed,
// even in its own event. Otherwise it lives until OnClosed().
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Null before the stream is opened and after it has ended.
  Connection* connection() const noexcept { return connection_; }
  // 0 until the connection has assigned a number.
  int32_t id() const noexcept { return id_; }

  // The request on servers, the response on clients; 1xx responses are skipped. Valid during the
  // event. `end`: nothing follows, OnRemoteEnd() is next.
  virtual void OnHeaders(const HeaderBlock& headers, bool end) noexcept = 0;

  // Bytes of the body; at least one. Pass their number to Connection::Consume() to open the peer's
  // window.
  virtual void OnData(absl::Cord data) noexcept = 0;

  // The last headers; OnRemoteEnd() is next.
  virtual void OnTrailers(const HeaderBlock& /*trailers*/) noexcept {}

  // The peer has sent END_STREAM.
  virtual void OnRemoteEnd() noexcept = 0;

  // The last byte passed to Connection::Send() has passed flow control and is in the connection's
  // output: Send() may be called again.
  virtual void OnSent() noexcept {}

  // The last event; the stream is detached, and may be destroyed.
  virtual void OnClosed(const StreamEnd& end) noexcept = 0;

 protected:
  ~Stream() = default;

 private:
  friend class Connection;
  friend struct SessionCallbacks;

  enum class Finish { kNot, kEnd, kTrailers };

  Connection* connection_ = nullptr;
  int32_t id_ = 0;
  Stream* next_ = nullptr;
  Stream* previous_ = nullptr;
  // What is left of the message: the peer's window does not admit it yet, and a reset drops it.
  absl::Cord unsent_;
  HeaderBlock trailers_;
  std::optional<uint64_t> body_left_;  // servers: of the length that the client has said
  size_t unconsumed_ = 0;              // received, and not yet consumed
  Finish finish_ = Finish::kNot;
  bool deferred_ = false;  // nghttp2 requests data only once resumed
  bool headers_received_ = false;
  bool remote_end_ = false;
  bool reset_by_peer_ = false;
  bool request_sent_ = false;  // clients
  bool served_ = false;        // servers, see Connection::SetServed()
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_STREAM_H_
