// What an aggregated API server is configured with.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_OPTIONS_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::kube::aggregated {

struct Options {
  Config cluster = {};
  ClientOptions client = {};
  // Of each request to the API server for a caller.
  std::chrono::milliseconds api_timeout = std::chrono::seconds(5);

  http_server::ServerOptions server = {};

  // What the HTTPS services of drivers know this server by (PEM); read again when they change.
  std::string client_certificate_file = {};
  std::string client_key_file = {};

  // Blocks of a page whose request names no limit.
  uint64_t page_blocks = 256;
  // For a page, with all attempts; how long a service that is not there is asked again; and the
  // first wait between two attempts.
  std::chrono::milliseconds page_time = std::chrono::seconds(45);
  std::chrono::milliseconds retry_time = std::chrono::seconds(20);
  std::chrono::milliseconds retry_wait = std::chrono::milliseconds(200);
  // Pages that are made at once; four times as many wait, further ones get 429.
  size_t threads = 16;

  // Requests a second, and at once after a pause, of all users together; the users that ask share
  // it evenly. Zero qps: no limit.
  double qps = 100;
  int burst = 200;

  // How often the services of drivers are looked at. One process does it.
  std::chrono::milliseconds check_time = std::chrono::seconds(30);
  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_OPTIONS_H_
