#include "programs/revisions/aggregated/front_proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <string>
#include <utility>
#include <vector>

#include "cbt/kube/typed_objects.h"
#include "tests/net/certificates.h"
#include "tests/support/status.h"

namespace cbt::test::front_proxy_test {

using kube::ConfigMap;
using kube::UserInfo;
using kube::aggregated::FrontProxy;
using kube::http_server::Request;
using testing::ElementsAre;
using testing::HasSubstr;

std::string DerOf(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), -1);
  X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  unsigned char* bytes = nullptr;
  const int length = i2d_X509(certificate, &bytes);
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  OPENSSL_free(bytes);
  X509_free(certificate);
  return der;
}

class FrontProxyTest : public testing::Test {
 protected:
  ConfigMap Config() const {
    return {.data = {{"requestheader-client-ca-file", ca_.pem()},
                     {"requestheader-allowed-names", R"(["front-proxy-client"])"},
                     {"requestheader-username-headers", R"(["X-Remote-User","X-Other-User"])"},
                     {"requestheader-uid-headers", R"(["X-Remote-Uid"])"},
                     {"requestheader-group-headers", R"(["X-Remote-Group"])"},
                     {"requestheader-extra-headers-prefix", R"(["X-Remote-Extra-"])"}}};
  }
  static std::vector<std::string> Chain(const TestAuthority& ca,
                                        const CertificateOptions& options) {
    return {DerOf(ca.Issue(options).certificate)};
  }
  Request Good() const {
    return {.headers = {{"x-remote-user", "alice"}},
            .peer_certificates = Chain(ca_, {.name = "front-proxy-client", .alternatives = ""})};
  }
  void ExpectRefused(const Request& request, const std::string& why) const {
    const auto user = ValueOf(FrontProxy::Read(Config())).UserOf(request);
    EXPECT_EQ(user.status().code(), absl::StatusCode::kUnauthenticated) << why;
    EXPECT_THAT(std::string(user.status().message()), HasSubstr(why));
  }

  const TestAuthority ca_{"front-proxy-ca"};
  const TestAuthority other_{"front-proxy-ca"};  // the same name, another key
};

TEST_F(FrontProxyTest, A9ReadsTheUserFromTheHeaders) {
  Request request = Good();
  request.headers = {{"x-remote-user", ""},
                     {"x-other-user", "alice"},
                     {"x-remote-uid", "7"},
                     {"x-remote-group", "a"},
                     {"x-remote-group", "b"},
                     {"x-remote-extra-scopes", "one"},
                     {"x-remote-extra-scopes", "two"},
                     {"x-remote-extra-example.com%2fkey", "three"},
                     {"authorization", "Bearer t"}};
  const UserInfo user = ValueOf(ValueOf(FrontProxy::Read(Config())).UserOf(request));
  EXPECT_EQ(user.username, "alice");
  EXPECT_EQ(user.uid, "7");
  EXPECT_THAT(user.groups, ElementsAre("a", "b"));
  EXPECT_EQ(user.extra.size(), 2U);
  EXPECT_THAT(user.extra.at("scopes"), ElementsAre("one", "two"));
  EXPECT_THAT(user.extra.at("example.com/key"), ElementsAre("three"));
}

TEST_F(FrontProxyTest, A9BelievesNobodyElse) {
  Request request = Good();
  request.peer_certificates = {};
  ExpectRefused(request, "no certificate");
  request.peer_certificates = {"not DER"};
  ExpectRefused(request, "can't be read");
  request.peer_certificates = Chain(other_, {.name = "front-proxy-client", .alternatives = ""});
  ExpectRefused(request, "not accepted");
  request.peer_certificates = Chain(ca_, {.name = "somebody", .alternatives = ""});
  ExpectRefused(request, "not that of the API server");
  request.peer_certificates =
      Chain(ca_, {.name = "front-proxy-client", .alternatives = "", .ends = -60});
  ExpectRefused(request, "expired");
  request.peer_certificates.assign(9, Good().peer_certificates.front());
  ExpectRefused(request, "too many certificates");
  request = Good();
  request.headers = {};
  ExpectRefused(request, "names no user");
  request.headers = {{"x-remote-user", "alice"}, {"x-remote-extra-a%zz", "b"}};
  ExpectRefused(request, "extra");
}

TEST_F(FrontProxyTest, AnAuthorityBetweenIsFine) {
  const TestAuthority between = ca_.IssueAuthority("between");
  Request request = Good();
  request.peer_certificates = Chain(between, {.name = "front-proxy-client", .alternatives = ""});
  ExpectRefused(request, "not accepted");
  request.peer_certificates.push_back(DerOf(between.pem()));
  EXPECT_TRUE(ValueOf(FrontProxy::Read(Config())).UserOf(request).ok());
}

TEST_F(FrontProxyTest, NoAllowedNamesAreAllNames) {
  ConfigMap config = Config();
  config.data["requestheader-allowed-names"] = "[]";
  Request request = Good();
  request.peer_certificates = Chain(ca_, {.name = "somebody", .alternatives = ""});
  EXPECT_TRUE(ValueOf(FrontProxy::Read(config)).UserOf(request).ok());
}

TEST_F(FrontProxyTest, A9AnUnusableConfigMapIsRefused) {
  const auto expect = [&](const std::string& key, const std::string& value,
                          const std::string& why) {
    ConfigMap config = Config();
    config.data[key] = value;
    const absl::Status status = FrontProxy::Read(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << key;
  };
  expect("requestheader-client-ca-file", "", "requestheader-client-ca-file");
  expect("requestheader-client-ca-file", "PEM", "requestheader-client-ca-file");
  expect("requestheader-username-headers", "[]", "it is empty");
  expect("requestheader-username-headers", R"([""])", "no name");
  expect("requestheader-allowed-names", "front-proxy-client", "a list of texts");
  expect("requestheader-allowed-names", R"([1])", "a list of texts");
  // A closing brace in it can't end the object that is read.
  expect("requestheader-group-headers", R"([]},"list":["x"])", "a list of texts");
}

}  // namespace cbt::test::front_proxy_test
