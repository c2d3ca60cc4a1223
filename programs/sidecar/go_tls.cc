#include "programs/sidecar/go_tls.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <memory>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube::sidecar {
namespace {

struct NamePair {
  std::string_view go;
  std::string_view openssl;  // empty: dropped
};

// The suites of TLS 1.2 that Go counts as safe. Two have an older name as well.
constexpr NamePair kCiphers[] = {
    {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "ECDHE-RSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", ""},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", ""},
    {"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", ""},
    {"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", ""},
};

constexpr NamePair kCurves[] = {
    {"X25519", "X25519"},
    {"CurveP256", "P-256"},
    {"CurveP384", "P-384"},
    {"CurveP521", "P-521"},
    {"X25519MLKEM768", "X25519MLKEM768"},
};

bool HasGroup(std::string_view name) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_server_method()),
                                                                  &SSL_CTX_free);
  return context != nullptr &&
         SSL_CTX_set1_groups_list(context.get(), std::string(name).c_str()) == 1;
}

// Calls `take` for each element; stops at the first error.
template <typename Take>
absl::Status ForEachName(std::string_view list, Take take) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const absl::string_view name = absl::StripAsciiWhitespace(AbslView(list.substr(0, comma)));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (name.empty()) continue;
    if (absl::Status status = take(std::string_view(name.data(), name.size())); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

template <typename Usable>
absl::StatusOr<OpenSslNames> Translate(std::string_view list, std::span<const NamePair> table,
                                       std::string_view what, Usable usable) {
  OpenSslNames result;
  absl::Status status = ForEachName(list, [&](std::string_view name) {
    const NamePair* found = nullptr;
    for (const NamePair& pair : table) {
      if (pair.go == name) found = &pair;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown or unsafe ", AbslView(what), ": ", AbslView(name)));
    }
    if (!usable(*found)) {
      result.dropped.emplace_back(name);
      return absl::OkStatus();
    }
    absl::StrAppend(&result.names, result.names.empty() ? "" : ":", AbslView(found->openssl));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (result.names.empty() && !result.dropped.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no usable ", AbslView(what), " in: ", AbslView(list)));
  }
  return result;
}

}  // namespace

absl::StatusOr<rpc::TlsVersion> ParseTlsVersion(std::string_view text) {
  if (text.empty() || text == "VersionTLS12") return rpc::TlsVersion::k12;
  if (text == "VersionTLS13") return rpc::TlsVersion::k13;
  return absl::InvalidArgumentError(
      absl::StrCat("expected VersionTLS12 or VersionTLS13, not: ", AbslView(text)));
}

absl::StatusOr<OpenSslNames> ParseCipherSuites(std::string_view text) {
  return Translate(text, kCiphers, "cipher suite",
                   [](const NamePair& pair) { return !pair.openssl.empty(); });
}

absl::StatusOr<OpenSslNames> ParseCurvePreferences(std::string_view text) {
  return Translate(text, kCurves, "curve",
                   [](const NamePair& pair) { return HasGroup(pair.openssl); });
}

}  // namespace cbt::kube::sidecar
