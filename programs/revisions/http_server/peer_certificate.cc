#include "programs/revisions/http_server/peer_certificate.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "net/pem.h"

namespace cbt::kube::http_server {
namespace {

using Verification =
    std::unique_ptr<X509_STORE_CTX, net::OpenSslDeleter<X509_STORE_CTX, X509_STORE_CTX_free>>;

// The stack borrows its certificates.
struct StackDeleter {
  void operator()(STACK_OF(X509) * stack) const noexcept { sk_X509_free(stack); }
};

absl::Status OutOfMemory() {
  ERR_clear_error();
  return absl::ResourceExhaustedError("client certificate: no memory");
}

net::Certificate FromDer(const std::string& der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  net::Certificate certificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  ERR_clear_error();
  return certificate;
}

std::string CommonNameOf(X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const int index = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (index < 0) return "";
  unsigned char* text = nullptr;
  const int length =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, index)));
  if (length < 0) return "";
  std::string name(reinterpret_cast<const char*>(text), static_cast<size_t>(length));
  OPENSSL_free(text);
  return name;
}

}  // namespace

absl::StatusOr<ClientAuthorities> ClientAuthorities::Read(const std::string& what,
                                                          const std::string& pem) {
  const absl::StatusOr<std::vector<net::Certificate>> certificates =
      net::ReadCertificates(what, pem);
  if (!certificates.ok()) return certificates.status();
  std::shared_ptr<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  if (store == nullptr) return OutOfMemory();
  for (const net::Certificate& one : *certificates) {
    if (X509_STORE_add_cert(store.get(), one.get()) != 1) return OutOfMemory();
  }
  return ClientAuthorities(std::move(store));
}

absl::StatusOr<std::string> ClientAuthorities::NameOf(const std::vector<std::string>& chain) const {
  if (chain.empty()) return absl::UnauthenticatedError("the client showed no certificate");
  if (chain.size() > kMaxCertificates) {
    return absl::UnauthenticatedError("the client sent too many certificates");
  }
  std::vector<net::Certificate> certificates;
  const std::unique_ptr<STACK_OF(X509), StackDeleter> others(sk_X509_new_null());
  if (others == nullptr) return OutOfMemory();
  for (const std::string& der : chain) {
    certificates.push_back(FromDer(der));
    if (certificates.back() == nullptr) {
      return absl::UnauthenticatedError("the client's certificate can't be read");
    }
    if (certificates.size() > 1 && sk_X509_push(others.get(), certificates.back().get()) == 0) {
      return OutOfMemory();
    }
  }
  const Verification verification(X509_STORE_CTX_new());
  if (verification == nullptr ||
      X509_STORE_CTX_init(verification.get(), store_.get(), certificates.front().get(),
                          others.get()) != 1 ||
      X509_STORE_CTX_set_purpose(verification.get(), X509_PURPOSE_SSL_CLIENT) != 1) {
    return OutOfMemory();
  }
  const int verified = X509_verify_cert(verification.get());
  ERR_clear_error();
  if (verified != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("the client's certificate is not accepted: ",
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(verification.get()))));
  }
  return CommonNameOf(certificates.front().get());
}

}  // namespace cbt::kube::http_server
