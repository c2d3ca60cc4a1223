// Credentials for both sides.
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

// Whether the text has a certificate in PEM form.
bool HasCertificate(const std::string& pem);

struct ServerTls {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::shared_ptr<ClientCa> client_ca;  // null without a file of it
};

// Without TLS when `tls` names neither texts nor files.
// Errors: INVALID_ARGUMENT for a certificate, key or CA that is missing, no PEM, or does not fit
//         the others; what reading a file says.
absl::StatusOr<ServerTls> ServerTlsOf(const TlsOptions& tls, const Telemetry& telemetry);

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_TLS_H_
