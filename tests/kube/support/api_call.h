// Requests of the tests themselves to an API server, by libcurl's simplest means: the judge of what
// our own client does.
#ifndef CBT_TESTS_KUBE_SUPPORT_API_CALL_H_
#define CBT_TESTS_KUBE_SUPPORT_API_CALL_H_

#include <string>

namespace cbt::test {

struct ApiCall {
  std::string method = "GET";
  std::string url = {};
  std::string body = {};
  std::string content_type = "application/json";
  std::string token = {};
  std::string ca_file = {};  // empty: plain HTTP
  long timeout_ms = 20000;
};

// `code` is 0 if there was no answer; `body` is then the reason.
struct ApiReply {
  long code = 0;
  std::string body = {};
  bool ok() const { return code >= 200 && code < 300; }
};

// Thread-safe.
ApiReply Perform(const ApiCall& call);

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_API_CALL_H_
