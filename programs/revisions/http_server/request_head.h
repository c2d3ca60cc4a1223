// Where a request ends, by its head alone: what Boost.Beast leaves open is refused.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_HEAD_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_HEAD_H_

#include <cstddef>
#include <optional>
#include <string_view>

namespace cbt::kube::http_server {

// The length of the head that `bytes` begin with, its empty line included; empty if it has not
// ended yet.
std::optional<size_t> HeadLength(std::string_view bytes);

// Why the length of the body is in doubt, or null. A body that two programs measure differently
// becomes the next request for one of them. Certain is: no body; one Content-Length of digits; or
// one Transfer-Encoding that is "chunked" and nothing else, in HTTP/1.1 and without
// Content-Length. A line that continues the one before it is refused too: it may belong to either.
// `head`: as HeadLength() measures it.
const char* LengthDoubt(std::string_view head);

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_HEAD_H_
