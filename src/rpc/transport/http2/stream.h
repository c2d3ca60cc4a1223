// A stream of a connection.
#ifndef CBT_RPC_TRANSPORT_HTTP2_STREAM_H_
#define CBT_RPC_TRANSPORT_HTTP2_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/cord.h"
#include "rpc/transport/http2/header_block.h"

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
  bool unprocessed = false;  // the peer has certainly not looked at the request
};

// A stream's user derives from this. Events come in the connection's loop, one at a time. Every
// function of the connection may be called in them; after Connection::Reset() the stream may be
// destroyed, even in its own event. Otherwise it lives until OnClosed().
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Null before the stream is opened and after it has ended.
  Connection* connection() const noexcept { return connection_; }
  // 0 before the connection has given it a number.
  int32_t id() const noexcept { return id_; }

  // On servers the request, on clients the response; 1xx responses are left out. Valid during the
  // event. `end`: nothing follows, OnRemoteEnd() comes next.
  virtual void OnHeaders(const HeaderBlock& headers, bool end) noexcept = 0;

  // Bytes of the body; at least one. The peer's window opens when they are given to
  // Connection::Consume().
  virtual void OnData(absl::Cord data) noexcept = 0;

  // The last headers; OnRemoteEnd() comes next.
  virtual void OnTrailers(const HeaderBlock& /*trailers*/) noexcept {}

  // The peer has sent END_STREAM.
  virtual void OnRemoteEnd() noexcept = 0;

  // The last byte of what Connection::Send() got has passed flow control, and is in the
  // connection's output: Send() may be called again.
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
  absl::Cord unsent_;  // the message
  HeaderBlock trailers_;
  size_t unconsumed_ = 0;  // received, and not yet consumed
  Finish finish_ = Finish::kNot;
  bool deferred_ = false;  // nghttp2 asks for data only after it is resumed
  bool headers_received_ = false;
  bool remote_end_ = false;
  bool reset_by_peer_ = false;
  bool request_sent_ = false;  // clients
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_STREAM_H_
