#include "rpc/transport/http2/socket_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_text.h"
#include "cbt/units.h"

namespace cbt::rpc::http2 {
namespace {

// The most that fits in a TLS record.
constexpr size_t kRecordBytes = 16 * kKiB;

// OpenSSL's read-ahead: two records. It moves the rest to the front of its buffer before each
// record, so a larger one would be copied again and again.
constexpr size_t kReadAheadBytes = 33 * kKiB;

int DescriptorOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

// OpenSSL's own socket BIO writes with write(), which raises SIGPIPE.
int BioWrite(BIO* bio, const char* data, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      send(DescriptorOf(bio), data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int BioRead(BIO* bio, char* space, int bytes) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(DescriptorOf(bio), space, static_cast<size_t>(bytes), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

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
    BIO_meth_set_write(made, &BioWrite);
    BIO_meth_set_read(made, &BioRead);
    BIO_meth_set_ctrl(made, &BioControl);
    return made;
  }();
  return method;
}

bool Attach(SSL* ssl, int fd) {
  BIO* const bio = Method() == nullptr ? nullptr : BIO_new(Method());
  if (bio == nullptr) return false;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_default_read_buffer_len(ssl, kReadAheadBytes);
  SSL_set_read_ahead(ssl, 1);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketStream>> SocketStream::Create(OwnedDescriptor fd,
                                                                   OwnedSsl ssl) {
  if (ssl != nullptr && !Attach(ssl.get(), fd.number())) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
  SocketStream* const stream = new (std::nothrow) SocketStream(std::move(fd), std::move(ssl));
  if (stream == nullptr) return absl::Status(absl::StatusCode::kResourceExhausted, "");
  return std::unique_ptr<SocketStream>(stream);
}

SocketStream::SocketStream(OwnedDescriptor fd, OwnedSsl ssl) noexcept
    : fd_(std::move(fd)), ssl_(std::move(ssl)) {}

SocketStream::~SocketStream() = default;

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
  return result == 1 ? Result{} : SslFailure(result);
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
  if (unsent()) {
    if (const Result flushed = Flush(); flushed.state != State::kDone) return flushed;
  }
  return parts.front().iov_len >= kRecordBytes ? WriteRecords(parts.front()) : WriteStaged(parts);
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
  const Result flushed = Flush();
  if (flushed.state == State::kError || flushed.state == State::kEnd) return flushed;
  return {State::kDone, stage_end_};
}

SocketStream::Result SocketStream::Flush() noexcept {
  while (unsent()) {
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
  if (!unsent()) stage_.reset();
}

std::string SocketStream::ErrorText() const {
  if (ssl_error_ == 0) return error_ == 0 ? "end of the connection" : ErrnoText(error_);
  // Our check of the server's certificate sets this if only the protocol is wrong.
  if (SSL_get_verify_result(ssl_.get()) == X509_V_ERR_APPLICATION_VERIFICATION) {
    return "TLS: the server did not agree to HTTP/2 (ALPN)";
  }
  const char* const reason = ERR_reason_error_string(ssl_error_);
  std::string text = absl::StrCat("TLS: ", reason != nullptr ? reason : "unknown error");
  if (const long verified = SSL_get_verify_result(ssl_.get()); verified != X509_V_OK) {
    absl::StrAppend(&text, " (", X509_verify_cert_error_string(verified), ")");
  }
  return text;
}

bool SocketStream::refused_by_tls() const noexcept {
  return ssl_error_ != 0 && ERR_GET_REASON(ssl_error_) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
}

}  // namespace cbt::rpc::http2
