#include "net/socket_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "net/memory.h"

namespace cbt::net {
namespace {

// The most that fits in a TLS record.
constexpr size_t kRecordBytes = 16 * kKiB;

// OpenSSL's read-ahead: two records. It moves the rest to the front of its buffer before each
// record, so a larger one would be copied again and again.
constexpr size_t kReadAheadBytes = 33 * kKiB;

// What OpenSSL 3 holds of a connection, measured with its memory functions: in the handshake 55
// KiB, and up to kMaxChainBytes more for the client's certificates; after it 14.5 KiB, with a
// buffer of kReadAheadBytes while a record is incomplete, and one of a record while one is being
// sent.
constexpr size_t kHandshakeBytes = 56 * kKiB;
constexpr size_t kEstablishedBytes = 16 * kKiB;
constexpr size_t kRecordBufferBytes = 17 * kKiB;
// A decoded certificate: its objects, and per byte of its encoding.
constexpr size_t kCertificateBytes = 5 * kKiB;
constexpr size_t kCertificateFactor = 3;

// Encrypted records that leave together: each send() may wake the peer. Four of the largest, with
// room for what encryption adds.
constexpr size_t kGatheredBytes = 4 * (kRecordBytes + 256);

}  // namespace

// The functions of OpenSSL's end of the socket. OpenSSL's own writes with write(), which raises
// SIGPIPE.
struct SocketBio {
  static SocketStream& StreamOf(BIO* bio) { return *static_cast<SocketStream*>(BIO_get_data(bio)); }

  static int Write(BIO* bio, const char* data, int bytes) {
    BIO_clear_retry_flags(bio);
    const ssize_t taken = StreamOf(bio).TakeRecord(data, static_cast<size_t>(bytes));
    if (taken < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return static_cast<int>(taken);
  }

  static int Read(BIO* bio, char* space, int bytes) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = StreamOf(bio).Receive(space, static_cast<size_t>(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(got);
  }
};

namespace {

long BioControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

// Lives as long as the process; null without memory.
const BIO_METHOD* Method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "cbt socket");
    if (made == nullptr) return made;
    BIO_meth_set_write(made, &SocketBio::Write);
    BIO_meth_set_read(made, &SocketBio::Read);
    BIO_meth_set_ctrl(made, &BioControl);
    return made;
  }();
  return method;
}

bool Attach(SSL* ssl, SocketStream& stream) {
  BIO* const bio = Method() == nullptr ? nullptr : BIO_new(Method());
  if (bio == nullptr) return false;
  BIO_set_data(bio, &stream);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_default_read_buffer_len(ssl, kReadAheadBytes);
  SSL_set_read_ahead(ssl, 1);
  return true;
}

// Whether a handshake failed because the peer's first bytes are no TLS.
bool WithoutTls(unsigned long ssl_error) {
  const int reason = ERR_GET_REASON(ssl_error);
  return ERR_GET_LIB(ssl_error) == ERR_LIB_SSL &&
         (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
          reason == SSL_R_HTTPS_PROXY_REQUEST);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketStream>> SocketStream::Create(OwnedDescriptor fd,
                                                                   OwnedSsl ssl) {
  std::unique_ptr<SocketStream> stream(new (std::nothrow)
                                           SocketStream(std::move(fd), std::move(ssl)));
  if (stream == nullptr || (stream->ssl() != nullptr && !Attach(stream->ssl(), *stream))) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
  return stream;
}

SocketStream::SocketStream(OwnedDescriptor fd, OwnedSsl ssl) noexcept
    : fd_(std::move(fd)), ssl_(std::move(ssl)) {}

SocketStream::~SocketStream() = default;

// Returns true if all have left; otherwise errno says why not.
bool SocketStream::SendRecords() noexcept {
  while (records_begin_ < records_end_) {
    const ssize_t sent = send(fd_.number(), records_.get() + records_begin_,
                              records_end_ - records_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    blocked_ = sent < 0;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    records_begin_ += static_cast<size_t>(sent);
  }
  records_begin_ = records_end_ = 0;
  return true;
}

// As recv(). OpenSSL never gets the last byte of an unfit hello's header, so it can't act on it.
ssize_t SocketStream::Receive(char* space, size_t bytes) noexcept {
  const ssize_t got = recv(fd_.number(), space, bytes, MSG_DONTWAIT);
  if (got <= 0 || hello_.done() || SSL_is_server(ssl_.get()) != 1) return got;
  const std::span begun(reinterpret_cast<const uint8_t*>(space), static_cast<size_t>(got));
  if (hello_.Take(begun)) return got;
  hello_refused_ = true;
  errno = EPROTO;
  return -1;
}

// As send().
ssize_t SocketStream::TakeRecord(const char* data, size_t bytes) noexcept {
  const bool waits = records_begin_ < records_end_;
  if (!gathering_ && !waits) {
    return send(fd_.number(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (kGatheredBytes - records_end_ < bytes && !SendRecords()) return -1;
  if (records_ == nullptr) records_.reset(new (std::nothrow) char[kGatheredBytes]);
  if (records_ == nullptr || bytes > kGatheredBytes) {
    return send(fd_.number(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  std::memcpy(records_.get() + records_end_, data, bytes);
  records_end_ += bytes;
  return static_cast<ssize_t>(bytes);
}

SocketStream::Result SocketStream::SystemFailure() noexcept {
  error_ = errno;
  return {State::kError};
}

SocketStream::Result SocketStream::SslFailure(int result) noexcept {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {State::kWantRead};
    case SSL_ERROR_WANT_WRITE:
      return {State::kWantWrite};
    case SSL_ERROR_ZERO_RETURN:
      return {State::kEnd};
    case SSL_ERROR_SYSCALL:
      error_ = system_error;
      if (error_ == 0) return {State::kEnd};
      break;
    default:
      ssl_error_ = ERR_peek_error();
      break;
  }
  ERR_clear_error();
  return {State::kError};
}

SocketStream::Result SocketStream::Handshake() noexcept {
  if (ssl_ == nullptr) return {};
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    PriceChain();
    return {};
  }
  const Result failure = SslFailure(result);
  if (failure.state == State::kError && SSL_is_server(ssl_.get()) == 1 && WithoutTls(ssl_error_)) {
    SendAlert();
  }
  return failure;
}

// OpenSSL keeps this alert back from peers that speak without TLS. Their users would wait: a server
// that closes without a word may be a proxy whose server restarts.
void SocketStream::SendAlert() noexcept {
  // Fatal, protocol_version: RFC 8446, sections 5.1 and 6.
  constexpr std::array<uint8_t, 7> kAlert = {21, 3, 3, 0, 2, 2, 70};
  static_cast<void>(send(fd_.number(), kAlert.data(), kAlert.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

SocketStream::Result SocketStream::Read(std::span<char> space) noexcept {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    size_t bytes = 0;
    const int result = SSL_read_ex(ssl_.get(), space.data(), space.size(), &bytes);
    return result == 1 ? Result{State::kDone, bytes} : SslFailure(result);
  }
  for (;;) {
    const ssize_t got = recv(fd_.number(), space.data(), space.size(), MSG_DONTWAIT);
    if (got > 0) return {State::kDone, static_cast<size_t>(got)};
    if (got == 0) return {State::kEnd};
    if (errno == EAGAIN) return {State::kWantRead};
    if (errno != EINTR) return SystemFailure();
  }
}

bool SocketStream::HasBuffered() const noexcept {
  return ssl_ != nullptr && SSL_has_pending(ssl_.get()) == 1;
}

SocketStream::Result SocketStream::PlainWrite(std::span<const iovec> parts) noexcept {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t sent = sendmsg(fd_.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return {State::kDone, static_cast<size_t>(sent)};
    if (errno == EAGAIN) return {State::kWantWrite};
    if (errno != EINTR) return SystemFailure();
  }
}

SocketStream::Result SocketStream::Write(std::span<const iovec> parts) noexcept {
  if (ssl_ == nullptr) return PlainWrite(parts);
  gathering_ = true;
  Result result = EncryptStage();
  if (result.state == State::kDone) {
    result =
        parts.front().iov_len >= kRecordBytes ? WriteRecords(parts.front()) : WriteStaged(parts);
  }
  gathering_ = false;
  return result;
}

// Encrypts whole records from the part's own memory.
SocketStream::Result SocketStream::WriteRecords(const iovec& part) noexcept {
  size_t taken = 0;
  while (part.iov_len - taken >= kRecordBytes) {
    ERR_clear_error();
    errno = 0;
    size_t bytes = 0;
    const int result = SSL_write_ex(ssl_.get(), static_cast<const char*>(part.iov_base) + taken,
                                    kRecordBytes, &bytes);
    record_begun_ = result != 1;
    if (result != 1) {
      const Result failure = SslFailure(result);
      const bool later = failure.state == State::kWantWrite || failure.state == State::kWantRead;
      return later && taken > 0 ? Result{State::kDone, taken} : failure;
    }
    taken += bytes;
  }
  return {State::kDone, taken};
}

// Small parts share a record: a record per frame header would double their number.
SocketStream::Result SocketStream::WriteStaged(std::span<const iovec> parts) noexcept {
  if (stage_ == nullptr) {
    stage_.reset(new (std::nothrow) char[kRecordBytes]);
    if (stage_ == nullptr) {
      error_ = ENOMEM;
      return {State::kError};
    }
  }
  stage_begin_ = stage_end_ = 0;
  for (const iovec& part : parts) {
    const size_t bytes = std::min(part.iov_len, kRecordBytes - stage_end_);
    std::memcpy(stage_.get() + stage_end_, part.iov_base, bytes);
    stage_end_ += bytes;
  }
  const size_t taken = stage_end_;
  const Result encrypted = EncryptStage();
  if (encrypted.state == State::kError || encrypted.state == State::kEnd) return encrypted;
  return {State::kDone, taken};
}

SocketStream::Result SocketStream::Flush() noexcept {
  gathering_ = true;
  const Result encrypted = EncryptStage();
  gathering_ = false;
  if (encrypted.state == State::kError || SendRecords()) return encrypted;
  return errno == EAGAIN ? Result{State::kWantWrite} : SystemFailure();
}

SocketStream::Result SocketStream::EncryptStage() noexcept {
  while (stage_begin_ < stage_end_) {
    ERR_clear_error();
    errno = 0;
    size_t bytes = 0;
    const int result =
        SSL_write_ex(ssl_.get(), stage_.get() + stage_begin_, stage_end_ - stage_begin_, &bytes);
    if (result != 1) return SslFailure(result);
    stage_begin_ += bytes;
  }
  return {};
}

void SocketStream::Shutdown() noexcept {
  if (ssl_ != nullptr && SSL_is_init_finished(ssl_.get()) == 1 && !unsent() && !record_begun_ &&
      error_ == 0 && ssl_error_ == 0) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  shutdown(fd_.number(), SHUT_WR);
}

void SocketStream::ReleaseBuffers() noexcept {
  if (unsent()) return;
  stage_.reset();
  records_.reset();
}

void SocketStream::PriceChain() noexcept {
  const auto add = [this](const X509* certificate) {
    const int bytes = i2d_X509(certificate, nullptr);
    chain_bytes_ +=
        kCertificateBytes + kCertificateFactor * static_cast<size_t>(std::max(bytes, 0));
  };
  chain_bytes_ = 0;
  if (const X509* const own = SSL_get0_peer_certificate(ssl_.get()); own != nullptr) add(own);
  // On a server without the peer's own.
  const STACK_OF(X509)* const others = SSL_get_peer_cert_chain(ssl_.get());
  for (int i = 0; i < sk_X509_num(others); ++i) add(sk_X509_value(others, i));
}

size_t SocketStream::TlsMemory() const noexcept {
  // Also while the peer changes its keys.
  if (SSL_is_init_finished(ssl_.get()) != 1) return kHandshakeBytes + kMaxChainBytes + chain_bytes_;
  const bool reading =
      SSL_has_pending(ssl_.get()) == 1 || std::string_view(SSL_rstate_string(ssl_.get())) == "RB";
  return kEstablishedBytes + chain_bytes_ + (reading ? kReadAheadBytes + kKiB : 0) +
         (unsent() || record_begun_ ? kRecordBufferBytes : 0);
}

size_t SocketStream::memory() const noexcept {
  return sizeof *this + kHeapOverhead + (stage_ != nullptr ? kRecordBytes : 0) +
         (records_ != nullptr ? kGatheredBytes : 0) + (ssl_ != nullptr ? TlsMemory() : 0);
}

std::string SocketStream::ErrorText() const {
  if (hello_refused_) return "TLS: the client announces a hello that is too long";
  if (ssl_error_ == 0) return error_ == 0 ? "end of the connection" : ErrnoText(error_);
  // Our check of the server's certificate sets this if only the protocol is wrong.
  if (SSL_get_verify_result(ssl_.get()) == X509_V_ERR_APPLICATION_VERIFICATION) {
    return "TLS: the server did not agree to HTTP/2 (ALPN)";
  }
  const char* const reason = ERR_reason_error_string(ssl_error_);
  std::string text = absl::StrCat("TLS: ", reason != nullptr ? reason : "unknown error");
  if (WithoutTls(ssl_error_)) absl::StrAppend(&text, ": the peer speaks without TLS");
  if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
    absl::StrAppend(&text, " (", X509_verify_cert_error_string(verified), ")");
  }
  return text;
}

bool SocketStream::refused_by_tls() const noexcept {
  return ssl_error_ != 0 && ERR_GET_REASON(ssl_error_) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

}  // namespace cbt::net
