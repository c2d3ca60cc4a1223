// Options of the services of a Server, a Relay and a GrpcService. Part of cbt::rpc.
#ifndef CBT_RPC_SERVICE_OPTIONS_H_
#define CBT_RPC_SERVICE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "cbt/rpc/access.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

struct ServiceOptions {
  // The contracts to serve, each at most once. Unset: Api::kCsi, of a relay Api::kKubernetes.
  std::optional<std::vector<Api>> apis = {};

  // csi.v1.Identity, of plugins (Api::kCsi and Api::kPaged), with the name (a domain name of at
  // most 63 characters) and the version. Unset: served, but not by a GrpcService: there the plugin
  // has its own, which must list the capability SNAPSHOT_METADATA_SERVICE. A relay has a name of
  // its own, and ignores the three.
  std::optional<bool> identity = {};
  std::string plugin_name = "libcbt.example.com";
  std::string vendor_version = {};  // the library's version if empty

  // For Api::kKubernetes, which needs the first three; and for Api::kSession, which uses the last
  // two if they are set.
  AccessControl access = {};
  // What field 3 of the Kubernetes delta request holds: the handle of the base snapshot, as in the
  // deployed API, or its name, as in an earlier draft.
  bool base_is_handle = true;
  // For Api::kSession.
  SessionStore* sessions = nullptr;
  // For Api::kPaged: the key that seals page tokens. Servers that accept each other's tokens, or
  // their own after a restart, need the same key. If empty, it is derived from the plugin's name:
  // this detects mistakes, not forgery.
  std::string page_token_key = {};

  // Relays ignore the shape.
  StreamOptions stream = {};

  // Serve grpc.reflection.v1 and v1alpha, which describe the services to clients. Unset: served,
  // but not by a GrpcService: a server has room for one reflection service, and gRPC has its own.
  std::optional<bool> reflection = {};

  // A GrpcService knows no connections: StreamObserver::OnState() is not called.
  Telemetry telemetry = {};
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVICE_OPTIONS_H_
