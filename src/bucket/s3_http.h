// Requests over HTTP, each in the thread that asks.
#ifndef CBT_BUCKET_S3_HTTP_H_
#define CBT_BUCKET_S3_HTTP_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/curl/libcurl.h"

namespace cbt::bucket {

struct HttpRequest {
  std::string method = {};
  std::string url = {};
  std::vector<std::string> headers = {};  // "Name: value"; wiped by the destructor
  std::span<const uint8_t> body = {};
  uint64_t max_body = 0;  // of an answer that is no error

  HttpRequest() = default;
  HttpRequest(const HttpRequest&) = delete;
  HttpRequest& operator=(const HttpRequest&) = delete;
  ~HttpRequest();
};

struct HttpAnswer {
  int code = 0;
  std::map<std::string, std::string> headers = {};  // by lower-case name; the last of each
  std::vector<uint8_t> body = {};

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

struct HttpSettings {
  std::string ca_file = {};
  std::string ca_text = {};
  std::chrono::milliseconds connect_timeout{0};
  std::chrono::milliseconds stall_timeout{0};
  std::stop_token stop = {};
};

// What libcurl keeps from one request to the next: a connection. One thread at a time.
class HttpConnection {
 public:
  struct Result {
    absl::Status status = {};  // OK: an answer has come as a whole
    bool again = false;        // of an error: another attempt may end better
    HttpAnswer answer = {};
  };

  HttpConnection();
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  Result Perform(const HttpRequest& request, const HttpSettings& settings);

 private:
  CURLM* const multi_;
  CURL* const easy_;
};

// How many requests run at a time. Thread-safe.
class ConnectionGate {
 public:
  explicit ConnectionGate(size_t most) : most_(most), limit_(most) {}

  // A place, held until the destructor.
  class Place {
   public:
    explicit Place(ConnectionGate& gate) : gate_(gate) {}
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    HttpConnection& connection() noexcept { return *connection_; }

   private:
    friend class ConnectionGate;
    ConnectionGate& gate_;
    std::unique_ptr<HttpConnection> connection_;  // null: none is held
    uint64_t epoch_ = 0;
  };

  // Waits until there is room. False once a stop is requested.
  bool Enter(Place& place, const std::stop_token& stop);

  // The server asked for fewer requests: halves the limit, once for all requests that were under
  // way when it did.
  void SlowDown(const Place& place);
  // An answer without such a wish: one request more after some of them.
  void GoOn();

  size_t limit() const;

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable_any left_;
  size_t limit_;
  size_t running_ = 0;
  size_t good_ = 0;  // answers since the limit was last changed
  uint64_t epoch_ = 0;
  std::vector<std::unique_ptr<HttpConnection>> idle_;
};

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_S3_HTTP_H_
