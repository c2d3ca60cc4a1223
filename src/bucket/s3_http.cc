#include "bucket/s3_http.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/wipe.h"

namespace cbt::bucket {
namespace {

constexpr size_t kMaxHeaderBytes = 64 * 1024;
// Of an answer that is an error; a longer one is cut.
constexpr size_t kMaxErrorBytes = 64 * 1024;

// Headers as libcurl takes them. They may hold a session token.
class HeaderList {
 public:
  ~HeaderList() {
    for (curl_slist* header = first_; header != nullptr; header = header->next) {
      std::memset(header->data, 0, std::strlen(header->data));
      asm volatile("" : : "r"(header->data) : "memory");
    }
    Curl().slist_free_all(first_);
  }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;

  void Add(const std::string& header) {
    curl_slist* const longer = Curl().slist_append(first_, header.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    first_ = longer;
  }
  curl_slist* first() const noexcept { return first_; }

 private:
  curl_slist* first_ = nullptr;
};

// One request under way. Callbacks are C's: nothing may be thrown through them.
struct Exchange {
  const HttpRequest& request;
  HttpAnswer answer = {};
  size_t sent = 0;
  size_t header_bytes = 0;
  bool too_long = false;
  bool no_memory = false;
  std::chrono::steady_clock::time_point active = std::chrono::steady_clock::now();
};

size_t TakeHeader(const char* bytes, size_t size, size_t count, void* self) noexcept {
  auto& exchange = *static_cast<Exchange*>(self);
  exchange.active = std::chrono::steady_clock::now();
  std::string_view line(bytes, size * count);
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kMaxHeaderBytes) return 0;
  try {
    if (line.starts_with("HTTP/")) {
      exchange.answer = {};  // another head, after 100 for example
      return size * count;
    }
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) {
      line.remove_suffix(1);
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size * count;
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    line.remove_prefix(colon + 1);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    exchange.answer.headers[std::move(name)] = std::string(line);
  } catch (const std::exception&) {
    exchange.no_memory = true;
    return 0;
  }
  return size * count;
}

size_t TakeBody(const char* bytes, size_t size, size_t count, void* self) noexcept;

size_t GiveBody(char* bytes, size_t size, size_t count, void* self) noexcept {
  auto& exchange = *static_cast<Exchange*>(self);
  exchange.active = std::chrono::steady_clock::now();
  const size_t give = std::min(size * count, exchange.request.body.size() - exchange.sent);
  if (give != 0) std::memcpy(bytes, exchange.request.body.data() + exchange.sent, give);
  exchange.sent += give;
  return give;
}

int RewindBody(void* self, curl_off_t offset, int origin) noexcept {
  auto& exchange = *static_cast<Exchange*>(self);
  if (origin != SEEK_SET || offset < 0 ||
      static_cast<uint64_t>(offset) > exchange.request.body.size()) {
    return CURL_SEEKFUNC_FAIL;
  }
  exchange.sent = static_cast<size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

// The callback needs the code of the answer, which the handle has.
struct BodySink {
  Exchange& exchange;
  CURL* easy;
};

size_t TakeBody(const char* bytes, size_t size, size_t count, void* self) noexcept {
  auto& [exchange, easy] = *static_cast<BodySink*>(self);
  exchange.active = std::chrono::steady_clock::now();
  long code = 0;
  Curl().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
  std::vector<uint8_t>& body = exchange.answer.body;
  size_t take = size * count;
  if (code >= 300) {
    take = std::min(take, kMaxErrorBytes - std::min(kMaxErrorBytes, body.size()));
  } else if (take > exchange.request.max_body - body.size()) {
    exchange.too_long = true;
    return 0;
  }
  try {
    body.insert(body.end(), bytes, bytes + take);
  } catch (const std::exception&) {
    exchange.no_memory = true;
    return 0;
  }
  return size * count;
}

}  // namespace

HttpRequest::~HttpRequest() {
  for (std::string& header : headers) WipeWhole(header);
}

HttpConnection::HttpConnection() : multi_(Curl().multi_init()), easy_(Curl().easy_init()) {
  if (multi_ != nullptr && easy_ != nullptr) return;
  if (easy_ != nullptr) Curl().easy_cleanup(easy_);
  if (multi_ != nullptr) Curl().multi_cleanup(multi_);
  throw std::bad_alloc();
}

HttpConnection::~HttpConnection() {
  Curl().easy_cleanup(easy_);
  Curl().multi_cleanup(multi_);
}

HttpConnection::Result HttpConnection::Perform(const HttpRequest& request,
                                               const HttpSettings& settings) {
  Result result;
  Curl().easy_reset(easy_);
  Exchange exchange{.request = request};
  BodySink sink{exchange, easy_};
  HeaderList headers;
  for (const std::string& header : request.headers) headers.Add(header);
  headers.Add("Expect:");        // no waiting for the server's consent
  headers.Add("Content-Type:");  // curl's guess is not signed
  char error_text[CURL_ERROR_SIZE] = {};
  CURLcode code = CURLE_OK;
  const auto set = [&](CURLoption option, auto value) {
    if (code == CURLE_OK) code = Curl().easy_setopt(easy_, option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_ERRORBUFFER, error_text);
  set(CURLOPT_QUICK_EXIT, 1L);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings.connect_timeout.count()));
  set(CURLOPT_USERAGENT, "libcbt");
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!settings.ca_file.empty()) set(CURLOPT_CAINFO, settings.ca_file.c_str());
  if (!settings.ca_text.empty()) {
    curl_blob ca = {.data = const_cast<char*>(settings.ca_text.data()),  // NOLINT: curl's interface
                    .len = settings.ca_text.size(),
                    .flags = CURL_BLOB_COPY};
    set(CURLOPT_CAINFO_BLOB, &ca);
  }
  if (!settings.ca_file.empty() || !settings.ca_text.empty()) {
    set(CURLOPT_CAPATH, static_cast<char*>(nullptr));  // nothing but these
  }
  set(CURLOPT_HTTPHEADER, headers.first());
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    set(CURLOPT_UPLOAD, 1L);
    if (request.method == "POST") set(CURLOPT_CUSTOMREQUEST, "POST");
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_READFUNCTION, GiveBody);
    set(CURLOPT_READDATA, &exchange);
    set(CURLOPT_SEEKFUNCTION, RewindBody);
    set(CURLOPT_SEEKDATA, &exchange);
  } else if (request.method != "GET") {
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  set(CURLOPT_HEADERFUNCTION, TakeHeader);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, TakeBody);
  set(CURLOPT_WRITEDATA, &sink);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK) {
    result.status = absl::UnimplementedError(
        absl::StrCat("libcurl lacks what S3 needs: ", Curl().easy_strerror(code)));
    return result;
  }

  if (Curl().multi_add_handle(multi_, easy_) != CURLM_OK) throw std::bad_alloc();
  struct Remove {
    CURLM* multi;
    CURL* easy;
    ~Remove() { Curl().multi_remove_handle(multi, easy); }
  };
  {
    const Remove remove{multi_, easy_};
    // A stop wakes the thread from its wait.
    const std::stop_callback wake(settings.stop, [this] { Curl().multi_wakeup(multi_); });
    for (int running = 1; running != 0;) {
      if (Curl().multi_perform(multi_, &running) != CURLM_OK) throw std::bad_alloc();
      if (running == 0) break;
      if (settings.stop.stop_requested()) {
        result.status = absl::CancelledError("cancelled");
        return result;
      }
      const auto quiet = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - exchange.active);
      if (quiet >= settings.stall_timeout) {
        result.status = absl::UnavailableError(
            absl::StrCat("nothing has come from the server for ", quiet.count(), " ms"));
        result.again = true;
        return result;
      }
      constexpr std::chrono::milliseconds kLongestPoll{1000};
      const auto wait = std::min(kLongestPoll, settings.stall_timeout - quiet);
      Curl().multi_poll(multi_, nullptr, 0, static_cast<int>(wait.count()) + 1, nullptr);
    }
    int left = 0;
    while (CURLMsg* const message = Curl().multi_info_read(multi_, &left)) {
      if (message->msg == CURLMSG_DONE) code = message->data.result;
    }
  }
  if (exchange.no_memory || code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (exchange.too_long) {
    result.status = absl::ResourceExhaustedError(
        absl::StrCat("the answer is longer than ", request.max_body, " bytes"));
    return result;
  }
  if (code != CURLE_OK) {
    // curl's texts name hosts, ports and certificates, and no header.
    result.status =
        absl::UnavailableError(error_text[0] != '\0' ? error_text : Curl().easy_strerror(code));
    switch (code) {
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_CERTPROBLEM:
      case CURLE_SSL_CIPHER:
      case CURLE_SSL_ISSUER_ERROR:
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_URL_MALFORMAT:
        break;
      default:
        result.again = true;
    }
    return result;
  }
  long http_code = 0;
  Curl().easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &http_code);
  exchange.answer.code = static_cast<int>(http_code);
  // An answer without a length ends where the connection does, which may be too early.
  const bool framed = exchange.answer.headers.contains("content-length") ||
                      exchange.answer.headers.contains("transfer-encoding") || http_code == 204;
  if (!framed && !exchange.answer.body.empty()) {
    result.status = absl::UnavailableError("the answer does not say where it ends");
    result.again = true;
    return result;
  }
  result.answer = std::move(exchange.answer);
  return result;
}

ConnectionGate::Place::~Place() {
  if (connection_ == nullptr) return;
  const std::lock_guard lock(gate_.mutex_);
  --gate_.running_;
  // There is room: it was reserved when the connection was made.
  if (gate_.idle_.size() < gate_.idle_.capacity()) gate_.idle_.push_back(std::move(connection_));
  gate_.left_.notify_all();
}

bool ConnectionGate::Enter(Place& place, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!left_.wait(lock, stop, [this] { return running_ < limit_; })) return false;
  idle_.reserve(most_);
  place.epoch_ = epoch_;
  if (idle_.empty()) {
    place.connection_ = std::make_unique<HttpConnection>();
  } else {
    place.connection_ = std::move(idle_.back());
    idle_.pop_back();
  }
  ++running_;
  return true;
}

void ConnectionGate::SlowDown(const Place& place) {
  const std::lock_guard lock(mutex_);
  good_ = 0;
  if (place.epoch_ != epoch_) return;
  ++epoch_;
  limit_ = std::max<size_t>(1, limit_ / 2);
}

void ConnectionGate::GoOn() {
  const std::lock_guard lock(mutex_);
  if (limit_ == most_ || ++good_ < 8 * limit_) return;
  good_ = 0;
  ++limit_;
  left_.notify_one();
}

size_t ConnectionGate::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

}  // namespace cbt::bucket
