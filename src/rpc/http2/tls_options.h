// The library's options of TLS for the contexts that use them.
#ifndef CBT_RPC_HTTP2_TLS_OPTIONS_H_
#define CBT_RPC_HTTP2_TLS_OPTIONS_H_

#include <openssl/ssl.h>

#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "net/tls_context.h"
#include "rpc/contract/server_event.h"

namespace cbt::rpc::http2 {

// Reports to `telemetry`, whose sinks must outlive it.
inline absl::StatusOr<std::unique_ptr<net::ServerTls>> MakeServerTls(const TlsOptions& tls,
                                                                     const Telemetry& telemetry) {
  return net::ServerTls::Create(
      {.certificate = tls.certificate,
       .private_key = tls.private_key,
       .client_ca = tls.client_ca,
       .certificate_file = tls.certificate_file,
       .private_key_file = tls.private_key_file,
       .client_ca_file = tls.client_ca_file,
       .min_version = tls.min_version == TlsVersion::k13 ? TLS1_3_VERSION : TLS1_2_VERSION,
       .ciphers = tls.ciphers,
       .groups = tls.groups},
      [telemetry] { Report(telemetry, ServerEvent::kHandshakeRefused); });
}

// `tls` must be enabled.
inline absl::StatusOr<std::unique_ptr<net::ClientTls>> MakeClientTls(const ClientTlsOptions& tls) {
  return net::ClientTls::Create(
      {.ca = tls.ca, .certificate = tls.certificate, .private_key = tls.private_key});
}

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_TLS_OPTIONS_H_
