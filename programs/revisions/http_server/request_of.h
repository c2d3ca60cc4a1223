// The head of a message of Boost.Beast as a Request.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_OF_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_OF_H_

#include <algorithm>
#include <boost/beast/http/message.hpp>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "programs/revisions/http_server/growing_body.h"
#include "programs/revisions/http_server/http_message.h"

namespace cbt::kube::http_server {

inline std::string Lowered(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lowered;
}

// Its line and headers only.
inline std::shared_ptr<Request> HeadOf(const boost::beast::http::request<GrowingBody>& message) {
  auto request = std::make_shared<Request>();
  request->method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  const size_t mark = std::min(target.find('?'), target.size());
  request->path = target.substr(0, mark);
  if (mark < target.size()) request->query = target.substr(mark + 1);
  for (const auto& field : message) {
    request->headers.emplace_back(Lowered({field.name_string().data(), field.name_string().size()}),
                                  std::string(field.value().data(), field.value().size()));
  }
  return request;
}

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_REQUEST_OF_H_
