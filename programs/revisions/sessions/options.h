// What a session manager is configured with.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_OPTIONS_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_OPTIONS_H_

#include <chrono>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::kube::sessions {

struct Options {
  Config cluster = {};
  // A session takes nine requests, and the webhook lets fifty a second in.
  ClientOptions client = {.qps = 300, .burst = 600};
  // Of each request to the API server for a review.
  std::chrono::milliseconds api_timeout = std::chrono::seconds(5);

  // Of the webhook.
  http_server::ServerOptions webhook = {};

  // How long a session is open, from when its request was seen. At least 1 s.
  std::chrono::seconds session_time = std::chrono::hours(1);
  // How often expired sessions are looked for, and requests that are still pending.
  std::chrono::milliseconds scan_time = std::chrono::seconds(10);
  // Requests that are worked on at once.
  size_t threads = 4;

  // One process acts; all of them answer the webhook.
  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_OPTIONS_H_
