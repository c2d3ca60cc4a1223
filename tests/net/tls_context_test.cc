// TLS in memory: our server against OpenSSL's client, and the reverse. Refusals and their reasons;
// files that change.
#include "net/tls_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/net/certificates.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::net {
namespace tls_context_test {

using absl::StatusCode;
using test::CertificateOptions;
using test::PemIdentity;
using test::TempDir;
using test::TestAuthority;
using testing::HasSubstr;

// The result of each end of a handshake and a byte each way after it; "" for success.
struct Outcome {
  std::string client;
  std::string server;
  bool ok() const { return client.empty() && server.empty(); }
};

// Advances one end as far as possible; true when it is done or has failed.
bool Advance(SSL* ssl, int& step, std::string& failure) {
  while (step < 3 && failure.empty()) {
    char byte = 'x';
    const int result = step == 0   ? SSL_do_handshake(ssl)
                       : step == 1 ? SSL_write(ssl, &byte, 1)
                                   : SSL_read(ssl, &byte, 1);
    if (result > 0) {
      ++step;
      continue;
    }
    const int error = SSL_get_error(ssl, result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return false;
    failure = TlsFailure(ssl);
  }
  return true;
}

Outcome Talk(SSL* client, SSL* server) {
  BIO* ends[2];
  if (BIO_new_bio_pair(&ends[0], 0, &ends[1], 0) != 1) throw std::bad_alloc();
  SSL_set_bio(client, ends[0], ends[0]);
  SSL_set_bio(server, ends[1], ends[1]);
  Outcome outcome;
  int steps[2] = {};
  // An end that waits for a failed peer would wait forever.
  for (int turn = 0; turn < 20; ++turn) {
    const bool done = Advance(client, steps[0], outcome.client);
    if (Advance(server, steps[1], outcome.server) && done) break;
  }
  return outcome;
}

// Plain OpenSSL.
class Foreign {
 public:
  explicit Foreign(const SSL_METHOD* method, std::string protocols = std::string("\2h2"))
      : context_(SSL_CTX_new(method)), protocols_(std::move(protocols)) {
    // Allows ancient protocols and ciphers.
    SSL_CTX_set_security_level(get(), 0);
    SSL_CTX_set_alpn_select_cb(
        get(),
        [](SSL*, const unsigned char** out, unsigned char* length, const unsigned char* offered,
           unsigned int offered_length, void* self) {
          const std::string& ours = static_cast<Foreign*>(self)->protocols_;
          unsigned char* chosen = nullptr;
          if (ours.empty() ||
              SSL_select_next_proto(&chosen, length,
                                    reinterpret_cast<const unsigned char*>(ours.data()),
                                    static_cast<unsigned int>(ours.size()), offered,
                                    offered_length) != OPENSSL_NPN_NEGOTIATED) {
            return SSL_TLSEXT_ERR_NOACK;
          }
          *out = chosen;
          return SSL_TLSEXT_ERR_OK;
        },
        this);
    if (!protocols_.empty()) {
      SSL_CTX_set_alpn_protos(get(), reinterpret_cast<const unsigned char*>(protocols_.data()),
                              static_cast<unsigned int>(protocols_.size()));
    }
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  SSL_CTX* get() const { return context_.get(); }

  void Show(const PemIdentity& pem) {
    const TlsIdentity identity = test::ValueOf(ReadIdentity(pem.certificate, pem.key));
    ASSERT_OK(UseIdentity(get(), identity));
  }

  Ssl Client() const {
    Ssl ssl(SSL_new(get()));
    SSL_set_connect_state(ssl.get());
    return ssl;
  }
  Ssl Server() const {
    Ssl ssl(SSL_new(get()));
    SSL_set_accept_state(ssl.get());
    return ssl;
  }

 private:
  SslContext context_;
  const std::string protocols_;
};

std::unique_ptr<ServerTls> ServerOf(const ServerTlsSettings& tls,
                                    std::function<void()> refused = {}) {
  return test::ValueOf(ServerTls::Create(tls, std::move(refused)));
}

class TlsContext : public testing::Test {
 protected:
  ServerTlsSettings Texts(const PemIdentity& identity, const std::string& client_ca = "") const {
    return {
        .certificate = identity.certificate, .private_key = identity.key, .client_ca = client_ca};
  }

  static Outcome AskServer(ServerTls& server, const Foreign& client) {
    const Ssl ours = test::ValueOf(server.NewConnection());
    return Talk(client.Client().get(), ours.get());
  }

  Outcome AskClient(const Foreign& server, const std::string& host = "localhost",
                    ClientTlsSettings tls = {}) const {
    if (tls.ca.empty()) tls.ca = authority.pem();
    const std::unique_ptr<ClientTls> client = test::ValueOf(ClientTls::Create(tls));
    const Ssl ours = test::ValueOf(client->NewConnection(host));
    return Talk(ours.get(), server.Server().get());
  }

  const TestAuthority authority;
  const TestAuthority other{"other"};
};

TEST_F(TlsContext, BothOfOursUnderstandEachOther) {
  const auto server = ServerOf(Texts(authority.Issue(), authority.pem()));
  const PemIdentity identity = authority.Issue({.name = "client", .alternatives = ""});
  const auto client = test::ValueOf(ClientTls::Create(
      {.ca = authority.pem(), .certificate = identity.certificate, .private_key = identity.key}));
  const Ssl a = test::ValueOf(client->NewConnection("localhost"));
  const Ssl b = test::ValueOf(server->NewConnection());
  const Outcome outcome = Talk(a.get(), b.get());
  EXPECT_TRUE(outcome.ok()) << outcome.client << '\n' << outcome.server;
  EXPECT_STREQ(SSL_get_version(a.get()), "TLSv1.3");
  EXPECT_EQ(SSL_get_current_compression(a.get()), nullptr);
}

TEST_F(TlsContext, ServersSpeakNothingOlderThanTls12) {
  const auto server = ServerOf(Texts(authority.Issue()));
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION}) {
    Foreign client(TLS_client_method());
    SSL_CTX_set_min_proto_version(client.get(), version);
    SSL_CTX_set_max_proto_version(client.get(), version);
    const Outcome outcome = AskServer(*server, client);
    EXPECT_EQ(outcome.ok(), version >= TLS1_2_VERSION) << outcome.client << '\n' << outcome.server;
  }
}

TEST_F(TlsContext, ClientsSpeakNothingOlderThanTls12) {
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION}) {
    Foreign server(TLS_server_method());
    server.Show(authority.Issue());
    SSL_CTX_set_min_proto_version(server.get(), version);
    SSL_CTX_set_max_proto_version(server.get(), version);
    const Outcome outcome = AskClient(server);
    EXPECT_EQ(outcome.ok(), version >= TLS1_2_VERSION) << outcome.client << '\n' << outcome.server;
  }
}

// RFC 9113 forbids them for TLS 1.2.
TEST_F(TlsContext, WeakCiphersAreRefused) {
  const auto server = ServerOf(Texts(authority.Issue()));
  for (const char* cipher : {"ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-GCM-SHA256"}) {
    Foreign client(TLS_client_method());
    SSL_CTX_set_max_proto_version(client.get(), TLS1_2_VERSION);
    ASSERT_EQ(SSL_CTX_set_cipher_list(client.get(), cipher), 1);
    EXPECT_EQ(AskServer(*server, client).ok(),
              std::string(cipher).find("GCM") != std::string::npos);
  }
}

TEST_F(TlsContext, TheServerChoosesVersionsCiphersAndGroups) {
  const PemIdentity identity = authority.Issue();
  const auto talks = [&](ServerTlsSettings tls, int version, const char* cipher,
                         const char* group) {
    tls.certificate = identity.certificate;
    tls.private_key = identity.key;
    Foreign client(TLS_client_method());
    SSL_CTX_set_max_proto_version(client.get(), version);
    SSL_CTX_set_cipher_list(client.get(), cipher);
    SSL_CTX_set1_groups_list(client.get(), group);
    return AskServer(*ServerOf(tls), client).ok();
  };
  EXPECT_FALSE(talks({.min_version = TLS1_3_VERSION}, TLS1_2_VERSION, "ALL", "P-256"));
  EXPECT_FALSE(talks({.ciphers = "ECDHE+AESGCM+AES256"}, TLS1_2_VERSION, "AES128", "P-256"));
  EXPECT_TRUE(talks({.ciphers = "ECDHE+AESGCM+AES256"}, TLS1_2_VERSION, "AES256", "P-256"));
  EXPECT_FALSE(talks({.groups = "P-384"}, TLS1_3_VERSION, "ALL", "X25519"));
  EXPECT_TRUE(talks({.groups = "P-384"}, TLS1_3_VERSION, "ALL", "P-384"));
}

TEST_F(TlsContext, ClientsThatOfferNoHttp2AreRefusedInTheHandshake) {
  const auto server = ServerOf(Texts(authority.Issue()));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const char* protocols : {"", "\x08http/1.1", "\2h3", "\2h2"}) {
      Foreign client(TLS_client_method(), protocols);
      SSL_CTX_set_max_proto_version(client.get(), version);
      const Outcome outcome = AskServer(*server, client);
      EXPECT_EQ(outcome.ok(), std::string(protocols) == "\2h2") << protocols;
      if (!outcome.ok()) {
        EXPECT_THAT(outcome.client, HasSubstr("no application protocol"));
      }
    }
  }
}

TEST_F(TlsContext, ServersThatChooseNoHttp2AreRefused) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Foreign server(TLS_server_method(), "");
    server.Show(authority.Issue());
    SSL_CTX_set_max_proto_version(server.get(), version);
    const Outcome outcome = AskClient(server);
    EXPECT_THAT(outcome.client, HasSubstr("did not agree to HTTP/2"));
    EXPECT_NE(outcome.server, "");
  }
}

TEST_F(TlsContext, ClientsWithoutAKnownCertificateAreRefused) {
  const auto server = ServerOf(Texts(authority.Issue(), authority.pem()));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto ask = [&](const PemIdentity* identity) {
      Foreign client(TLS_client_method());
      SSL_CTX_set_max_proto_version(client.get(), version);
      if (identity != nullptr) client.Show(*identity);
      return AskServer(*server, client);
    };
    EXPECT_THAT(ask(nullptr).server, HasSubstr("did not return a certificate"));
    const PemIdentity foreign = other.Issue();
    EXPECT_THAT(ask(&foreign).server, HasSubstr("the certificate is refused: "));
    const PemIdentity expired = authority.Issue({.ends = -60});
    EXPECT_THAT(ask(&expired).server, HasSubstr("has expired"));
    const PemIdentity early = authority.Issue({.begins = 3600});
    EXPECT_THAT(ask(&early).server, HasSubstr("not yet valid"));
    const PemIdentity known = authority.Issue();
    EXPECT_TRUE(ask(&known).ok());
    // What the client learns: before it sends a request, or when it reads.
    EXPECT_THAT(ask(&foreign).client, HasSubstr("unknown ca"));
    EXPECT_THAT(ask(&expired).client, HasSubstr("certificate expired"));
  }
}

TEST_F(TlsContext, ServersWithoutAKnownCertificateAreRefused) {
  const auto ask = [&](const PemIdentity& identity) {
    Foreign server(TLS_server_method());
    server.Show(identity);
    return AskClient(server).client;
  };
  EXPECT_EQ(ask(authority.Issue()), "");
  EXPECT_THAT(ask(other.Issue()), HasSubstr("the certificate is refused: "));
  EXPECT_THAT(ask(authority.Issue({.ends = -60})), HasSubstr("has expired"));
}

TEST_F(TlsContext, ServersMustBeTheHostThatWasAsked) {
  Foreign server(TLS_server_method());
  server.Show(authority.Issue(
      {.name = "cn.example", .alternatives = "DNS:a.example,DNS:*.b.example,IP:127.0.0.1,IP:::1"}));
  for (const char* host : {"a.example", "A.Example", "a.example.", "x.b.example", "127.0.0.1",
                           "::1", "::1%lo", "0:0:0:0:0:0:0:1"}) {
    EXPECT_EQ(AskClient(server, host).client, "") << host;
  }
  for (const char* host : {"localhost", "cn.example", "b.example", "x.y.b.example", "127.0.0.2",
                           "::2", "a.example.org", "xa.example"}) {
    EXPECT_THAT(AskClient(server, host).client, HasSubstr("mismatch")) << host;
  }
}

TEST_F(TlsContext, HostsThatCantBeCheckedAreRefused) {
  const auto client = test::ValueOf(ClientTls::Create({.ca = authority.pem()}));
  for (const std::string& host : {std::string(), std::string("."), std::string("a\0b", 3)}) {
    EXPECT_EQ(client->NewConnection(host).status().code(), StatusCode::kInvalidArgument) << host;
  }
}

// SNI is for host names only.
TEST_F(TlsContext, NamesAreSentAndAddressesAreNot) {
  Foreign server(TLS_server_method());
  server.Show(authority.Issue());
  static std::string seen;
  SSL_CTX_set_tlsext_servername_callback(
      server.get(), +[](SSL* ssl, int*, void*) {
        const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        seen = name == nullptr ? "none" : name;
        return SSL_TLSEXT_ERR_OK;
      });
  EXPECT_TRUE(AskClient(server, "localhost").ok());
  EXPECT_EQ(seen, "localhost");
  EXPECT_TRUE(AskClient(server, "127.0.0.1").ok());
  EXPECT_EQ(seen, "none");
  EXPECT_TRUE(AskClient(server, "::1").ok());
  EXPECT_EQ(seen, "none");
}

TEST_F(TlsContext, ChainsAreSentAndIntermediatesMayBeTrusted) {
  const TestAuthority middle = authority.IssueAuthority("middle");
  PemIdentity identity = middle.Issue();
  Foreign client(TLS_client_method());
  SSL_CTX_set_verify(client.get(), SSL_VERIFY_PEER, nullptr);
  const std::vector<Certificate> root = test::ValueOf(ReadCertificates("CA", authority.pem()));
  X509_STORE_add_cert(SSL_CTX_get_cert_store(client.get()), root.front().get());
  EXPECT_FALSE(AskServer(*ServerOf(Texts(identity)), client).ok());
  identity.certificate += middle.pem();
  EXPECT_TRUE(AskServer(*ServerOf(Texts(identity)), client).ok());

  Foreign server(TLS_server_method());
  server.Show(identity);
  EXPECT_TRUE(AskClient(server, "localhost", {.ca = middle.pem()}).ok());
  EXPECT_TRUE(AskClient(server, "localhost", {.ca = other.pem() + authority.pem()}).ok());
  EXPECT_FALSE(AskClient(server, "localhost", {.ca = other.pem()}).ok());
}

TEST_F(TlsContext, NothingIsResumedOrRenegotiated) {
  const auto server = ServerOf(Texts(authority.Issue(), authority.pem()));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Foreign client(TLS_client_method());
    client.Show(authority.Issue());
    SSL_CTX_set_max_proto_version(client.get(), version);
    SSL_CTX_set_session_cache_mode(client.get(), SSL_SESS_CACHE_CLIENT);
    static int sessions;
    sessions = 0;
    SSL_CTX_sess_set_new_cb(
        client.get(), +[](SSL* ssl, SSL_SESSION* session) {
          if (SSL_SESSION_is_resumable(session) == 1 && SSL_SESSION_has_ticket(session) == 1)
            ++sessions;
          static_cast<void>(ssl);
          return 0;
        });
    const Ssl theirs = client.Client();
    const Ssl ours = test::ValueOf(server->NewConnection());
    ASSERT_TRUE(Talk(theirs.get(), ours.get()).ok());
    EXPECT_EQ(sessions, 0);
    if (version == TLS1_2_VERSION) {
      // A second handshake gets an alert, a warning without effect.
      SSL_renegotiate(theirs.get());
      EXPECT_LE(SSL_do_handshake(theirs.get()), 0);
      char byte = 0;
      EXPECT_LE(SSL_read(ours.get(), &byte, 1), 0);
      EXPECT_FALSE(SSL_do_handshake(theirs.get()) > 0 && SSL_is_init_finished(ours.get()) == 0);
      ERR_clear_error();
    }
    const Ssl again = client.Client();
    SSL_set_session(again.get(), SSL_get_session(theirs.get()));
    const Ssl fresh = test::ValueOf(server->NewConnection());
    ASSERT_TRUE(Talk(again.get(), fresh.get()).ok());
    EXPECT_EQ(SSL_session_reused(fresh.get()), 0);
  }
}

TEST_F(TlsContext, PlainTextIsNamed) {
  const auto client = test::ValueOf(ClientTls::Create({.ca = authority.pem()}));
  const Ssl ours = test::ValueOf(client->NewConnection("localhost"));
  BIO* const in = BIO_new(BIO_s_mem());
  BIO_write(in, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
  SSL_set_bio(ours.get(), in, BIO_new(BIO_s_mem()));
  int step = 0;
  std::string failure;
  EXPECT_TRUE(Advance(ours.get(), step, failure));
  EXPECT_EQ(failure, "wrong version number");
}

TEST_F(TlsContext, MaterialThatCantBeUsedIsNamed) {
  const PemIdentity identity = authority.Issue();
  const PemIdentity foreign = other.Issue();
  const auto refusal = [](const ServerTlsSettings& tls) {
    const absl::Status status = ServerTls::Create(tls).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({.certificate = identity.certificate, .private_key = foreign.key}),
            "tls: private key: does not match the certificate");
  EXPECT_EQ(refusal({.certificate = identity.key, .private_key = identity.key}),
            "tls: certificate: no certificate in PEM form");
  EXPECT_EQ(refusal({.certificate = identity.certificate, .private_key = identity.certificate}),
            "tls: private key: no private key in PEM form");
  EXPECT_EQ(refusal(Texts(identity, identity.key)), "tls: client CA: no certificate in PEM form");
  EXPECT_EQ(refusal({.certificate = identity.certificate}),
            "tls: expected a certificate and its key");
  EXPECT_EQ(refusal({.private_key = identity.key}), "tls: expected a certificate and its key");
  EXPECT_EQ(refusal({.client_ca = authority.pem()}),
            "tls: a client CA also needs a certificate and its key");
  ServerTlsSettings bad = Texts(identity);
  bad.groups = "P-256:P-255";
  EXPECT_EQ(refusal(bad), "tls: groups: OpenSSL does not have all of 'P-256:P-255'");
  bad.ciphers = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA";
  EXPECT_EQ(refusal(bad), "tls: ciphers: HTTP/2 does not allow ECDHE-ECDSA-AES128-SHA");
  bad.client_ca_file = "file";
  EXPECT_EQ(refusal(bad), "tls: give either PEM texts or files, not both");
  std::string broken = identity.certificate + authority.pem();
  broken.erase(broken.size() - 60, 20);
  EXPECT_EQ(refusal({.certificate = broken, .private_key = identity.key}),
            "tls: certificate: a certificate after the first is not in PEM form");
  EXPECT_EQ(ServerTls::Create({.certificate_file = "/absent/c", .private_key_file = "/absent/k"})
                .status()
                .code(),
            StatusCode::kNotFound);
  const auto none = ServerTls::Create({});
  ASSERT_OK(none);
  EXPECT_EQ(*none, nullptr);
  for (const ClientTlsSettings& tls :
       {ClientTlsSettings{.ca = identity.key},
        {.certificate = identity.certificate},
        {.certificate = identity.certificate, .private_key = foreign.key}}) {
    EXPECT_EQ(ClientTls::Create(tls).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ERR_peek_error(), 0U);
}

// Files that change while the server runs.
class TlsFiles : public TlsContext {
 protected:
  TlsFiles() {
    Write(authority.Issue());
    dir.Write("clients", authority.pem());
  }

  // Replaces files as tools do: writes a new file, then renames it.
  void Put(const std::string& name, const std::string& text) const {
    dir.Write("beside", text);
    std::filesystem::rename(dir / "beside", dir / name);
  }
  void Write(const PemIdentity& identity) const {
    Put("key", identity.key);
    Put("certificate", identity.certificate);
  }

  ServerTlsSettings Files(bool client_ca) const {
    return {.certificate_file = dir / "certificate",
            .private_key_file = dir / "key",
            .client_ca_file = client_ca ? dir / "clients" : ""};
  }

  // The issuer of the certificate that the server presents.
  std::string Issuer(ServerTls& server) const {
    Foreign client(TLS_client_method());
    const Ssl theirs = client.Client();
    const Ssl ours = test::ValueOf(server.NewConnection());
    EXPECT_TRUE(Talk(theirs.get(), ours.get()).ok());
    char name[64] = "none";
    X509_NAME_get_text_by_NID(X509_get_issuer_name(SSL_get0_peer_certificate(theirs.get())),
                              NID_commonName, name, sizeof name);
    return name;
  }

  bool Admits(ServerTls& server, const TestAuthority& issuer) const {
    Foreign client(TLS_client_method());
    client.Show(issuer.Issue());
    absl::StatusOr<Ssl> ours = server.NewConnection();
    return ours.ok() && Talk(client.Client().get(), ours->get()).ok();
  }

  const TempDir dir;
};

TEST_F(TlsFiles, ANewCertificateIsShownToNewConnections) {
  const auto server = ServerOf(Files(false));
  EXPECT_EQ(Issuer(*server), "ca");
  EXPECT_EQ(Issuer(*server), "ca");
  Write(other.Issue());
  EXPECT_EQ(Issuer(*server), "other");
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
}

// The key arrives before its certificate; meanwhile files may be missing or broken.
TEST_F(TlsFiles, UntilBothAreThereTheOldOnesGoOn) {
  const auto server = ServerOf(Files(false));
  const PemIdentity next = other.Issue();
  Put("key", next.key);
  EXPECT_EQ(Issuer(*server), "ca");
  std::filesystem::remove(dir / "certificate");
  EXPECT_EQ(Issuer(*server), "ca");
  Put("certificate", next.certificate.substr(0, 100));
  EXPECT_EQ(Issuer(*server), "ca");
  Put("certificate", next.certificate);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (Issuer(*server) != "other" && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(Issuer(*server), "other");
}

TEST_F(TlsFiles, ANewClientCaHoldsAtOnce) {
  const auto server = ServerOf(Files(true));
  EXPECT_TRUE(Admits(*server, authority));
  EXPECT_FALSE(Admits(*server, other));
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
  Put("clients", other.pem());
  EXPECT_TRUE(Admits(*server, other));
  EXPECT_FALSE(Admits(*server, authority));
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kChanged);
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
  // The change is noticed without a new connection.
  Put("clients", authority.pem());
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kChanged);
  // A new server certificate leaves the client CA as it is.
  Write(other.Issue());
  EXPECT_TRUE(Admits(*server, authority));
  EXPECT_FALSE(Admits(*server, other));
}

TEST_F(TlsFiles, NoClientIsLetInWhileTheCaCantBeRead) {
  int refused = 0;
  const auto server = ServerOf(Files(true), [&refused] { ++refused; });
  for (const std::string text : {"", "no certificate"}) {
    Put("clients", text);
    EXPECT_FALSE(Admits(*server, authority));
    EXPECT_EQ(server->NewConnection().status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kUnusable);
    EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
    Put("clients", authority.pem());
    EXPECT_TRUE(Admits(*server, authority));
    EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
  }
  std::filesystem::remove(dir / "clients");
  EXPECT_FALSE(Admits(*server, authority));
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kUnusable);
  EXPECT_EQ(refused, 5);
  Put("clients", other.pem());
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kChanged);
  EXPECT_TRUE(Admits(*server, other));
}

TEST_F(TlsFiles, TheSameCaAgainIsNoChange) {
  const auto server = ServerOf(Files(true));
  Put("clients", authority.pem());
  EXPECT_EQ(server->TakeClientCaChange(), ServerTls::Change::kNone);
  EXPECT_TRUE(Admits(*server, authority));
}

TEST_F(TlsFiles, AnEmptyClientCaIsRefusedAtTheStart) {
  Put("clients", "");
  const absl::Status status = ServerTls::Create(Files(true)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("client CA"));
}

TEST_F(TlsFiles, ManyThreadsMayAskWhileFilesChange) {
  const auto server = ServerOf(Files(true));
  std::atomic<bool> stop = false;
  std::array<std::thread, 3> threads;
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!stop) {
        static_cast<void>(server->NewConnection());
        static_cast<void>(server->TakeClientCaChange());
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    Put("clients", i % 2 == 0 ? other.pem() : authority.pem());
    Write(i % 2 == 0 ? other.Issue() : authority.Issue());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Admits(*server, authority));
}

}  // namespace tls_context_test
}  // namespace cbt::net
