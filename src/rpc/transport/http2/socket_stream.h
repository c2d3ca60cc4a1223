// Bytes over a non-blocking socket, plain or through TLS.
#ifndef CBT_RPC_TRANSPORT_HTTP2_SOCKET_STREAM_H_
#define CBT_RPC_TRANSPORT_HTTP2_SOCKET_STREAM_H_

#include <openssl/ssl.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::rpc::http2 {

struct FreeSsl {
  void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
};
using OwnedSsl = std::unique_ptr<SSL, FreeSsl>;

// Used by one thread at a time. Never blocks, and never raises SIGPIPE.
class SocketStream {
 public:
  enum class State {
    kDone,       // see `bytes`
    kWantRead,   // again when the socket can be read
    kWantWrite,  // again when the socket can be written
    kEnd,        // the peer has closed its side
    kError,      // see ErrorText()
  };
  struct Result {
    State state = State::kDone;
    size_t bytes = 0;
  };

  // `fd` is connected and non-blocking. `ssl` is null for plain text; otherwise it is new, and its
  // side is set (SSL_set_accept_state or SSL_set_connect_state).
  // Errors: RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<SocketStream>> Create(OwnedDescriptor fd, OwnedSsl ssl);

  // Closes the socket at once.
  ~SocketStream();
  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;

  int fd() const noexcept { return fd_.number(); }
  SSL* ssl() const noexcept { return ssl_.get(); }

  // Continues the handshake; kDone when it is complete, at once without TLS.
  Result Handshake() noexcept;

  // kDone: 1 or more bytes are in `space`.
  Result Read(std::span<char> space) noexcept;

  // Whether bytes have arrived that only Read() knows of: no event comes for them.
  bool HasBuffered() const noexcept;

  // kDone: the first `bytes` (1 or more) of `parts` are taken. With TLS they may still be in the
  // staging buffer: see Flush(). `parts` must not be empty. After kWantWrite or kWantRead, the next
  // call's parts begin with the same memory.
  Result Write(std::span<const iovec> parts) noexcept;

  // Sends what Write() has taken; kDone when nothing is left.
  Result Flush() noexcept;
  bool unsent() const noexcept { return stage_begin_ < stage_end_; }

  // Says to the peer that no more bytes come, if that can be done at once.
  void Shutdown() noexcept;

  // Gives back what an idle connection does not need.
  void ReleaseBuffers() noexcept;

  // Why the last operation returned kError. Throws std::bad_alloc.
  std::string ErrorText() const;

 private:
  SocketStream(OwnedDescriptor fd, OwnedSsl ssl) noexcept;
  Result PlainWrite(std::span<const iovec> parts) noexcept;
  Result WriteRecords(const iovec& part) noexcept;
  Result WriteStaged(std::span<const iovec> parts) noexcept;
  Result SystemFailure() noexcept;
  Result SslFailure(int result) noexcept;

  const OwnedDescriptor fd_;
  const OwnedSsl ssl_;
  std::unique_ptr<char[]> stage_;  // of one TLS record
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  bool record_begun_ = false;  // OpenSSL has encrypted a record that WriteRecords() has not taken
  int error_ = 0;
  unsigned long ssl_error_ = 0;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_SOCKET_STREAM_H_
