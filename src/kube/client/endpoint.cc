#include "kube/client/endpoint.h"

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/curl/libcurl.h"
#include "base/text.h"

namespace cbt::kube {
namespace {

struct CloseUrl {
  void operator()(CURLU* url) const noexcept { Curl().url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, CloseUrl>;

std::string PartOf(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (Curl().url_get(url, part, &text, flags) != CURLUE_OK) return {};
  std::string copy = text;
  Curl().free(text);
  return copy;
}

absl::Status Wrong(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("server of the configuration: ", AbslView(why)));
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(const Config& config) {
  if (absl::Status status = LoadLibCurl(); !status.ok()) return status;
  const Url url(Curl().url());
  if (url == nullptr) return absl::ResourceExhaustedError("out of memory");
  if (config.server.empty()) return Wrong("is missing");
  if (Curl().url_set(url.get(), CURLUPART_URL, config.server.c_str(), 0) != CURLUE_OK) {
    return Wrong("expected a URL, https://HOST:PORT");
  }
  Endpoint endpoint;
  const std::string scheme = PartOf(url.get(), CURLUPART_SCHEME);
  endpoint.tls = scheme == "https";
  if (!endpoint.tls && scheme != "http") return Wrong("expected an https URL");
  for (const CURLUPart part :
       {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    if (!PartOf(url.get(), part).empty()) {
      return Wrong("has a user, a query or a fragment; expected https://HOST:PORT");
    }
  }
  const std::string host = PartOf(url.get(), CURLUPART_HOST);
  const std::string port = PartOf(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  std::string path = PartOf(url.get(), CURLUPART_PATH);
  while (path.ends_with('/')) path.pop_back();
  std::string name = host;
  if (endpoint.tls && !config.tls_server_name.empty()) {
    name = config.tls_server_name;
    if (name.find_first_of(":/@?#[] \t\r\n") != std::string::npos) {
      return absl::InvalidArgumentError(
          "tls-server-name of the configuration: expected a host name");
    }
    endpoint.connect_to = absl::StrCat(name, ":", port, ":", host, ":", port);
    endpoint.host_header = absl::StrCat("Host: ", host, ":", port);
  }
  endpoint.base_url = absl::StrCat(scheme, "://", name, ":", port, path);
  return endpoint;
}

}  // namespace cbt::kube
