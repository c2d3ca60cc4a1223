#include "kube/client/transfer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube {
namespace {

constexpr size_t kMaxHeaderBytes = 256 * 1024;
// The limit of an error's body; a longer one is cut.
constexpr size_t kMaxErrorBody = 1024 * 1024;

// A connection whose peer is gone is found out within about this time, while something waits for an
// answer on it.
constexpr int kDeadPeerMs = 15'000;
constexpr int kKeepaliveIdleSeconds = 15;
constexpr int kKeepaliveIntervalSeconds = 5;
constexpr int kKeepaliveProbes = 3;

void SetOption(int descriptor, int level, int name, int value) noexcept {
  // What the kernel does not have, it does without.
  (void)setsockopt(descriptor, level, name, &value, sizeof(value));
}

curl_socket_t OpenSocket(void* /*self*/, curlsocktype /*purpose*/,
                         struct curl_sockaddr* address) noexcept {
  const int descriptor =
      socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (descriptor < 0) return CURL_SOCKET_BAD;
  if (address->family == AF_INET || address->family == AF_INET6) {
    SetOption(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
    SetOption(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
    SetOption(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
    SetOption(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
    SetOption(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, kDeadPeerMs);
  }
  return descriptor;
}

std::string_view TrimmedField(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

// curl takes a length that it can't count for none.
bool IsLength(std::string_view text) noexcept {
  constexpr size_t kMaxDigits = 18;
  return !text.empty() && text.size() <= kMaxDigits &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

curl_blob BlobOf(const Secret& secret) noexcept {
  // Copied by curl, which frees the copy with the handle.
  return {.data = const_cast<char*>(secret.Reveal().data()),  // NOLINT: curl's interface
          .len = secret.Reveal().size(),
          .flags = CURL_BLOB_COPY};
}

bool MayHaveBody(const WireRequest& request, int http_code) noexcept {
  return request.method != "HEAD" && http_code != 204 && http_code != 304;
}

}  // namespace

Transfer::Transfer(const TransferSettings& settings, const WireRequest& request,
                   std::shared_ptr<const Identity> identity, StreamSink* sink, size_t max_body)
    : settings_(settings),
      request_(request),
      identity_(std::move(identity)),
      sink_(sink),
      max_body_(max_body),
      lines_(sink == nullptr ? 0 : sink->max_line),
      last_activity_(std::chrono::steady_clock::now()) {}

Transfer::~Transfer() {
  // Headers hold the token.
  for (curl_slist* header = headers_; header != nullptr; header = header->next) {
    std::memset(header->data, 0, std::strlen(header->data));
    asm volatile("" : : "r"(header->data) : "memory");
  }
  easy_.reset();
  Curl().slist_free_all(headers_);
  Curl().slist_free_all(connect_to_);
}

bool Transfer::AddHeader(const std::string& header) {
  curl_slist* const longer = Curl().slist_append(headers_, header.c_str());
  if (longer == nullptr) return false;
  headers_ = longer;
  return true;
}

absl::Status Transfer::Prepare() {
  easy_.reset(Curl().easy_init());
  if (easy_ == nullptr) return absl::ResourceExhaustedError("");
  CURL* const easy = easy_.get();
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = Curl().easy_setopt(easy, option, value);
  };

  set(CURLOPT_URL, absl::StrCat(settings_.endpoint.base_url, request_.target).c_str());
  set(CURLOPT_PROTOCOLS_STR, settings_.endpoint.tls ? "https" : "http");
  set(CURLOPT_NOSIGNAL, 1L);
  // The path is the server's, dots and all.
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_ERRORBUFFER, error_text_);
  // Threads that look up names are left to end by themselves: nothing waits for them.
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings_.connect_timeout.count()));
  set(CURLOPT_OPENSOCKETFUNCTION, OpenSocket);
  set(CURLOPT_USERAGENT, settings_.user_agent.c_str());
  // An empty proxy keeps curl from looking for one in the environment.
  set(CURLOPT_PROXY, settings_.proxy_url.c_str());
  set(CURLOPT_NOPROXY, "");
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));

  // Many requests on one connection; a request waits for a connection that is being made.
  set(CURLOPT_HTTP_VERSION,
      static_cast<long>(settings_.endpoint.tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
  set(CURLOPT_PIPEWAIT, 1L);

  if (settings_.endpoint.tls) {
    set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    set(CURLOPT_SSL_VERIFYPEER, settings_.insecure_skip_tls_verify ? 0L : 1L);
    set(CURLOPT_SSL_VERIFYHOST, settings_.insecure_skip_tls_verify ? 0L : 2L);
    if (!identity_->ca.empty()) {
      curl_blob ca = BlobOf(identity_->ca);
      set(CURLOPT_CAINFO_BLOB, &ca);
      // Nothing but these.
      set(CURLOPT_CAPATH, static_cast<char*>(nullptr));
    }
    if (!identity_->certificate.empty()) {
      curl_blob certificate = BlobOf(identity_->certificate);
      curl_blob key = BlobOf(identity_->key);
      set(CURLOPT_SSLCERTTYPE, "PEM");
      set(CURLOPT_SSLCERT_BLOB, &certificate);
      set(CURLOPT_SSLKEYTYPE, "PEM");
      set(CURLOPT_SSLKEY_BLOB, &key);
    }
    if (!settings_.endpoint.connect_to.empty()) {
      connect_to_ = Curl().slist_append(nullptr, settings_.endpoint.connect_to.c_str());
      if (connect_to_ == nullptr) return absl::ResourceExhaustedError("");
      set(CURLOPT_CONNECT_TO, connect_to_);
    }
  }

  bool headers = AddHeader("Accept: " + request_.accept);
  if (!settings_.endpoint.host_header.empty()) headers &= AddHeader(settings_.endpoint.host_header);
  if (!identity_->authorization.empty()) {
    std::string header(identity_->authorization.Reveal());
    const Wiper wiper(header);
    headers &= AddHeader(header);
  }
  for (const std::string& header : settings_.headers) headers &= AddHeader(header);

  if (request_.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request_.has_body) {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.Reveal().size()));
    set(CURLOPT_READFUNCTION, OnRead);
    set(CURLOPT_READDATA, this);
    set(CURLOPT_SEEKFUNCTION, OnSeek);
    set(CURLOPT_SEEKDATA, this);
    headers &= AddHeader("Content-Type: " + request_.content_type);
    // No waiting for the server's consent.
    headers &= AddHeader("Expect:");
    if (request_.method != "POST") set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  } else if (request_.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  }
  if (!headers) return absl::ResourceExhaustedError("");
  set(CURLOPT_HTTPHEADER, headers_);

  set(CURLOPT_HEADERFUNCTION, OnHeader);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, OnBody);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_PRIVATE, this);
  if (code == CURLE_OUT_OF_MEMORY) return absl::ResourceExhaustedError("");
  if (code != CURLE_OK) {
    return absl::UnimplementedError(
        absl::StrCat("libcurl lacks what this client needs: ", Curl().easy_strerror(code)));
  }
  return absl::OkStatus();
}

void Transfer::Fail(absl::Status status) noexcept {
  if (failure_.ok()) failure_ = std::move(status);
}

// Callbacks are C's: nothing may be thrown through them.
size_t Transfer::OnHeader(const char* bytes, size_t size, size_t count, void* self) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.TakeHeader({bytes, size * count});
  } catch (const std::exception&) {
    transfer.Fail(absl::Status(absl::StatusCode::kResourceExhausted, ""));
  }
  return transfer.failure_.ok() ? size * count : 0;
}

size_t Transfer::OnBody(const char* bytes, size_t size, size_t count, void* self) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  try {
    absl::Status status = transfer.TakeBody({bytes, size * count});
    if (!status.ok()) transfer.Fail(std::move(status));
  } catch (const std::bad_alloc&) {
    transfer.Fail(absl::Status(absl::StatusCode::kResourceExhausted, ""));
  } catch (...) {
    transfer.Fail(absl::Status(absl::StatusCode::kInternal, ""));
  }
  return transfer.failure_.ok() ? size * count : 0;
}

size_t Transfer::OnRead(char* bytes, size_t size, size_t count, void* self) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  const std::string_view rest = transfer.request_.body.Reveal().substr(transfer.body_sent_);
  const size_t length = std::min(rest.size(), size * count);
  if (length != 0) std::memcpy(bytes, rest.data(), length);
  transfer.body_sent_ += length;
  return length;
}

// curl sends a request again by itself when a connection that it kept turns out to be closed. The
// server may have acted on the first one: what must not be done twice can't be rewound.
int Transfer::OnSeek(void* self, curl_off_t offset, int origin) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  if (transfer.body_sent_ != 0 && !transfer.request_.repeatable) return CURL_SEEKFUNC_FAIL;
  transfer.body_sent_ = 0;
  return CURL_SEEKFUNC_OK;
}

void Transfer::TakeHeader(std::string_view line) {
  last_activity_ = std::chrono::steady_clock::now();
  header_bytes_ += line.size();
  if (header_bytes_ > kMaxHeaderBytes) {
    Fail(WrongAnswer(request_.what, "its headers are too long"));
    return;
  }
  if (head_complete_) return;  // trailers, which can't replace the head
  if (line.starts_with("HTTP/")) {
    // The head of an answer; one with a code below 200 comes before it.
    long http_code = 0;
    Curl().easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &http_code);
    answer_ = Answer();
    answer_.http_code = static_cast<int>(http_code);
    framed_ = line.starts_with("HTTP/2");
    return;
  }
  if (TrimmedField(line).empty()) {
    if (answer_.http_code < 200) return;
    head_complete_ = true;
    if (!framed_ && MayHaveBody(request_, answer_.http_code)) {
      // Its end would be that of the connection, which may end early.
      Fail(WrongAnswer(request_.what, "it does not say where it ends"));
      return;
    }
    if (sink_ != nullptr && answer_.http_code < 300 && sink_->on_open) {
      try {
        sink_->on_open();
      } catch (...) {  // NOLINT(bugprone-empty-catch): as promised for callbacks
      }
    }
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = TrimmedField(line.substr(colon + 1));
  const auto is = [&](std::string_view other) {
    return absl::EqualsIgnoreCase(AbslView(name), AbslView(other));
  };
  if (is("content-type")) {
    answer_.content_type = value;
  } else if (is("retry-after")) {
    answer_.retry_after = ParseRetryAfter(value, static_cast<int64_t>(std::time(nullptr)));
  } else if ((is("content-length") && IsLength(value)) ||
             (is("transfer-encoding") && absl::EqualsIgnoreCase(AbslView(value), "chunked"))) {
    framed_ = true;
  }
}

absl::Status Transfer::TakeBody(std::string_view bytes) {
  last_activity_ = std::chrono::steady_clock::now();
  if (answer_.http_code >= 300) {
    // What is made of it is a message.
    if (answer_.body.size() < kMaxErrorBody) {
      answer_.body.Append(bytes.substr(0, kMaxErrorBody - answer_.body.size()));
    }
    return absl::OkStatus();
  }
  if (sink_ != nullptr) return lines_.Add(bytes, sink_->on_line);
  if (bytes.size() > max_body_ - answer_.body.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(request_.what, ": the server's answer is longer than ", max_body_, " bytes"));
  }
  answer_.body.Append(bytes);
  return absl::OkStatus();
}

absl::Status Transfer::StatusOf(CURLcode code) const {
  if (!failure_.ok()) return failure_;
  if (code == CURLE_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(
        absl::StrCat(request_.what, ": out of memory, or a header that is too long"));
  }
  // curl's texts name hosts, ports and certificates, and no header.
  const char* const text = error_text_[0] != '\0' ? error_text_ : Curl().easy_strerror(code);
  return absl::UnavailableError(absl::StrCat(request_.what, ": ", text));
}

Transfer::Result Transfer::Finish(CURLcode code) {
  Result result;
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
      result.lasting = true;
      break;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PROXY:
      break;
    default:
      // A request that has a body must not be sent without it.
      result.maybe_sent = head_complete_ || !request_.has_body || body_sent_ != 0;
  }
  if (code != CURLE_OK || !failure_.ok()) {
    result.status = StatusOf(code);
    result.lasting |= !failure_.ok();
    return result;
  }
  if (!head_complete_) {
    result.status = WrongAnswer(request_.what, "it has no head");
    return result;
  }
  if (sink_ != nullptr && answer_.http_code < 300 && lines_.in_line()) {
    result.status = WrongAnswer(request_.what, "it ends in the middle of a line");
    return result;
  }
  result.answer = std::move(answer_);
  return result;
}

}  // namespace cbt::kube
