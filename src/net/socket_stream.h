// Bytes over a non-blocking socket, plain or through TLS.
#ifndef CBT_NET_SOCKET_STREAM_H_
#define CBT_NET_SOCKET_STREAM_H_

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "net/tls_context.h"

namespace cbt::net {

struct FreeSsl {
  void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
};
using OwnedSsl = std::unique_ptr<SSL, FreeSsl>;

// Used by one thread at a time. Never blocks, and never raises SIGPIPE.
class SocketStream {
 public:
  enum class State {
    kDone,       // see `bytes`
    kWantRead,   // retry when the socket is readable
    kWantWrite,  // retry when the socket is writable
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

  // Whether bytes have arrived that only Read() can see: no event reports them.
  bool HasBuffered() const noexcept;

  // kDone: the first `bytes` (1 or more) of `parts` were taken. With TLS they may still be in
  // buffers here, so that records leave together: see Flush(). `parts` must not be empty. After
  // kWantWrite or kWantRead, the next call's parts must start with the same memory.
  Result Write(std::span<const iovec> parts) noexcept;

  // Sends what Write() has taken; kDone once nothing is left.
  Result Flush() noexcept;
  bool unsent() const noexcept {
    return stage_begin_ < stage_end_ || records_begin_ < records_end_;
  }
  // Whether the socket has refused some of that: Write() would only return kWantWrite.
  bool blocked() const noexcept { return blocked_; }

  // Notifies the peer that no more bytes follow, if that is possible at once.
  void Shutdown() noexcept;

  // Releases what an idle connection does not need.
  void ReleaseBuffers() noexcept;

  // Bytes held, without the kernel's. OpenSSL's share is a price for its state, which is not below
  // what OpenSSL 3 allocates.
  size_t memory() const noexcept;

  // Why the last operation returned kError. Throws std::bad_alloc.
  std::string ErrorText() const;

  // Whether that was TLS's own refusal, on this side or the peer's, and not a broken connection.
  bool refused_by_tls() const noexcept;

 private:
  friend struct SocketBio;

  SocketStream(OwnedDescriptor fd, OwnedSsl ssl) noexcept;
  ssize_t Receive(char* space, size_t bytes) noexcept;
  ssize_t TakeRecord(const char* data, size_t bytes) noexcept;
  size_t TlsMemory() const noexcept;
  void PriceChain() noexcept;
  bool SendRecords() noexcept;
  Result PlainWrite(std::span<const iovec> parts) noexcept;
  Result WriteRecords(const iovec& part) noexcept;
  Result WriteStaged(std::span<const iovec> parts) noexcept;
  Result EncryptStage() noexcept;
  Result SystemFailure() noexcept;
  Result SslFailure(int result) noexcept;
  void SendAlert() noexcept;

  const OwnedDescriptor fd_;
  const OwnedSsl ssl_;
  std::unique_ptr<char[]> stage_;  // of one TLS record
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  std::unique_ptr<char[]> records_;  // encrypted
  size_t records_begin_ = 0;
  size_t records_end_ = 0;
  bool gathering_ = false;  // records wait in records_ until it is full, or Flush() ends
  bool blocked_ = false;
  // OpenSSL has encrypted a record that WriteRecords() has not accounted for
  bool record_begun_ = false;
  // Servers: the first bytes of the client.
  std::array<uint8_t, kHelloHeadBytes> hello_ = {};
  size_t hello_bytes_ = 0;
  bool hello_refused_ = false;
  size_t chain_bytes_ = 0;  // of the peer's certificates, decoded
  int error_ = 0;
  unsigned long ssl_error_ = 0;
};

}  // namespace cbt::net

#endif  // CBT_NET_SOCKET_STREAM_H_
