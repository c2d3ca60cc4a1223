// Credentials of servers and clients.
#ifndef CBT_RPC_TRANSPORT_TLS_H_
#define CBT_RPC_TRANSPORT_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/transport/client_ca.h"

namespace cbt::rpc {

// Whether the text holds a certificate in PEM form.
bool HasCertificate(const std::string& pem);

struct ServerTls {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::shared_ptr<ClientCa> client_ca;  // null without a client CA file
};

// Without TLS if `tls` has neither texts nor files.
// Errors: INVALID_ARGUMENT for a certificate, key or CA that is missing, not PEM, or does not match
//         the others; errors of reading a file.
absl::StatusOr<ServerTls> ServerTlsOf(const TlsOptions& tls, const Telemetry& telemetry);

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_TLS_H_
