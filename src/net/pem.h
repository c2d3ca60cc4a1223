// Certificates and keys in PEM form, and ownership of OpenSSL's objects.
#ifndef CBT_NET_PEM_H_
#define CBT_NET_PEM_H_

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::net {

template <typename Type, void (*Free)(Type*)>
struct OpenSslDeleter {
  void operator()(Type* object) const noexcept { Free(object); }
};
using Ssl = std::unique_ptr<SSL, OpenSslDeleter<SSL, SSL_free>>;
using SslContext = std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX, SSL_CTX_free>>;
using Certificate = std::unique_ptr<X509, OpenSslDeleter<X509, X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, OpenSslDeleter<EVP_PKEY, EVP_PKEY_free>>;

// "tls: <what>: <why>", INVALID_ARGUMENT. Clears OpenSSL's queue of errors.
absl::Status UnusableTls(std::string_view what, std::string_view why);

// All certificates of a text, at least one.
// Errors: INVALID_ARGUMENT, naming `what`.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view what,
                                                          const std::string& pem);

// When the first of them ends, in seconds since 1970; 0 if that can't be known.
int64_t FirstEnd(const std::vector<Certificate>& certificates) noexcept;

// What one end presents to the other: its certificate, the chain to its authority, and the key.
struct TlsIdentity {
  std::vector<Certificate> chain;
  PrivateKey key;
};

// Errors: INVALID_ARGUMENT if one is missing, not PEM, or the key is encrypted or not that of the
//         first certificate.
absl::StatusOr<TlsIdentity> ReadIdentity(const std::string& certificate,
                                         const std::string& private_key);

// From now on the context presents `identity`, and shares it. Errors: INVALID_ARGUMENT, for example
// for a key that is too weak.
absl::Status UseIdentity(SSL_CTX* context, const TlsIdentity& identity);

// The context trusts certificates issued by these, directly or through others.
absl::Status Trust(SSL_CTX* context, const std::vector<Certificate>& authorities);

}  // namespace cbt::net

#endif  // CBT_NET_PEM_H_
