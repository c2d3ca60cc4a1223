#include "net/tls_context.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/wipe.h"

namespace cbt::net {
namespace {

// One protocol with its length, in ALPN's format.
constexpr unsigned char kProtocols[] = {2, 'h', '2'};
constexpr unsigned char kOldProtocols[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
// For TLS 1.2: the ciphers that RFC 9113, section 9.2.2, permits. All of TLS 1.3's are permitted.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
// How often unusable files are read again.
constexpr std::chrono::seconds kRetry{1};

absl::Status NoTlsMemory() {
  ERR_clear_error();
  return absl::ResourceExhaustedError("tls: no memory");
}

// The common part of both sides.
SslContext NewContext(const SSL_METHOD* method) {
  SslContext context(SSL_CTX_new(method));
  if (context == nullptr) return nullptr;
  if (SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) return nullptr;
  if (SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1) return nullptr;
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  // Connections are few and long: each presents its certificates, none is resumed.
  if (SSL_CTX_set_num_tickets(context.get(), 0) != 1) return nullptr;
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // Silent connections release their buffers; writes may take part of a buffer and continue from
  // another address.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

// HTTP/2 forbids ciphers of TLS 1.2 without ephemeral keys or without authenticated encryption (RFC
// 9113, section 9.2.2): a client could end the connection for them.
bool HttpAllows(const SSL_CIPHER* cipher) {
  if (std::string_view(SSL_CIPHER_get_version(cipher)) == "TLSv1.3") return true;
  return SSL_CIPHER_is_aead(cipher) == 1 && (SSL_CIPHER_get_kx_nid(cipher) == NID_kx_ecdhe ||
                                             SSL_CIPHER_get_kx_nid(cipher) == NID_kx_dhe);
}

absl::Status UseCiphers(SSL_CTX* context, const std::string& ciphers) {
  if (SSL_CTX_set_cipher_list(context, ciphers.c_str()) != 1) {
    return UnusableTls("ciphers", absl::StrCat("'", ciphers, "' names no known cipher"));
  }
  const STACK_OF(SSL_CIPHER)* const chosen = SSL_CTX_get_ciphers(context);
  for (int i = 0; i < sk_SSL_CIPHER_num(chosen); ++i) {
    const SSL_CIPHER* const cipher = sk_SSL_CIPHER_value(chosen, i);
    if (HttpAllows(cipher)) continue;
    return UnusableTls("ciphers",
                       absl::StrCat("HTTP/2 does not allow ", SSL_CIPHER_get_name(cipher)));
  }
  return absl::OkStatus();
}

int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* length,
                   const unsigned char* offered, unsigned int offered_length, void*) {
  unsigned char* out = nullptr;
  if (SSL_select_next_proto(&out, length, kProtocols, sizeof kProtocols, offered, offered_length) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

// A client that offers other protocols gets none: HTTP/1.1 is what is spoken then.
int ChooseOldProtocol(SSL*, const unsigned char** chosen, unsigned char* length,
                      const unsigned char* offered, unsigned int offered_length, void*) {
  unsigned char* out = nullptr;
  if (SSL_select_next_proto(&out, length, kOldProtocols, sizeof kOldProtocols, offered,
                            offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_NOACK;
  }
  *chosen = out;
  return SSL_TLSEXT_ERR_OK;
}

// ChooseProtocol() is not called if a client offers nothing.
int RequireProtocols(SSL* ssl, int* alert, void*) {
  const unsigned char* offered = nullptr;
  size_t length = 0;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &offered,
                                &length) == 1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

absl::Status RequireClientCertificate(SSL_CTX* context, const std::string& client_ca) {
  absl::StatusOr<std::vector<Certificate>> authorities = ReadCertificates("client CA", client_ca);
  if (!authorities.ok()) return authorities.status();
  if (absl::Status status = Trust(context, *authorities); !status.ok()) return status;
  for (const Certificate& authority : *authorities) {
    if (SSL_CTX_add_client_CA(context, authority.get()) != 1) return NoTlsMemory();
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

// Runs within the client's handshake: after it, a request could already be in flight.
int VerifyServer(X509_STORE_CTX* verification, void*) {
  if (X509_verify_cert(verification) != 1) return 0;
  const auto* const ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const unsigned char* chosen = nullptr;
  unsigned int length = 0;
  SSL_get0_alpn_selected(ssl, &chosen, &length);
  if (std::string_view(reinterpret_cast<const char*>(chosen), length) == "h2") return 1;
  X509_STORE_CTX_set_error(verification, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

absl::Status CheckComplete(const std::string& certificate, const std::string& private_key,
                           const std::string& client_ca) {
  if (certificate.empty() != private_key.empty()) {
    return absl::InvalidArgumentError("tls: expected a certificate and its key");
  }
  if (certificate.empty() && !client_ca.empty()) {
    return absl::InvalidArgumentError("tls: a client CA also needs a certificate and its key");
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsIdentity> ReadIdentityFiles(const std::string& certificate_file,
                                              const std::string& private_key_file) {
  absl::StatusOr<std::string> certificate = ReadSmallFile(certificate_file);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadSmallFile(private_key_file);
  if (!key.ok()) return key.status();
  const Wiper wiper(*key);
  return ReadIdentity(*certificate, *key);
}

// An IP address is compared with the addresses in the certificate and not sent: SNI is for names
// only.
bool ExpectHost(SSL* ssl, std::string host) {
  X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl);
  const std::string address = host.substr(0, host.find('%'));  // without the interface
  unsigned char ignored[sizeof(in6_addr)];
  if (inet_pton(AF_INET, address.c_str(), ignored) == 1 ||
      inet_pton(AF_INET6, address.c_str(), ignored) == 1) {
    return X509_VERIFY_PARAM_set1_ip_asc(expected, address.c_str()) == 1;
  }
  if (host.ends_with('.')) host.pop_back();
  // An empty name would mean no check at all.
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size()) == 1 &&
         SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
}

}  // namespace

namespace {

// RFC 8446, section 5.1.
constexpr uint8_t kChangeCipherSpec = 20;
constexpr uint8_t kAlert = 21;
constexpr uint8_t kHandshake = 22;
constexpr uint8_t kClientHello = 1;

}  // namespace

bool HelloCheck::Take(std::span<const uint8_t> bytes) noexcept {
  for (size_t at = 0; at < bytes.size() && !done_;) {
    // What is not looked at one by one.
    const bool within = record_bytes_ == record_.size() &&
                        (record_[0] != kHandshake || message_bytes_ == message_.size());
    if (within && record_left_ > 0) {
      size_t skipped = std::min(record_left_, bytes.size() - at);
      if (record_[0] == kHandshake) {
        skipped = std::min(skipped, message_left_);
        message_left_ -= skipped;
        if (message_left_ == 0) message_bytes_ = 0;
      }
      record_left_ -= skipped;
      at += skipped;
    } else if (!TakeByte(bytes[at++])) {
      return false;
    }
    if (record_bytes_ == record_.size() && record_left_ == 0) record_bytes_ = 0;
  }
  return true;
}

bool HelloCheck::TakeByte(uint8_t byte) noexcept {
  if (record_bytes_ < record_.size()) {
    record_[record_bytes_++] = byte;
    return record_bytes_ < record_.size() ? true : BeginRecord();
  }
  message_[message_bytes_++] = byte;
  --record_left_;
  if (message_bytes_ < message_.size()) return record_left_ > 0;
  message_left_ = size_t{message_[1]} << 16 | size_t{message_[2]} << 8 | message_[3];
  if (message_left_ > kMaxHelloBytes) return false;
  if (message_left_ == 0) message_bytes_ = 0;
  done_ = message_[0] != kClientHello;
  return true;
}

// An empty record, or one that holds less than a message's header where one is to begin, would hide
// the length behind a further one.
bool HelloCheck::BeginRecord() noexcept {
  record_left_ = size_t{record_[3]} << 8 | record_[4];
  const bool message_begins = message_bytes_ == 0;
  if (record_[0] == kHandshake) return !message_begins || record_left_ >= message_.size();
  done_ = record_[0] != kChangeCipherSpec && record_[0] != kAlert;
  return true;
}

std::string TlsFailure(const SSL* ssl) {
  const unsigned long error = ERR_peek_error();
  const long verdict = SSL_get_verify_result(ssl);
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  std::string text;
  if (verdict == X509_V_ERR_APPLICATION_VERIFICATION) {
    text = "the server did not agree to HTTP/2 (ALPN)";
  } else if (ERR_GET_REASON(error) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    text = absl::StrCat("the certificate is refused: ", X509_verify_cert_error_string(verdict));
  } else if (reason != nullptr) {
    text = reason;
  } else {
    text = error == 0 ? "the connection was closed" : absl::StrCat("OpenSSL error ", error);
  }
  ERR_clear_error();
  return text;
}

ServerTls::ServerTls(const ServerTlsSettings& tls, std::function<void()> refused)
    : certificate_file_(tls.certificate_file),
      private_key_file_(tls.private_key_file),
      client_ca_file_(tls.client_ca_file),
      min_version_(tls.min_version),
      http1_(tls.http1),
      ciphers_(tls.ciphers),
      groups_(tls.groups),
      refused_(std::move(refused)) {}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Create(const ServerTlsSettings& tls,
                                                             std::function<void()> refused) {
  const bool texts = !tls.certificate.empty() || !tls.private_key.empty() || !tls.client_ca.empty();
  const bool files =
      !tls.certificate_file.empty() || !tls.private_key_file.empty() || !tls.client_ca_file.empty();
  if (texts && files) {
    return absl::InvalidArgumentError("tls: give either PEM texts or files, not both");
  }
  for (absl::Status status :
       {CheckComplete(tls.certificate, tls.private_key, tls.client_ca),
        CheckComplete(tls.certificate_file, tls.private_key_file, tls.client_ca_file)}) {
    if (!status.ok()) return status;
  }
  if (!texts && !files) return std::unique_ptr<ServerTls>();
  std::unique_ptr<ServerTls> made(new ServerTls(tls, std::move(refused)));
  if (absl::Status status = made->Init(tls); !status.ok()) return status;
  return made;
}

absl::Status ServerTls::Init(const ServerTlsSettings& tls) {
  // The state first: a file that changes while it is read is read again.
  certificate_state_ = StateOf(certificate_file_);
  private_key_state_ = StateOf(private_key_file_);
  client_ca_state_ = StateOf(client_ca_file_);
  absl::StatusOr<TlsIdentity> identity =
      certificate_file_.empty() ? ReadIdentity(tls.certificate, tls.private_key)
                                : ReadIdentityFiles(certificate_file_, private_key_file_);
  if (!identity.ok()) return identity.status();
  client_ca_ = tls.client_ca;
  if (!client_ca_file_.empty()) {
    absl::StatusOr<std::string> text = ReadSmallFile(client_ca_file_);
    if (!text.ok()) return text.status();
    client_ca_ = *std::move(text);
    // An empty list would admit every client.
    if (client_ca_.empty()) return UnusableTls("client CA", "no certificate in PEM form");
  }
  absl::StatusOr<SslContext> context = MakeContext(*identity, client_ca_);
  if (!context.ok()) return context.status();
  identity_ = *std::move(identity);
  context_ = *std::move(context);
  return absl::OkStatus();
}

absl::StatusOr<SslContext> ServerTls::MakeContext(const TlsIdentity& identity,
                                                  const std::string& client_ca) const {
  SslContext context = NewContext(TLS_server_method());
  if (context == nullptr) return NoTlsMemory();
  if (SSL_CTX_set_min_proto_version(context.get(), min_version_) != 1) return NoTlsMemory();
  if (!ciphers_.empty()) {
    if (absl::Status status = UseCiphers(context.get(), ciphers_); !status.ok()) return status;
  }
  if (!groups_.empty() && SSL_CTX_set1_groups_list(context.get(), groups_.c_str()) != 1) {
    return UnusableTls("groups", absl::StrCat("OpenSSL does not have all of '", groups_, "'"));
  }
  if (absl::Status status = UseIdentity(context.get(), identity); !status.ok()) return status;
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_alpn_select_cb(context.get(), http1_ ? ChooseOldProtocol : ChooseProtocol, nullptr);
  if (!http1_) SSL_CTX_set_client_hello_cb(context.get(), RequireProtocols, nullptr);
  SSL_CTX_set_max_cert_list(context.get(), kMaxChainBytes);
  if (client_ca.empty()) return context;
  if (absl::Status status = RequireClientCertificate(context.get(), client_ca); !status.ok()) {
    return status;
  }
  return context;
}

// Requires the lock. A certificate and its key are written one after the other: in between, the
// previous pair stays in use.
void ServerTls::LookAtIdentity() {
  if (certificate_file_.empty()) return;
  const FileState certificate = StateOf(certificate_file_);
  const FileState key = StateOf(private_key_file_);
  if (certificate == certificate_state_ && key == private_key_state_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_try_) return;
  next_try_ = now + kRetry;
  absl::StatusOr<TlsIdentity> identity = ReadIdentityFiles(certificate_file_, private_key_file_);
  if (!identity.ok()) return;
  absl::StatusOr<SslContext> context = MakeContext(*identity, client_ca_);
  if (!context.ok()) return;
  identity_ = *std::move(identity);
  context_ = *std::move(context);
  certificate_state_ = certificate;
  private_key_state_ = key;
  next_try_ = {};
}

// Requires the lock. Each call rereads an unusable file; a file rewritten with the same contents
// has not changed.
void ServerTls::LookAtClientCa() {
  if (client_ca_file_.empty()) return;
  const FileState state = StateOf(client_ca_file_);
  if (client_ca_usable_ && state == client_ca_state_) return;
  const absl::StatusOr<std::string> text = ReadSmallFile(client_ca_file_);
  // Only a context can determine whether this CA is usable.
  bool usable = text.ok() && *text == client_ca_;
  if (text.ok() && !usable && !text->empty()) {
    absl::StatusOr<SslContext> context = MakeContext(identity_, *text);
    if (context.ok()) {
      usable = true;
      client_ca_ = *text;
      context_ = *std::move(context);
      change_ = Change::kChanged;
    }
  }
  if (!usable && client_ca_usable_) change_ = Change::kUnusable;
  client_ca_usable_ = usable;
  client_ca_state_ = state;
}

absl::StatusOr<Ssl> ServerTls::NewConnection() {
  const std::lock_guard lock(mutex_);
  LookAtClientCa();
  LookAtIdentity();
  if (!client_ca_usable_) {
    if (refused_) refused_();
    return absl::UnavailableError("tls: the client CA can't be read");
  }
  Ssl ssl(SSL_new(context_.get()));
  if (ssl == nullptr) return NoTlsMemory();
  SSL_set_accept_state(ssl.get());
  return ssl;
}

ServerTls::Change ServerTls::TakeClientCaChange() {
  const std::lock_guard lock(mutex_);
  LookAtClientCa();
  return std::exchange(change_, Change::kNone);
}

absl::StatusOr<std::unique_ptr<ClientTls>> ClientTls::Create(const ClientTlsSettings& tls) {
  SslContext context = NewContext(TLS_client_method());
  if (context == nullptr) return NoTlsMemory();
  if (tls.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
    ERR_clear_error();
  } else {
    absl::StatusOr<std::vector<Certificate>> authorities = ReadCertificates("CA", tls.ca);
    if (!authorities.ok()) return authorities.status();
    if (absl::Status status = Trust(context.get(), *authorities); !status.ok()) return status;
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context.get(), VerifyServer, nullptr);
  if (SSL_CTX_set_alpn_protos(context.get(), kProtocols, sizeof kProtocols) != 0)
    return NoTlsMemory();
  if (tls.certificate.empty() != tls.private_key.empty()) {
    return absl::InvalidArgumentError("tls: expected a certificate and its key");
  }
  if (!tls.certificate.empty()) {
    absl::StatusOr<TlsIdentity> identity = ReadIdentity(tls.certificate, tls.private_key);
    if (!identity.ok()) return identity.status();
    if (absl::Status status = UseIdentity(context.get(), *identity); !status.ok()) return status;
  }
  return std::unique_ptr<ClientTls>(new ClientTls(std::move(context)));
}

absl::StatusOr<Ssl> ClientTls::NewConnection(const std::string& host) const {
  Ssl ssl(SSL_new(context_.get()));
  if (ssl == nullptr) return NoTlsMemory();
  if (!ExpectHost(ssl.get(), host)) {
    return UnusableTls("host", absl::StrCat("'", host, "' is not a name or an address"));
  }
  SSL_set_connect_state(ssl.get());
  return ssl;
}

}  // namespace cbt::net
