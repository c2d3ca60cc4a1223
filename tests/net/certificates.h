// Certificates made in memory, for TLS tests.
#ifndef CBT_TESTS_NET_CERTIFICATES_H_
#define CBT_TESTS_NET_CERTIFICATES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace cbt::test {

// A certificate and its key, in PEM form.
struct PemIdentity {
  std::string certificate;
  std::string key;
};

struct CertificateOptions {
  std::string name = "localhost";
  std::string organization = {};
  std::string alternatives = "DNS:localhost,IP:127.0.0.1,IP:::1";
  long begins = -3600;  // seconds from now
  long ends = 86400;
  bool authority = false;
};

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name = "ca") : key_(NewKey()) {
    certificate_ = Make({.name = name, .alternatives = "", .authority = true}, key_.get(), nullptr);
  }

  std::string pem() const { return Pem(certificate_.get()); }

  PemIdentity Issue(const CertificateOptions& options = {}) const {
    const Key key = NewKey();
    const Cert certificate = Make(options, key.get(), certificate_.get());
    return {Pem(certificate.get()), KeyPem(key.get())};
  }

  // An intermediate authority, issued by this one.
  TestAuthority IssueAuthority(const std::string& name) const {
    TestAuthority issued{NoCertificate()};
    issued.certificate_ = Make({.name = name, .alternatives = "", .authority = true},
                               issued.key_.get(), certificate_.get());
    return issued;
  }

 private:
  template <auto Free>
  struct Deleter {
    template <typename T>
    void operator()(T* object) const {
      Free(object);
    }
  };
  using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
  using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
  struct NoCertificate {};

  explicit TestAuthority(NoCertificate) : key_(NewKey()) {}

  static void Check(bool ok) {
    if (!ok) throw std::runtime_error("can't make a certificate");
  }

  static Key NewKey() {
    Key key(EVP_EC_gen("P-256"));
    Check(key != nullptr);
    return key;
  }

  static void Extend(X509* certificate, int extension, const std::string& value) {
    if (value.empty()) return;
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, extension, value.c_str());
    Check(made != nullptr);
    X509_add_ext(certificate, made, -1);
    X509_EXTENSION_free(made);
  }

  static void Name(X509* certificate, const char* field, const std::string& value) {
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), field, MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(value.c_str()), -1, -1, 0);
  }

  Cert Make(const CertificateOptions& options, EVP_PKEY* key, X509* issuer) const {
    static long serial = 1;
    Cert made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), options.begins);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), options.ends);
    X509_set_pubkey(made.get(), key);
    Name(made.get(), "CN", options.name);
    if (!options.organization.empty()) Name(made.get(), "O", options.organization);
    X509_set_issuer_name(made.get(),
                         X509_get_subject_name(issuer == nullptr ? made.get() : issuer));
    Extend(made.get(), NID_basic_constraints, options.authority ? "critical,CA:TRUE" : "CA:FALSE");
    Extend(made.get(), NID_subject_alt_name, options.alternatives);
    Check(X509_sign(made.get(), key_.get(), EVP_sha256()) != 0);
    return made;
  }

  template <typename Write>
  static std::string Text(const Write& write) {
    BIO* const memory = BIO_new(BIO_s_mem());
    Check(write(memory) == 1);
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory, &data);
    std::string text(data, static_cast<size_t>(size));
    BIO_free(memory);
    return text;
  }
  static std::string Pem(X509* certificate) {
    return Text([&](BIO* memory) { return PEM_write_bio_X509(memory, certificate); });
  }
  static std::string KeyPem(EVP_PKEY* key) {
    return Text([&](BIO* memory) {
      return PEM_write_bio_PrivateKey(memory, key, nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

  Key key_;
  Cert certificate_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_NET_CERTIFICATES_H_
