#include "net/pem.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::net {
namespace {

using Bio = std::unique_ptr<BIO, OpenSslDeleter<BIO, BIO_vfree>>;

// Reads `text` in place. Null without memory, or if it is longer than OpenSSL can express.
Bio Reader(const std::string& text) {
  if (text.size() > INT_MAX) return nullptr;
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

PrivateKey ReadKey(const std::string& pem) {
  // An encrypted key can't be used: there is no one to ask for the password.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const Bio reader = Reader(pem);
  if (reader == nullptr) return nullptr;
  return PrivateKey(PEM_read_bio_PrivateKey(reader.get(), nullptr, no_password, nullptr));
}

std::string_view LastReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "OpenSSL refuses it" : reason;
}

}  // namespace

absl::Status UnusableTls(std::string_view what, std::string_view why) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat("tls: ", AbslView(what), ": ", AbslView(why)));
  ERR_clear_error();
  return status;
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(std::string_view what,
                                                          const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio reader = Reader(pem);
  ERR_clear_error();
  while (reader != nullptr) {
    Certificate next(PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  if (certificates.empty()) return UnusableTls(what, "no certificate in PEM form");
  // Anything but the end of the text is a broken certificate; only the peers would notice half a
  // chain.
  const unsigned long error = ERR_peek_last_error();
  if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
    return UnusableTls(what, "a certificate after the first is not in PEM form");
  }
  ERR_clear_error();
  return certificates;
}

int64_t FirstEnd(const std::vector<Certificate>& certificates) noexcept {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const Certificate& certificate : certificates) {
    tm broken_down = {};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &broken_down) != 1) return 0;
    first = std::min(first, static_cast<int64_t>(timegm(&broken_down)));
  }
  return certificates.empty() ? 0 : first;
}

absl::StatusOr<TlsIdentity> ReadIdentity(const std::string& certificate,
                                         const std::string& private_key) {
  absl::StatusOr<std::vector<Certificate>> chain = ReadCertificates("certificate", certificate);
  if (!chain.ok()) return chain.status();
  TlsIdentity identity{.chain = *std::move(chain), .key = ReadKey(private_key)};
  if (identity.key == nullptr) return UnusableTls("private key", "no private key in PEM form");
  if (X509_check_private_key(identity.chain.front().get(), identity.key.get()) != 1) {
    return UnusableTls("private key", "does not match the certificate");
  }
  ERR_clear_error();
  return identity;
}

absl::Status UseIdentity(SSL_CTX* context, const TlsIdentity& identity) {
  if (SSL_CTX_use_certificate(context, identity.chain.front().get()) != 1) {
    return UnusableTls("certificate", LastReason());
  }
  for (size_t i = 1; i < identity.chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, identity.chain[i].get()) != 1) {
      return UnusableTls("certificate", LastReason());
    }
  }
  if (SSL_CTX_use_PrivateKey(context, identity.key.get()) != 1) {
    return UnusableTls("private key", LastReason());
  }
  return absl::OkStatus();
}

absl::Status Trust(SSL_CTX* context, const std::vector<Certificate>& authorities) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const Certificate& authority : authorities) {
    if (X509_STORE_add_cert(store, authority.get()) != 1) return UnusableTls("CA", LastReason());
  }
  // A named authority is trusted, even if its certificate was issued by another.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  return absl::OkStatus();
}

}  // namespace cbt::net
