// The certificate that a server shows, as its files have it at the moment.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_CERTIFICATE_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_CERTIFICATE_H_

#include <openssl/ssl.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "net/pem.h"
#include "ops/event_log.h"

namespace cbt::kube::http_server {

// TLS 1.2 or newer, for HTTP/1.1. Belongs to one thread at a time; connections may outlive it.
class ServerCertificate {
 public:
  // `ask`: clients are asked for a certificate, and need none.
  // Errors: those of reading the files; INVALID_ARGUMENT if they are not a certificate and its key.
  static absl::StatusOr<std::unique_ptr<ServerCertificate>> Read(const std::string& certificate,
                                                                 const std::string& private_key,
                                                                 bool ask, ops::EventLog& log);

  // For a new connection. Looks at the files first, which costs a stat() each while they are
  // unchanged. While new ones can't be used, the previous ones stay.
  SSL_CTX* Current();

 private:
  using Clock = std::chrono::steady_clock;

  ServerCertificate(std::string certificate, std::string private_key, bool ask, ops::EventLog& log);
  absl::StatusOr<net::SslContext> Load() const;

  const std::string certificate_;
  const std::string private_key_;
  const bool ask_;
  ops::EventLog& log_;
  net::SslContext context_;
  FileState certificate_state_;
  FileState private_key_state_;
  Clock::time_point next_try_;  // when unusable files are read again
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_CERTIFICATE_H_
