// Go's names for TLS settings, and what OpenSSL makes of them.
#include "programs/sidecar/go_tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status.h"

namespace cbt::kube::sidecar {
namespace go_tls_test {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GoTls, Versions) {
  EXPECT_EQ(*ParseTlsVersion(""), rpc::TlsVersion::k12);
  EXPECT_EQ(*ParseTlsVersion("VersionTLS12"), rpc::TlsVersion::k12);
  EXPECT_EQ(*ParseTlsVersion("VersionTLS13"), rpc::TlsVersion::k13);
  for (const char* bad : {"VersionTLS11", "1.3", "TLS13", "versiontls13"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTlsVersion(bad).status())) << bad;
  }
}

TEST(GoTls, CiphersAreThoseOfTls12ThatHttpAllows) {
  EXPECT_EQ(ParseCipherSuites("")->names, "");
  const auto two = ParseCipherSuites(
      "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305");
  ASSERT_OK(two);
  EXPECT_EQ(two->names, "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305");
  EXPECT_THAT(two->dropped, IsEmpty());
  const auto mixed =
      ParseCipherSuites("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
  ASSERT_OK(mixed);
  EXPECT_EQ(mixed->names, "ECDHE-RSA-AES128-GCM-SHA256");
  EXPECT_THAT(mixed->dropped, ElementsAre("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"));
  for (const char* bad : {"TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256",
                          "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-GCM-SHA256",
                          "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,X"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCipherSuites(bad).status())) << bad;
  }
}

TEST(GoTls, CurvesThatThisOpenSslLacksAreDropped) {
  EXPECT_EQ(ParseCurvePreferences("")->names, "");
  EXPECT_EQ(ParseCurvePreferences("CurveP384,X25519")->names, "P-384:X25519");
  const auto hybrid = ParseCurvePreferences("X25519MLKEM768,CurveP256");
  ASSERT_OK(hybrid);
  EXPECT_EQ(hybrid->names, hybrid->dropped.empty() ? "X25519MLKEM768:P-256" : std::string("P-256"));
  for (const char* bad : {"P256", "CurveP224", "x25519"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCurvePreferences(bad).status())) << bad;
  }
}

}  // namespace go_tls_test
}  // namespace cbt::kube::sidecar
