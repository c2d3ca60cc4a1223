// Credentials for both sides.
#ifndef CBT_RPC_TLS_H_
#define CBT_RPC_TLS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"

namespace cbt::rpc {

// Without TLS when `tls` names neither texts nor files.
// Errors: INVALID_ARGUMENT for a certificate, key or CA that is missing, no PEM, or does not fit
//         the others; what reading a file says.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsOf(const TlsOptions& tls);

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TLS_H_
