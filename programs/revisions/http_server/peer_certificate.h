// Who the client of a connection is, by the certificate that it has shown.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_PEER_CERTIFICATE_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_PEER_CERTIFICATE_H_

#include <openssl/x509_vfy.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cbt::kube::http_server {

// Authorities that issue certificates of clients. A value: copies share the store. Thread safe.
class ClientAuthorities {
 public:
  // `pem`: one certificate or more. Errors: INVALID_ARGUMENT, naming `what`.
  static absl::StatusOr<ClientAuthorities> Read(const std::string& what, const std::string& pem);

  // The common name in the client's certificate, which may be empty. `chain`:
  // Request::peer_certificates. The certificate must be issued by one of the authorities, through
  // those that came with it, be valid now and be meant for clients of TLS.
  // Errors: UNAUTHENTICATED, with the reason; RESOURCE_EXHAUSTED. The cost is that of verifying up
  //         to kMaxCertificates signatures.
  absl::StatusOr<std::string> NameOf(const std::vector<std::string>& chain) const;
  static constexpr size_t kMaxCertificates = 8;

 private:
  explicit ClientAuthorities(std::shared_ptr<X509_STORE> store) : store_(std::move(store)) {}

  std::shared_ptr<X509_STORE> store_;
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_PEER_CERTIFICATE_H_
