// Signed requests to a Ceph object gateway: S3 and its admin API.
#ifndef CBT_PROGRAMS_COSI_DRIVER_RGW_CLIENT_H_
#define CBT_PROGRAMS_COSI_DRIVER_RGW_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/s3.h"
#include "bucket/s3_http.h"
#include "bucket/sign.h"

namespace cbt::cosi {

struct RgwPlace {
  std::string endpoint = {};  // "https://HOST[:PORT]"
  std::string region = "us-east-1";
  std::string ca_file = {};  // PEM; empty: the system's
  bucket::S3Credentials credentials = {};
};

struct RgwOptions {
  size_t connections = 16;
  // Attempts where nothing has come, or 5xx; the wait doubles from `first_wait` on.
  int attempts = 4;
  std::chrono::milliseconds first_wait{100};
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds stall_timeout{20'000};
  // A gateway empties a bucket before it answers.
  std::chrono::milliseconds purge_timeout{30 * 60'000};
  // Ends every call with CANCELLED.
  std::stop_token stop = {};
};

struct RgwRequest {
  const char* method = "";
  std::string path = "/";  // not encoded: "/bucket" or "/admin/user"
  std::vector<bucket::NameAndValue> query = {};
  std::string body = {};
  bool purges = false;
};

// Wiped: it may hold keys.
struct RgwAnswer {
  int code = 0;
  std::string body = {};
  std::string error = {};  // the code of an error: "NoSuchBucket"

  RgwAnswer() = default;
  ~RgwAnswer();
  RgwAnswer(RgwAnswer&&) = default;
  RgwAnswer& operator=(RgwAnswer&&) = default;
  RgwAnswer(const RgwAnswer&) = delete;
  RgwAnswer& operator=(const RgwAnswer&) = delete;

  bool ok() const noexcept { return code >= 200 && code < 300; }
  bool Is(std::string_view error_code) const noexcept { return error == error_code; }
  // The error as a status: UNAUTHENTICATED, PERMISSION_DENIED, UNAVAILABLE, INTERNAL. `what`: was
  // to be done.
  absl::Status ToStatus(std::string_view what) const;
};

// Thread-safe.
class RgwClient {
 public:
  // Sends nothing. Errors: INVALID_ARGUMENT for an endpoint or keys that can't be;
  // FAILED_PRECONDITION without libcurl.
  static absl::StatusOr<std::unique_ptr<RgwClient>> Create(RgwPlace place, RgwOptions options = {});

  // What the gateway answers, also if that is an error. Errors: UNAVAILABLE, CANCELLED;
  // RESOURCE_EXHAUSTED for an answer of more than 4 MiB.
  absl::StatusOr<RgwAnswer> Send(const RgwRequest& request);

  // The access key of the driver itself.
  const std::string& access_key() const noexcept { return place_.credentials.access_key; }

 private:
  RgwClient(RgwPlace place, RgwOptions options, std::string host);
  void Fill(const RgwRequest& request, bucket::HttpRequest& http) const;

  const RgwPlace place_;
  const RgwOptions options_;
  const std::string host_;  // with its port
  bucket::ConnectionGate gate_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_RGW_CLIENT_H_
