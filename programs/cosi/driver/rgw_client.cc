#include "programs/cosi/driver/rgw_client.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/curl/libcurl.h"
#include "base/stop_wait.h"
#include "base/text.h"
#include "base/wipe.h"
#include "programs/cosi/driver/rgw_answers.h"

namespace cbt::cosi {
namespace {

constexpr uint64_t kMaxAnswerBytes = 4 << 20;
constexpr std::chrono::milliseconds kLongestWait{2000};

bool IsVisible(std::string_view text, std::string_view except) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return c > ' ' && c < 0x7f && except.find(c) == std::string_view::npos;
  });
}

// The host with its port; empty for what is no endpoint.
std::string EndpointHost(std::string_view endpoint) {
  const bool tls = endpoint.starts_with("https://");
  if (!tls && !endpoint.starts_with("http://")) return {};
  endpoint.remove_prefix(tls ? 8 : 7);
  if (endpoint.ends_with('/')) endpoint.remove_suffix(1);
  const std::string_view usual = tls ? ":443" : ":80";
  if (endpoint.ends_with(usual)) endpoint.remove_suffix(usual.size());
  return IsVisible(endpoint, "/?#@%\\\"<>{}|^`") ? std::string(endpoint) : std::string();
}

}  // namespace

RgwAnswer::~RgwAnswer() { WipeWhole(body); }

absl::Status RgwAnswer::ToStatus(std::string_view what) const {
  const std::string text = absl::StrCat(AbslView(what), ": the object gateway answers ", code,
                                        error.empty() ? "" : ", ", error);
  if (Is("RequestTimeTooSkewed")) {
    return absl::UnauthenticatedError(absl::StrCat(text, "; set this machine's clock"));
  }
  if (Is("SignatureDoesNotMatch") || Is("InvalidAccessKeyId") || Is("InvalidAccessKey") ||
      code == 401) {
    return absl::UnauthenticatedError(absl::StrCat(text, "; check the driver's keys"));
  }
  if (code == 403) {
    return absl::PermissionDeniedError(absl::StrCat(
        text,
        "; the driver's user needs the capabilities users=*;buckets=* and must own the "
        "bucket"));
  }
  if (code >= 500 || code == 429 || code == 408) return absl::UnavailableError(text);
  return absl::InternalError(text);
}

absl::StatusOr<std::unique_ptr<RgwClient>> RgwClient::Create(RgwPlace place, RgwOptions options) {
  std::string host = EndpointHost(place.endpoint);
  if (host.empty()) {
    return absl::InvalidArgumentError(
        "an endpoint is https://HOST or https://HOST:PORT (or http://)");
  }
  if (!IsVisible(place.credentials.access_key, ",/") ||
      !IsVisible(place.credentials.secret_key.Reveal(), "")) {
    return absl::InvalidArgumentError(
        "the driver needs an access key and a secret key without spaces or control characters");
  }
  if (!IsVisible(place.region, "/,")) {
    return absl::InvalidArgumentError("a region is a word, us-east-1 for example");
  }
  if (absl::Status loaded = LoadLibCurl(); !loaded.ok()) return loaded;
  return std::unique_ptr<RgwClient>(
      new RgwClient(std::move(place), std::move(options), std::move(host)));
}

RgwClient::RgwClient(RgwPlace place, RgwOptions options, std::string host)
    : place_(std::move(place)),
      options_(std::move(options)),
      host_(std::move(host)),
      gate_(std::max<size_t>(1, options_.connections)) {}

void RgwClient::Fill(const RgwRequest& request, bucket::HttpRequest& http) const {
  bucket::SignedRequest to_sign{
      .method = request.method, .path = request.path, .query = request.query};
  to_sign.payload_sha256 = bucket::Sha256Hex(request.body);
  const bucket::SigningScope scope{.region = place_.region, .time = std::time(nullptr)};
  to_sign.headers = {{"host", host_},
                     {"x-amz-content-sha256", to_sign.payload_sha256},
                     {"x-amz-date", bucket::AmzDate(scope.time)}};
  const auto& credentials = place_.credentials;
  if (!credentials.session_token.empty()) {
    to_sign.headers.emplace_back("x-amz-security-token", credentials.session_token.Reveal());
  }
  http.method = request.method;
  http.url = absl::StrCat(place_.endpoint.starts_with("https://") ? "https://" : "http://", host_,
                          bucket::UriEncode(request.path, true));
  if (!request.query.empty()) {
    absl::StrAppend(&http.url, "?", bucket::CanonicalQuery(request.query));
  }
  for (auto& [name, value] : to_sign.headers) {
    http.headers.push_back(absl::StrCat(name, ": ", value));
  }
  http.headers.push_back(absl::StrCat(
      "authorization: ",
      bucket::Authorization(to_sign, scope, credentials.access_key, credentials.secret_key)));
  if (!credentials.session_token.empty()) WipeWhole(to_sign.headers.back().second);
  if (http.method == "POST") http.headers.emplace_back("content-length: 0");
  http.body = {reinterpret_cast<const uint8_t*>(request.body.data()), request.body.size()};
  http.max_body = kMaxAnswerBytes;
}

absl::StatusOr<RgwAnswer> RgwClient::Send(const RgwRequest& request) {
  const bucket::HttpSettings settings{
      .ca_file = place_.ca_file,
      .connect_timeout = options_.connect_timeout,
      .stall_timeout = request.purges ? options_.purge_timeout : options_.stall_timeout,
      .stop = options_.stop};
  auto wait = options_.first_wait;
  for (int attempt = 1;; ++attempt) {
    bucket::HttpConnection::Result result;
    {
      bucket::ConnectionGate::Place place(gate_);
      if (!gate_.Enter(place, options_.stop)) return absl::CancelledError("the driver ends");
      bucket::HttpRequest http;
      Fill(request, http);
      result = place.connection().Perform(http, settings);
    }
    RgwAnswer answer;
    answer.code = result.answer.code;
    answer.body.assign(result.answer.body.begin(), result.answer.body.end());
    std::fill(result.answer.body.begin(), result.answer.body.end(), uint8_t{0});
    const bool failed =
        !result.status.ok() || (answer.code >= 500 && answer.code != 501) || answer.code == 429;
    const bool may_pass = result.status.ok() || result.again;
    if (!failed || !may_pass || attempt >= options_.attempts) {
      if (!result.status.ok()) {
        return absl::Status(
            result.status.code(),
            absl::StrCat("the object gateway at ", place_.endpoint, ": ", result.status.message()));
      }
      if (!answer.ok()) answer.error = ParseRgwErrorCode(answer.body);
      return answer;
    }
    if (!WaitUnlessStopped(options_.stop, wait)) return absl::CancelledError("the driver ends");
    wait = std::min(2 * wait, kLongestWait);
  }
}

}  // namespace cbt::cosi
