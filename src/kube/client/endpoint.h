// Where requests go, in curl's terms.
#ifndef CBT_KUBE_CLIENT_ENDPOINT_H_
#define CBT_KUBE_CLIENT_ENDPOINT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/kube/config.h"

namespace cbt::kube {

struct Endpoint {
  std::string base_url = {};  // without a slash at the end
  bool tls = false;
  // Where the certificate has another name than the server: its URL has that name, these say where
  // it is and what it is called. Otherwise empty.
  std::string connect_to = {};
  std::string host_header = {};
};

// Errors: INVALID_ARGUMENT; never with user name or password of a URL.
absl::StatusOr<Endpoint> ParseEndpoint(const Config& config);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_ENDPOINT_H_
