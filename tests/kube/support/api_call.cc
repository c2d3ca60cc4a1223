#include "tests/kube/support/api_call.h"

#include <curl/curl.h>

#include <memory>
#include <mutex>

namespace cbt::test {
namespace {

size_t Append(char* data, size_t size, size_t count, void* body) {
  static_cast<std::string*>(body)->append(data, size * count);
  return size * count;
}

}  // namespace

ApiReply Perform(const ApiCall& call) {
  static std::once_flag initialised;
  std::call_once(initialised, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  ApiReply reply;
  if (curl == nullptr) {
    reply.body = "no memory";
    return reply;
  }
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr,
                                                                      &curl_slist_free_all);
  const auto add_header = [&](const std::string& header) {
    curl_slist* const longer = curl_slist_append(headers.get(), header.c_str());
    if (longer == nullptr) return;
    static_cast<void>(headers.release());
    headers.reset(longer);
  };
  if (!call.token.empty()) add_header("Authorization: Bearer " + call.token);
  if (!call.body.empty()) add_header("Content-Type: " + call.content_type);
  CURL* const c = curl.get();
  curl_easy_setopt(c, CURLOPT_URL, call.url.c_str());
  curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, call.method.c_str());
  curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, call.timeout_ms);
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply.body);
  if (!call.ca_file.empty()) curl_easy_setopt(c, CURLOPT_CAINFO, call.ca_file.c_str());
  if (!call.body.empty()) {
    curl_easy_setopt(c, CURLOPT_POSTFIELDS, call.body.data());
    curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
  }
  const CURLcode result = curl_easy_perform(c);
  if (result != CURLE_OK) {
    reply.body = curl_easy_strerror(result);
    return reply;
  }
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &reply.code);
  return reply;
}

}  // namespace cbt::test
