#include "programs/revisions/http_server/server_certificate.h"

#include <openssl/err.h>

#include <utility>

#include "absl/status/status.h"
#include "base/wipe.h"
#include "net/tls_context.h"

namespace cbt::kube::http_server {
namespace {

// For TLS 1.2; all of TLS 1.3's are good.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
// One protocol with its length, in ALPN's format.
constexpr unsigned char kProtocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
// How often unusable files are read again.
constexpr std::chrono::seconds kRetry{1};

// Clients that offer other protocols only go on without one: they speak HTTP/1.1 then, or hang up.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* length,
                   const unsigned char* offered, unsigned int offered_length, void*) {
  unsigned char* out = nullptr;
  if (SSL_select_next_proto(&out, length, kProtocols, sizeof kProtocols, offered, offered_length) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

// The handshake proves that the client has the key; who issued the certificate is for handlers.
int TakeAnyCertificate(X509_STORE_CTX*, void*) { return 1; }

absl::Status NoMemory() {
  ERR_clear_error();
  return absl::ResourceExhaustedError("tls: no memory");
}

}  // namespace

ServerCertificate::ServerCertificate(std::string certificate, std::string private_key, bool ask,
                                     ops::EventLog& log)
    : certificate_(std::move(certificate)),
      private_key_(std::move(private_key)),
      ask_(ask),
      log_(log) {}

absl::StatusOr<std::unique_ptr<ServerCertificate>> ServerCertificate::Read(
    const std::string& certificate, const std::string& private_key, bool ask, ops::EventLog& log) {
  std::unique_ptr<ServerCertificate> made(
      new ServerCertificate(certificate, private_key, ask, log));
  // The state first: a file that changes while it is read is read again.
  made->certificate_state_ = StateOf(certificate);
  made->private_key_state_ = StateOf(private_key);
  absl::StatusOr<net::SslContext> context = made->Load();
  if (!context.ok()) return context.status();
  made->context_ = *std::move(context);
  return made;
}

absl::StatusOr<net::SslContext> ServerCertificate::Load() const {
  const absl::StatusOr<std::string> certificate = ReadSmallFile(certificate_);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadSmallFile(private_key_);
  if (!key.ok()) return key.status();
  const Wiper wiper(*key);
  const absl::StatusOr<net::TlsIdentity> identity = net::ReadIdentity(*certificate, *key);
  if (!identity.ok()) return identity.status();
  net::SslContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1) {
    return NoMemory();
  }
  SSL_CTX_set_options(context.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A client shows its certificate on each connection, none is resumed.
  if (SSL_CTX_set_num_tickets(context.get(), 0) != 1) return NoMemory();
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(context.get(), net::kMaxChainBytes);
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
  if (ask_) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(context.get(), TakeAnyCertificate, nullptr);
  }
  if (absl::Status used = net::UseIdentity(context.get(), *identity); !used.ok()) {
    return used;
  }
  return context;
}

SSL_CTX* ServerCertificate::Current() {
  const FileState certificate = StateOf(certificate_);
  const FileState key = StateOf(private_key_);
  if (certificate == certificate_state_ && key == private_key_state_) return context_.get();
  const Clock::time_point now = Clock::now();
  if (now < next_try_) return context_.get();
  // A certificate and its key are written one after the other: in between they do not match.
  next_try_ = now + kRetry;
  absl::StatusOr<net::SslContext> context = Load();
  if (!context.ok()) {
    log_.Failed("certificate not reloaded", context.status());
    return context_.get();
  }
  context_ = *std::move(context);
  certificate_state_ = certificate;
  private_key_state_ = key;
  next_try_ = {};
  return context_.get();
}

}  // namespace cbt::kube::http_server
