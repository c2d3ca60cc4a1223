// Requests of S3's protocol: signed, judged, and repeated where that may end better.
#ifndef CBT_BUCKET_S3_CLIENT_H_
#define CBT_BUCKET_S3_CLIENT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/s3.h"
#include "bucket/s3_http.h"
#include "bucket/sign.h"

namespace cbt::bucket {

// How a call ended, and whether another attempt may end better.
struct Verdict {
  absl::Status status = {};
  bool again = false;
};
inline Verdict Again(absl::Status status) { return {std::move(status), true}; }
inline Verdict Final(absl::Status status) { return {std::move(status), false}; }

// Room for an error, even where a few bytes are expected.
inline constexpr uint64_t kErrorRoom = 64 * 1024;

// A whole decimal number.
std::optional<uint64_t> NumberOf(std::string_view text);

// Empty where this system has no MD5 (FIPS).
std::vector<uint8_t> Md5(std::span<const uint8_t> bytes);
std::string HexText(std::span<const uint8_t> bytes);
std::string Base64(std::span<const uint8_t> bytes);

// The MD5 sum that the server says the object has, if it says one.
std::optional<std::string> Md5OfETag(const HttpAnswer& answer);

std::string_view BodyText(const HttpAnswer& answer);
bool LooksLikeError(const HttpAnswer& answer);

// OK for an answer with the ETag of an object. A proxy or a gateway to the internet may answer 200
// with a page of its own, which has none: nothing was stored then.
absl::Status CheckETag(const HttpAnswer& answer);

// Thread-safe.
class S3Client {
 public:
  struct Call {
    const char* verb = "";
    const char* method = "";
    std::string key = {};  // empty: the bucket itself
    std::vector<NameAndValue> query = {};
    std::vector<NameAndValue> signed_headers = {};
    std::span<const uint8_t> body = {};
    uint64_t max_body = 0;
    // Sent once, also after a stop: for what must not be left behind.
    bool last_word = false;
  };
  // Sees answers of success.
  using Judge = std::function<Verdict(const HttpAnswer&)>;

  // `host`: with its port.
  S3Client(S3Place place, S3Options options, std::string host);

  const std::string& name() const noexcept { return name_; }
  const S3Options& options() const noexcept { return options_; }

  // Sends a request until `judge` takes an answer. `attempts`: 0 means those of the options.
  absl::StatusOr<HttpAnswer> Send(const Call& call, const Judge& judge, int attempts = 0);

  // What an answer that is no success means.
  Verdict FromError(const Call& call, const HttpAnswer& answer) const;

  // `why` with the call, its key and the bucket.
  std::string Text(const Call& call, std::string_view why) const;

 private:
  using Credentials = std::shared_ptr<const S3Credentials>;

  // Those of now. `trouble`: why the newest can't be read.
  Credentials CurrentCredentials(std::string& trouble) const;
  std::string Quoted(std::string text) const;
  void Fill(const Call& call, const S3Credentials& credentials, HttpRequest& request) const;
  bool Wait(int attempt, const std::string& retry_after);
  Verdict Attempt(const Call& call, const Judge& judge, HttpAnswer& answer);

  const S3Place place_;
  const S3Options options_;
  const std::string host_;
  const std::string name_;
  const HttpSettings settings_;
  const Credentials fixed_;
  ConnectionGate gate_;
  std::mutex wait_mutex_;
  std::condition_variable_any stopping_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_S3_CLIENT_H_
