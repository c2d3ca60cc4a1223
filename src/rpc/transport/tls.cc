#include "rpc/transport/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <chrono>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "rpc/contract/server_event.h"

namespace cbt::rpc {
namespace {

// How often files are checked for changes.
constexpr unsigned kReloadSeconds = 1;
// By then gRPC has read a changed file, even on a busy machine.
constexpr std::chrono::seconds kSettle{3};

template <typename Type, void (*Free)(Type*)>
struct Deleter {
  void operator()(Type* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;

absl::Status Unusable(std::string_view what, const char* why) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("tls: ", std::string(what), ": ", why));
}

Certificate FirstCertificate(const std::string& pem) {
  BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  Certificate certificate(PEM_read_bio_X509(memory, nullptr, nullptr, nullptr));
  BIO_free(memory);
  return certificate;
}

Key PrivateKey(const std::string& pem) {
  // An encrypted key can't be used: there is no one to ask for the password.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  BIO* const memory = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  Key key(PEM_read_bio_PrivateKey(memory, nullptr, no_password, nullptr));
  BIO_free(memory);
  return key;
}

// gRPC would only report that it can't listen, or nothing until a client connects.
absl::Status CheckPems(const std::string& certificate, const std::string& private_key,
                       const std::string& client_ca) {
  const Certificate leaf = FirstCertificate(certificate);
  if (leaf == nullptr) return Unusable("certificate", "no certificate in PEM form");
  const Key key = PrivateKey(private_key);
  if (key == nullptr) return Unusable("private key", "no private key in PEM form");
  if (X509_check_private_key(leaf.get(), key.get()) != 1) {
    return Unusable("private key", "does not match the certificate");
  }
  if (!client_ca.empty() && FirstCertificate(client_ca) == nullptr) {
    return Unusable("client CA", "no certificate in PEM form");
  }
  return absl::OkStatus();
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

// Runs in addition to gRPC's check of a client's certificate, which uses the CA that it read last.
class ClientCaVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  ClientCaVerifier(std::shared_ptr<ClientCa> authority, const Telemetry& telemetry)
      : authority_(std::move(authority)), telemetry_(telemetry) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest*,
              std::function<void(grpc::Status)>, grpc::Status* result) override {
    bool trusted = false;
    try {
      trusted = authority_->Trusted();
    } catch (const std::bad_alloc&) {
      trusted = false;
    }
    if (!trusted) {
      *result = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "");
      Report(telemetry_, ServerEvent::kHandshakeRefused);
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::shared_ptr<ClientCa> authority_;
  const Telemetry telemetry_;
};

absl::StatusOr<ServerTls> FromFiles(const TlsOptions& tls, const Telemetry& telemetry) {
  std::string texts[3];
  const Wiper wiper(texts[1]);  // the private key
  const std::string* const paths[3] = {&tls.certificate_file, &tls.private_key_file,
                                       &tls.client_ca_file};
  for (int i = 0; i < 3; ++i) {
    if (paths[i]->empty()) continue;
    absl::StatusOr<std::string> text = ReadSmallFile(*paths[i]);
    if (!text.ok()) return text.status();
    texts[i] = *std::move(text);
  }
  if (!tls.client_ca_file.empty() && texts[2].empty()) {
    return Unusable("client CA", "no certificate in PEM form");
  }
  if (absl::Status status = CheckPems(texts[0], texts[1], texts[2]); !status.ok()) return status;
  const auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.private_key_file, tls.certificate_file, tls.client_ca_file, kReloadSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  ServerTls made;
  if (tls.client_ca_file.empty()) {
    options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  } else {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    made.client_ca = std::make_shared<ClientCa>(tls.client_ca_file, texts[2], kSettle);
#ifdef __clang_analyzer__  // reports the verifier as leaked: gRPC's header passes it to the core
    static_cast<void>(telemetry);
#else
    options.set_certificate_verifier(
        grpc::experimental::ExternalCertificateVerifier::Create<ClientCaVerifier>(made.client_ca,
                                                                                  telemetry));
#endif
  }
  made.credentials = grpc::experimental::TlsServerCredentials(options);
  return made;
}

}  // namespace

bool HasCertificate(const std::string& pem) {
  const bool has = FirstCertificate(pem) != nullptr;
  ERR_clear_error();
  return has;
}

absl::StatusOr<ServerTls> ServerTlsOf(const TlsOptions& tls, const Telemetry& telemetry) {
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
  if (files) return FromFiles(tls, telemetry);
  if (!texts) return ServerTls{.credentials = grpc::InsecureServerCredentials(), .client_ca = {}};
  if (absl::Status status = CheckPems(tls.certificate, tls.private_key, tls.client_ca);
      !status.ok()) {
    return status;
  }
  grpc::SslServerCredentialsOptions options(
      tls.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({tls.private_key, tls.certificate});
  options.pem_root_certs = tls.client_ca;
  return ServerTls{.credentials = grpc::SslServerCredentials(options), .client_ca = {}};
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientTlsOptions& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = tls.ca,
                               .pem_private_key = tls.private_key,
                               .pem_cert_chain = tls.certificate});
}

}  // namespace cbt::rpc
