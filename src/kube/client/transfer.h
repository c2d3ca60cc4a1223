// One attempt at a request, with libcurl.
#ifndef CBT_KUBE_CLIENT_TRANSFER_H_
#define CBT_KUBE_CLIENT_TRANSFER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/curl/libcurl.h"
#include "kube/client/answer.h"
#include "kube/client/credentials.h"
#include "kube/client/endpoint.h"
#include "kube/client/line_splitter.h"

namespace cbt::kube {

// What is the same for all requests of a client.
struct TransferSettings {
  Endpoint endpoint = {};
  std::string proxy_url = {};
  bool insecure_skip_tls_verify = false;
  std::string user_agent = {};
  std::chrono::milliseconds connect_timeout{0};
  // Headers for impersonation.
  std::vector<std::string> headers = {};
};

// A request as it is sent, as often as need be.
struct WireRequest {
  std::string method = {};
  std::string target = {};  // path and query
  std::string what = {};    // "GET /version", for messages
  std::string content_type = {};
  std::string accept = {};
  Secret body = {};
  bool has_body = false;
  bool repeatable = false;
};

// The receiver of a streamed response.
struct StreamSink {
  std::function<void()> on_open = {};
  std::function<absl::Status(std::string_view line)> on_line = {};
  size_t max_line = 0;
};

struct FreeEasy {
  void operator()(CURL* easy) const noexcept { Curl().easy_cleanup(easy); }
};

// An attempt. Its functions and its callbacks run in the client's thread.
class Transfer {
 public:
  // How an attempt ended.
  struct Result {
    // OK: `answer` has come as a whole; for a stream with a code below 300, all its lines were
    // used.
    absl::Status status = {};
    Answer answer = {};
    // For an error: the server may have got the request.
    bool maybe_sent = false;
    // For an error: another attempt would end in the same way.
    bool lasting = false;
  };

  // `request`, `settings`, `identity` and `sink` (null: no stream) must live as long as the
  // transfer.
  Transfer(const TransferSettings& settings, const WireRequest& request,
           std::shared_ptr<const Identity> identity, StreamSink* sink, size_t max_body);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Makes the handle ready. Errors: RESOURCE_EXHAUSTED; UNIMPLEMENTED if libcurl lacks something.
  absl::Status Prepare();

  CURL* easy() const noexcept { return easy_.get(); }
  const Identity& identity() const noexcept { return *identity_; }

  // After libcurl has ended the transfer with `code`.
  Result Finish(CURLcode code);

  bool head_complete() const noexcept { return head_complete_; }
  // When bytes of the answer last came.
  std::chrono::steady_clock::time_point last_activity() const noexcept { return last_activity_; }

 private:
  static size_t OnHeader(const char* bytes, size_t size, size_t count, void* self) noexcept;
  static size_t OnBody(const char* bytes, size_t size, size_t count, void* self) noexcept;
  static size_t OnRead(char* bytes, size_t size, size_t count, void* self) noexcept;
  static int OnSeek(void* self, curl_off_t offset, int origin) noexcept;

  bool AddHeader(const std::string& header);
  void TakeHeader(std::string_view line);
  absl::Status TakeBody(std::string_view bytes);
  absl::Status StatusOf(CURLcode code) const;
  void Fail(absl::Status status) noexcept;

  const TransferSettings& settings_;
  const WireRequest& request_;
  const std::shared_ptr<const Identity> identity_;
  StreamSink* const sink_;
  const size_t max_body_;

  std::unique_ptr<CURL, FreeEasy> easy_;
  curl_slist* headers_ = nullptr;
  curl_slist* connect_to_ = nullptr;
  char error_text_[CURL_ERROR_SIZE] = {};

  size_t body_sent_ = 0;
  Answer answer_;
  size_t header_bytes_ = 0;
  bool head_complete_ = false;
  bool framed_ = false;  // the answer says where its body ends
  LineSplitter lines_;
  std::chrono::steady_clock::time_point last_activity_;
  absl::Status failure_;  // of a callback
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_TRANSFER_H_
