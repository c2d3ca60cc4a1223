// TLS of servers and clients: HTTP/2 over TLS 1.2 or newer, without compression, renegotiation and
// resumption. A handshake succeeds only if both ends agree on HTTP/2 (ALPN), or the server speaks
// HTTP/1.1.
#ifndef CBT_NET_TLS_CONTEXT_H_
#define CBT_NET_TLS_CONTEXT_H_

#include <openssl/ssl.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "cbt/units.h"
#include "net/pem.h"

namespace cbt::net {

// OpenSSL allocates the length that a ClientHello announces, up to 128 KiB, before the bytes have
// come; within this length the buffer of every handshake suffices. Real ones have 200 bytes to a
// few KiB.
inline constexpr size_t kMaxHelloBytes = 16 * kKiB - 4;

// A longer chain of a client's certificates is refused.
inline constexpr long kMaxChainBytes = 32 * kKiB;

// Watches what a client sends without encryption, for a server: OpenSSL must not get the header of
// a ClientHello that is too long. There may be two: the server asks for another one if it can't use
// the first one's key (HelloRetryRequest; RFC 8446, section 4.1.4).
class HelloCheck {
 public:
  // The next bytes. False: the connection must end, and the header's last byte is among them. That
  // is so for a ClientHello that announces more, or that splits even its header. What is no
  // handshake at all is left to OpenSSL, which names it.
  bool Take(std::span<const uint8_t> bytes) noexcept;

  // Nothing more is looked at: what follows is no ClientHello, or is encrypted.
  bool done() const noexcept { return done_; }

 private:
  bool TakeByte(uint8_t byte) noexcept;
  bool BeginRecord() noexcept;

  std::array<uint8_t, 5> record_ = {};   // its header (RFC 8446, section 5.1)
  std::array<uint8_t, 4> message_ = {};  // the same of the message in it (section 4)
  size_t record_bytes_ = 0;              // of record_ that have come
  size_t message_bytes_ = 0;             // of message_
  size_t record_left_ = 0;
  size_t message_left_ = 0;
  bool done_ = false;
};

// Why an operation on `ssl` has just failed in this thread: the problem with the peer's certificate
// or protocol, the alert that it sent, or OpenSSL's error about its bytes; "the connection was
// closed" if it was. Clears OpenSSL's error queue. Throws std::bad_alloc.
std::string TlsFailure(const SSL* ssl);

// What a server presents to its clients, and demands of them. PEM, as texts or as files.
struct ServerTlsSettings {
  std::string certificate = {};
  std::string private_key = {};
  std::string client_ca = {};
  std::string certificate_file = {};
  std::string private_key_file = {};
  std::string client_ca_file = {};
  int min_version = TLS1_2_VERSION;  // or TLS1_3_VERSION
  // Instead of HTTP/2. Clients need not name it.
  bool http1 = false;
  // By OpenSSL's names, separated by colons; empty: what HTTP/2 allows, and OpenSSL's default.
  std::string ciphers = {};
  std::string groups = {};
};

// PEM texts of a client; without a CA it trusts the system's.
struct ClientTlsSettings {
  std::string ca = {};
  std::string certificate = {};
  std::string private_key = {};
};

// Thread safe. Its connections may outlive it.
class ServerTls {
 public:
  // Null if `tls` has neither texts nor files: the server speaks without TLS. Calls `refused`, if
  // there is one, for each connection that NewConnection() refuses because of the client CA; it
  // must neither block nor throw.
  // Errors: INVALID_ARGUMENT for a certificate, key or CA that is missing, not PEM, or does not
  //         match the others, and for ciphers or groups that can't be used; errors of reading a
  //         file.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Create(const ServerTlsSettings& tls,
                                                           std::function<void()> refused = {});
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;

  // The server's end of a new connection, before the handshake. Checks the files, at the cost of a
  // stat() each while they are unchanged. If a new certificate and key can't be used, the previous
  // ones stay.
  // Errors: UNAVAILABLE if the file of the client CA can't be used: no client can be identified
  //         then. RESOURCE_EXHAUSTED without memory.
  absl::StatusOr<Ssl> NewConnection();

  enum class Change { kNone, kChanged, kUnusable };
  // Checks the client CA's file and returns the change since the last call. After a change every
  // connection must be closed, including those in their handshake: the previous CA admitted them.
  Change TakeClientCaChange();

 private:
  using Clock = std::chrono::steady_clock;

  ServerTls(const ServerTlsSettings& tls, std::function<void()> refused);
  absl::Status Init(const ServerTlsSettings& tls);
  absl::StatusOr<SslContext> MakeContext(const TlsIdentity& identity,
                                         const std::string& client_ca) const;
  void LookAtIdentity();
  void LookAtClientCa();

  const std::string certificate_file_;  // empty: the options' texts are used
  const std::string private_key_file_;
  const std::string client_ca_file_;
  const int min_version_;
  const bool http1_;
  const std::string ciphers_;
  const std::string groups_;
  const std::function<void()> refused_;

  std::mutex mutex_;
  SslContext context_;
  TlsIdentity identity_;
  FileState certificate_state_;
  FileState private_key_state_;
  Clock::time_point next_try_;  // when unusable files are read again

  std::string client_ca_;
  FileState client_ca_state_;
  bool client_ca_usable_ = true;
  Change change_ = Change::kNone;
};

// Thread safe.
class ClientTls {
 public:
  // Errors: INVALID_ARGUMENT for a CA, certificate or key that is not PEM, or does not match.
  static absl::StatusOr<std::unique_ptr<ClientTls>> Create(const ClientTlsSettings& tls);

  // The client's end of a new connection to a server that must prove to be `host`: a name, or an
  // IPv4 or IPv6 address without brackets. Errors: INVALID_ARGUMENT if the name is invalid,
  // RESOURCE_EXHAUSTED without memory.
  absl::StatusOr<Ssl> NewConnection(const std::string& host) const;

 private:
  explicit ClientTls(SslContext context) : context_(std::move(context)) {}

  const SslContext context_;
};

}  // namespace cbt::net

#endif  // CBT_NET_TLS_CONTEXT_H_
