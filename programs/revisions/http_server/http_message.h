// What a server of JSON over HTTPS gets and gives.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_MESSAGE_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_MESSAGE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cbt::kube::http_server {

// Names in lower case, in the order in which they came; a name may come several times.
using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = {};
  std::string path = {};   // as it was sent: percent-encoded, without the query
  std::string query = {};  // without its question mark
  Headers headers = {};
  std::string body = {};
  std::string peer = {};  // the client's address, without its port
  // The certificate that the client has proven to own, in DER, and those that it sent with it.
  // Who issued it was not checked. Empty: none, or ServerOptions::ask_for_certificate is off.
  std::vector<std::string> peer_certificates = {};
  // What the body occupies of the server's memory until the request is dropped.
  std::shared_ptr<const void> memory = {};

  // The first header of that name (in lower case); empty if it is missing.
  std::string_view Header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
};

struct Response {
  int code = 200;
  std::string content_type = "application/json";
  Headers headers = {};  // further ones
  std::string body = {};
};

// Sends the answer. May be called from any thread, during the handler or later; only the first call
// counts, and none after the client or the server has gone.
using Respond = std::function<void(Response)>;

// Answers one request. Called on the server's thread, so it must not block. If it throws, the
// client gets 500. The request lives until it is dropped.
using Handler = std::function<void(std::shared_ptr<const Request>, Respond)>;

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_MESSAGE_H_
