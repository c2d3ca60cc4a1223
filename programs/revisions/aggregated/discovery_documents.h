// What the server says about what it serves, and about its health.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_DOCUMENTS_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_DOCUMENTS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "programs/revisions/http_server/http_message.h"

namespace cbt::kube::aggregated {

// The paths of the group and of its version.
inline constexpr std::string_view kApisPath = "/apis";
inline constexpr std::string_view kGroupPath = "/apis/cbt.storage.k8s.io";
inline constexpr std::string_view kVersionPath = "/apis/cbt.storage.k8s.io/v1alpha1";

// The answer to a GET of /apis (in the aggregated form too, if the request accepts it), of the
// group, or of its version; nothing for any other path.
std::optional<http_server::Response> DiscoveryDocument(const http_server::Request& request);

// The parts of a server, and what is wrong with each; empty: nothing.
using HealthChecks = std::vector<std::pair<std::string, std::string>>;

// As API servers answer: "ok", or each check in a line with ?verbose and when one fails (500).
// ?exclude=NAME leaves a check out.
http_server::Response HealthAnswer(std::string_view what, const HealthChecks& checks,
                                   std::string_view query);

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_DOCUMENTS_H_
