// What the node adapter is configured with.
#ifndef CBT_PROGRAMS_COSI_NODE_OPTIONS_H_
#define CBT_PROGRAMS_COSI_NODE_OPTIONS_H_

#include <chrono>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "programs/cluster/component.h"

namespace cbt::kube::cosi {

struct NodeOptions {
  Config cluster = {};
  // Each of the API server's answers is waited for this long: kubelet asks again.
  ClientOptions client = {.timeout = std::chrono::seconds(10)};
  std::string socket = {};           // "unix:/path": where kubelet calls
  std::string node_id = {};          // the node's name
  std::string state_directory = {};  // what is mounted, for the time after a restart

  cluster::ComponentOptions component = {};
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_OPTIONS_H_
