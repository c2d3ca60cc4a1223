// What the server says about the fields of VolumeSnapshotDelta, for `kubectl explain` and completion.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_OPENAPI_DOCUMENT_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_OPENAPI_DOCUMENT_H_

#include <optional>
#include <string_view>

#include "programs/revisions/http_server/http_message.h"

namespace cbt::kube::aggregated {

// The list of documents, and the document of the version, in OpenAPI 3.0.
inline constexpr std::string_view kOpenApiPath = "/openapi/v3";
inline constexpr std::string_view kOpenApiVersionPath =
    "/openapi/v3/apis/cbt.storage.k8s.io/v1alpha1";

// The answer to a GET of either path; nothing for any other path. The documents hold what every
// client may know. The API server's aggregator asks for the list as a user without groups, to whom
// no cluster grants the path.
std::optional<http_server::Response> OpenApiDocument(std::string_view path);

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_OPENAPI_DOCUMENT_H_
