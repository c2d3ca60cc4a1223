// What an HTTPS sidecar is configured with.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_OPTIONS_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::kube::http_sidecar {

struct Options {
  Config cluster = {};
  ClientOptions client = {};
  // Of a Secret's GET.
  std::chrono::milliseconds api_timeout = std::chrono::seconds(5);

  http_server::ServerOptions server = {};
  // PEM of those who issue the certificates of callers, and the common name that a caller has.
  // A caller with such a certificate may ask for any snapshot of the driver. Read again when it
  // changes.
  std::string client_ca_file = {};
  std::string client_name = {};  // empty: any

  std::string plugin = {};  // "unix:///csi/csi.sock"
  // Of a short call to the plugin, and of a page.
  std::chrono::milliseconds plugin_timeout = std::chrono::minutes(1);
  std::chrono::milliseconds page_time = std::chrono::seconds(25);
  // Pages that are made at once; four times as many wait, further ones get 429.
  size_t threads = 8;

  // What is published: the service or the URL, and the block size. Neither: nothing is.
  aggregated::DriverDiscovery discovery = {};
  std::string ca_file = {};  // see sidecar::Publication

  // One process serves.
  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_OPTIONS_H_
