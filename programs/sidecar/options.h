// What a sidecar is configured with.
#ifndef CBT_PROGRAMS_SIDECAR_OPTIONS_H_
#define CBT_PROGRAMS_SIDECAR_OPTIONS_H_

#include <chrono>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/telemetry.h"
#include "ops/http_page.h"

namespace cbt::kube::sidecar {

// Which base snapshots a delta may name.
enum class BasePolicy : unsigned char {
  kHandleInNamespace,  // the handle of a snapshot of the request's namespace
  kHandle,             // any handle: the plugin decides, which does not know the caller
  kName,               // the name of a snapshot, like the target
};

// The code for a snapshot that does not exist.
enum class MissingCode : unsigned char { kNotFound, kUnavailable };

struct Publication {
  std::string address = {};  // "host:port" for clients; empty: nothing is published
  // PEM of the authority of the server's certificate, for sessions too. Empty: `ca.crt` beside the
  // certificate if there is one; otherwise what the certificate's file holds.
  std::string ca_file = {};
};

// Sessions of the proposal's first revision, as `cbt-cluster session-manager` opens them.
struct SessionOptions {
  // The sidecar's namespace, where their data is; empty: sessions do not come from the cluster.
  std::string name_space = {};
  // "host:port" in the SnapshotServicesConfiguration; empty: it is not published.
  std::string address = {};
  std::string configuration = {};  // its name; empty: the driver's
};

struct Options {
  // The plugin's address, TLS with its files, limits and contracts. Access, telemetry and `serving`
  // are set by the sidecar.
  rpc::RelayOptions relay = {};
  // For each short call to the plugin.
  std::chrono::milliseconds plugin_timeout = std::chrono::minutes(1);

  // Of the API server. The limit of requests a second is for watches and publishing, and with
  // `limit_callers` also for what is asked for callers, each on its own. Otherwise that is limited
  // only in the number of requests at once: a limit would turn callers away.
  Config cluster = {};
  ClientOptions client = {};
  bool limit_callers = false;
  // Of each request to it for a caller.
  std::chrono::milliseconds api_timeout = std::chrono::seconds(10);

  // Of tokens; empty: that of the SnapshotMetadataService object that has the driver's name.
  std::string audience = {};
  BasePolicy base_policy = BasePolicy::kHandleInNamespace;
  MissingCode missing_code = MissingCode::kNotFound;
  Publication publication = {};
  SessionOptions sessions = {};

  // "host:port" of /health and the metrics, an empty host for every address; empty: neither.
  std::string http_endpoint = {};
  std::string metrics_path = "/metrics";  // empty: no metrics
  ops::PageAccess page_access = {};

  rpc::LogSink* log = nullptr;  // may be null
  // What an operator must see becomes Events, too. Needs the rights to create and patch them.
  bool events = false;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_OPTIONS_H_
