// TLS contexts of a server and a client that accept each other.
#ifndef CBT_TESTS_NET_TLS_PAIR_H_
#define CBT_TESTS_NET_TLS_PAIR_H_

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstring>
#include <memory>

#include "net/socket_stream.h"

namespace cbt::test {

struct TlsPair {
  TlsPair() : server(SSL_CTX_new(TLS_server_method())), client(SSL_CTX_new(TLS_client_method())) {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    X509* const certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* const name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
    SSL_CTX_use_certificate(server, certificate);
    SSL_CTX_use_PrivateKey(server, key);
    SSL_CTX_set_alpn_select_cb(
        server,
        [](SSL*, const unsigned char** out, unsigned char* bytes, const unsigned char* in,
           unsigned int in_bytes, void*) {
          static const unsigned char kH2[] = {2, 'h', '2'};
          return SSL_select_next_proto(const_cast<unsigned char**>(out), bytes, kH2, sizeof kH2, in,
                                       in_bytes) == OPENSSL_NPN_NEGOTIATED
                     ? SSL_TLSEXT_ERR_OK
                     : SSL_TLSEXT_ERR_ALERT_FATAL;
        },
        nullptr);
    static const unsigned char kOffer[] = {2, 'h', '2'};
    SSL_CTX_set_alpn_protos(client, kOffer, sizeof kOffer);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  ~TlsPair() {
    SSL_CTX_free(server);
    SSL_CTX_free(client);
  }
  TlsPair(const TlsPair&) = delete;
  TlsPair& operator=(const TlsPair&) = delete;

  net::OwnedSsl Accepting() const {
    net::OwnedSsl ssl(SSL_new(server));
    SSL_set_accept_state(ssl.get());
    return ssl;
  }
  net::OwnedSsl Connecting() const {
    net::OwnedSsl ssl(SSL_new(client));
    SSL_set_connect_state(ssl.get());
    return ssl;
  }

  SSL_CTX* const server;
  SSL_CTX* const client;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_NET_TLS_PAIR_H_
