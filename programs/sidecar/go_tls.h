// TLS settings by the names that Go gives them.
#ifndef CBT_PROGRAMS_SIDECAR_GO_TLS_H_
#define CBT_PROGRAMS_SIDECAR_GO_TLS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"

namespace cbt::kube::sidecar {

// "", "VersionTLS12" or "VersionTLS13". Errors: INVALID_ARGUMENT.
absl::StatusOr<rpc::TlsVersion> ParseTlsVersion(std::string_view text);

// Names for OpenSSL, and what was left out.
struct OpenSslNames {
  std::string names = {};  // separated by colons; empty: the default
  std::vector<std::string> dropped = {};
};

// A list, separated by commas, of Go's names for ciphers of TLS 1.2. Those with CBC are dropped:
// HTTP/2 forbids them, and only a server of Go's would offer them.
// Errors: INVALID_ARGUMENT for an unknown, unsafe or TLS 1.3 cipher, or if nothing is left.
absl::StatusOr<OpenSslNames> ParseCipherSuites(std::string_view text);

// A list, separated by commas, of X25519, CurveP256, CurveP384, CurveP521 and X25519MLKEM768. What
// this OpenSSL does not have is dropped.
// Errors: INVALID_ARGUMENT for another name, or if nothing is left.
absl::StatusOr<OpenSslNames> ParseCurvePreferences(std::string_view text);

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_GO_TLS_H_
