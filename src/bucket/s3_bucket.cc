#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"
#include "bucket/s3.h"
#include "bucket/s3_http.h"
#include "bucket/s3_xml.h"
#include "bucket/sign.h"

namespace cbt::bucket {
namespace {

constexpr uint64_t kMaxPutBytes = uint64_t{5} << 30;  // S3's, of one request
// Room for an error, even where a few bytes are expected.
constexpr uint64_t kErrorRoom = 64 * 1024;
constexpr uint64_t kMaxListBytes = 16 << 20;
constexpr size_t kMaxPages = 10'000'000;

// Empty where this system has no MD5 (FIPS).
std::vector<uint8_t> Md5(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> digest(16);
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_md5(), nullptr) != 1) {
    ERR_clear_error();
    digest.clear();
  }
  return digest;
}

std::string HexText(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
  return text;
}

std::string Base64(std::span<const uint8_t> bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) return {};
  return value;
}

// "bytes 5-9/10".
struct ContentRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size = 0;
};
std::optional<ContentRange> ContentRangeOf(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-');
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == std::string_view::npos ||
      slash == std::string_view::npos || dash > slash) {
    return {};
  }
  const auto first = NumberOf(text.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = NumberOf(text.substr(dash + 1, slash - dash - 1));
  const auto size = NumberOf(text.substr(slash + 1));
  if (!first || !last || !size) return {};
  return ContentRange{*first, *last, *size};
}

// The MD5 sum that the server says the object has, if it says one.
std::optional<std::string> Md5OfETag(const HttpAnswer& answer) {
  const std::string encryption = answer.Header("x-amz-server-side-encryption");
  if (!encryption.empty() && encryption != "AES256") return {};
  if (!answer.Header("x-amz-server-side-encryption-customer-algorithm").empty()) return {};
  std::string tag = answer.Header("etag");
  if (tag.size() == 34 && tag.front() == '"' && tag.back() == '"') tag = tag.substr(1, 32);
  const bool is_md5 =
      tag.size() == 32 && tag.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_md5) return {};
  return tag;
}

bool LooksLikeError(const HttpAnswer& answer) {
  const std::string_view text(reinterpret_cast<const char*>(answer.body.data()),
                              answer.body.size());
  return !text.empty() && !ParseS3Error(text).code.empty();
}

// How a call ended, and whether another attempt may end better.
struct Verdict {
  absl::Status status = {};
  bool again = false;
};

Verdict Again(absl::Status status) { return {std::move(status), true}; }
Verdict Final(absl::Status status) { return {std::move(status), false}; }

class S3Bucket final : public Bucket {
 public:
  S3Bucket(S3Place place, S3Options options, std::string host)
      : place_(std::move(place)),
        options_(std::move(options)),
        host_(std::move(host)),
        name_(absl::StrCat("bucket ", place_.bucket, " at ", place_.endpoint)),
        settings_{.ca_file = place_.ca_file,
                  .ca_text = place_.ca_text,
                  .connect_timeout = options_.connect_timeout,
                  .stall_timeout = options_.stall_timeout,
                  .stop = options_.stop},
        gate_(options_.connections) {}

  const std::string& name() const override { return name_; }

  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (bytes.size() > kMaxPutBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "put ", key, ": has ", bytes.size(), " bytes, S3 takes ", kMaxPutBytes, " in a request"));
    }
    const std::vector<uint8_t> md5 = Md5(bytes);
    Call call{.verb = "put", .method = "PUT", .key = key, .body = bytes, .max_body = kErrorRoom};
    if (!md5.empty()) call.signed_headers.emplace_back("content-md5", Base64(md5));
    return Send(call,
                [&](const HttpAnswer& answer) {
                  // S3 answers 200 before it knows that all is well, in some calls.
                  if (LooksLikeError(answer)) return FromError(call, answer);
                  const std::optional<std::string> tag = Md5OfETag(answer);
                  if (options_.etag_is_md5 && tag && !md5.empty() && *tag != HexText(md5)) {
                    return Again(
                        absl::DataLossError("the server stored other bytes than it was sent (its "
                                            "ETag is not their MD5)"));
                  }
                  return Final(absl::OkStatus());
                })
        .status();
  }

  absl::StatusOr<std::vector<uint8_t>> GetRange(const std::string& key, uint64_t offset,
                                                uint64_t length) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (length == 0 || offset + length < offset) {
      return absl::OutOfRangeError(absl::StrCat("get ", key, ": an empty range"));
    }
    const uint64_t last = offset + length - 1;
    Call call{.verb = "get", .method = "GET", .key = key, .max_body = std::max(length, kErrorRoom)};
    call.signed_headers.emplace_back("range", absl::StrCat("bytes=", offset, "-", last));
    absl::StatusOr<HttpAnswer> answer = Send(call, [&](const HttpAnswer& got) {
      if (got.code != 206) {
        if (LooksLikeError(got)) return FromError(call, got);
        return Final(absl::FailedPreconditionError(
            "the server ignores ranges: it is not fit for a repository"));
      }
      const std::optional<ContentRange> range = ContentRangeOf(got.Header("content-range"));
      if (!range || range->first != offset) {
        return Again(absl::UnavailableError("the answer is of another range than was asked for"));
      }
      if (range->size <= last) return Final(TooShort(offset, length, range->size));
      if (range->last != last || got.body.size() != length) {
        return Again(absl::UnavailableError(
            absl::StrCat("got ", got.body.size(), " of ", length, " bytes")));
      }
      return Final(absl::OkStatus());
    });
    if (!answer.ok()) return answer.status();
    return std::move(answer->body);
  }

  absl::StatusOr<std::vector<uint8_t>> Get(const std::string& key, uint64_t max_bytes) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    Call call{
        .verb = "get", .method = "GET", .key = key, .max_body = std::max(max_bytes, kErrorRoom)};
    absl::StatusOr<HttpAnswer> answer = Send(call, [&](const HttpAnswer& got) {
      const std::optional<std::string> tag = Md5OfETag(got);
      // An object of ours that looks like an error has its ETag.
      if (got.Header("etag").empty() && LooksLikeError(got)) return FromError(call, got);
      const std::optional<uint64_t> length = NumberOf(got.Header("content-length"));
      if (length && *length != got.body.size()) {
        return Again(absl::UnavailableError(
            absl::StrCat("got ", got.body.size(), " of ", *length, " bytes")));
      }
      if (got.body.size() > max_bytes) {
        return Final(absl::ResourceExhaustedError(
            absl::StrCat("the answer is longer than ", max_bytes, " bytes")));
      }
      if (options_.etag_is_md5 && tag) {
        const std::vector<uint8_t> md5 = Md5(got.body);
        if (!md5.empty() && *tag != HexText(md5)) {
          return Again(absl::DataLossError("the bytes don't have the MD5 sum of their ETag"));
        }
      }
      return Final(absl::OkStatus());
    });
    if (!answer.ok()) return answer.status();
    return std::move(answer->body);
  }

  absl::StatusOr<uint64_t> Size(const std::string& key) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    uint64_t size = 0;
    const Call call{.verb = "look at", .method = "HEAD", .key = key};
    const absl::StatusOr<HttpAnswer> answer = Send(call, [&](const HttpAnswer& got) {
      const std::optional<uint64_t> length = NumberOf(got.Header("content-length"));
      if (!length) return Again(absl::UnavailableError("the answer has no size"));
      size = *length;
      return Final(absl::OkStatus());
    });
    if (!answer.ok()) return answer.status();
    return size;
  }

  absl::Status List(const std::string& prefix,
                    const std::function<absl::Status(const ObjectInfo&)>& use) override {
    if (!prefix.empty() && !IsUtf8(prefix)) {
      return absl::InvalidArgumentError("a prefix of keys must be UTF-8");
    }
    std::string token;
    for (size_t pages = 0; pages < kMaxPages; ++pages) {
      Call call{.verb = "list", .method = "GET", .max_body = kMaxListBytes};
      call.query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", prefix}};
      if (!token.empty()) call.query.emplace_back("continuation-token", token);
      ListPage page;
      const absl::StatusOr<HttpAnswer> answer = Send(call, [&](const HttpAnswer& got) {
        if (LooksLikeError(got)) return FromError(call, got);
        absl::StatusOr<ListPage> parsed =
            ParseListPage({reinterpret_cast<const char*>(got.body.data()), got.body.size()});
        if (!parsed.ok()) return Again(parsed.status());
        page = *std::move(parsed);
        return Final(absl::OkStatus());
      });
      if (!answer.ok()) return answer.status();
      for (const ObjectInfo& object : page.objects) {
        if (!object.key.starts_with(prefix)) {
          return absl::UnavailableError(
              Text(call, "the list has keys that do not begin with the prefix"));
        }
        if (absl::Status used = use(object); !used.ok()) return used;
      }
      if (!page.truncated) return absl::OkStatus();
      if (page.next_token == token) {
        return absl::UnavailableError(Text(call, "the list goes on where it was"));
      }
      token = std::move(page.next_token);
    }
    return absl::ResourceExhaustedError(absl::StrCat("list ", name_, ": it does not end"));
  }

  absl::Status Delete(const std::string& key) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    const Call call{.verb = "delete", .method = "DELETE", .key = key, .max_body = kErrorRoom};
    const absl::Status deleted = Send(call, [&](const HttpAnswer& answer) {
                                   if (LooksLikeError(answer)) return FromError(call, answer);
                                   return Final(absl::OkStatus());
                                 }).status();
    // Of the first attempt, whose answer was lost; or it was not there before.
    return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
  }

 private:
  struct Call {
    const char* verb = "";
    const char* method = "";
    std::string key = {};  // empty: the bucket itself
    std::vector<NameAndValue> query = {};
    std::vector<NameAndValue> signed_headers = {};
    std::span<const uint8_t> body = {};
    uint64_t max_body = 0;
  };

  static absl::Status TooShort(uint64_t offset, uint64_t length, uint64_t size) {
    return absl::OutOfRangeError(
        absl::StrCat("has ", size, " bytes, but ", length, " at ", offset, " are needed"));
  }

  std::string Text(const Call& call, std::string_view why) const {
    return absl::StrCat(call.verb, " ", call.key, call.key.empty() ? "" : " in ", name_, ": ",
                        AbslView(why));
  }

  // A text of the server's for a message: one line, and no secret that it may have echoed.
  std::string Quoted(std::string text) const {
    constexpr size_t kMost = 300;
    for (const Secret* secret :
         {&place_.credentials.secret_key, &place_.credentials.session_token}) {
      if (!secret->empty() && text.find(secret->Reveal()) != std::string::npos) return {};
    }
    text.resize(std::min(text.size(), kMost));
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
    }
    return text;
  }

  // What an answer that is no success means.
  Verdict FromError(const Call& call, const HttpAnswer& answer) const {
    const S3Error error =
        ParseS3Error({reinterpret_cast<const char*>(answer.body.data()), answer.body.size()});
    std::string why = absl::StrCat("HTTP ", answer.code);
    if (!error.code.empty()) absl::StrAppend(&why, ", ", Quoted(error.code));
    if (!error.message.empty()) absl::StrAppend(&why, ": ", Quoted(error.message));
    const auto is = [&](std::string_view code) { return error.code == code; };

    if (is("SlowDown") || is("InternalError") || is("ServiceUnavailable") || is("RequestTimeout") ||
        is("OperationAborted") || answer.code >= 500 || answer.code == 429 || answer.code == 408) {
      if (answer.code != 501) return Again(absl::UnavailableError(why));
      return Final(absl::UnimplementedError(why));
    }
    if (is("BadDigest") || is("XAmzContentSHA256Mismatch") || is("IncompleteBody")) {
      return Again(absl::DataLossError(absl::StrCat(why, "; the bytes were damaged on their way")));
    }
    if (is("NoSuchBucket")) {
      return Final(absl::FailedPreconditionError(
          absl::StrCat(why, "; create the bucket, or name another one")));
    }
    const std::string region =
        error.region.empty() ? answer.Header("x-amz-bucket-region") : error.region;
    if (!region.empty() && region != place_.region) {
      return Final(absl::InvalidArgumentError(absl::StrCat(
          why, "; the bucket is in the region ", Quoted(region), ", not ", place_.region)));
    }
    if (is("RequestTimeTooSkewed")) {
      return Final(absl::FailedPreconditionError(absl::StrCat(why, "; set this machine's clock")));
    }
    if (is("ExpiredToken")) {
      return Final(absl::UnauthenticatedError(absl::StrCat(why, "; get new credentials")));
    }
    if (is("SignatureDoesNotMatch") || is("InvalidAccessKeyId") || is("InvalidToken")) {
      return Final(absl::UnauthenticatedError(
          absl::StrCat(why, "; check the access key and the secret key")));
    }
    switch (answer.code) {
      case 301:
      case 307:
        return Final(absl::InvalidArgumentError(
            absl::StrCat(why, "; check the endpoint, the region and the addressing style")));
      case 401:
      case 403:
        return Final(absl::PermissionDeniedError(absl::StrCat(
            why, "; the credentials need a policy that allows this (", call.method, ")")));
      case 404:
        // What something else says must not be taken for an object that is missing.
        if (!is("NoSuchKey") && std::string_view(call.method) != "HEAD") {
          return Final(absl::FailedPreconditionError(
              absl::StrCat(why, "; this is no answer of S3, check the endpoint")));
        }
        return Final(absl::NotFoundError(why));
      case 412:
        return Final(absl::FailedPreconditionError(why));
      case 416:
        return Final(absl::OutOfRangeError(absl::StrCat(why, "; the object is shorter")));
      case 507:
        return Final(absl::ResourceExhaustedError(why));
      default:
        return Final(absl::InvalidArgumentError(why));
    }
  }

  void Fill(const Call& call, HttpRequest& request) const {
    SignedRequest to_sign{.method = call.method, .query = call.query};
    to_sign.path = place_.addressing == Addressing::kPath
                       ? absl::StrCat("/", place_.bucket, call.key.empty() ? "" : "/", call.key)
                       : absl::StrCat("/", call.key);
    to_sign.payload_sha256 = Sha256Hex(call.body);
    const SigningScope scope{.region = place_.region,
                             .time = options_.clock ? options_.clock() : std::time(nullptr)};
    to_sign.headers = call.signed_headers;
    to_sign.headers.emplace_back("host", host_);
    to_sign.headers.emplace_back("x-amz-content-sha256", to_sign.payload_sha256);
    to_sign.headers.emplace_back("x-amz-date", AmzDate(scope.time));
    if (!place_.credentials.session_token.empty()) {
      to_sign.headers.emplace_back("x-amz-security-token",
                                   place_.credentials.session_token.Reveal());
    }
    const bool tls = place_.endpoint.starts_with("https://");
    request.method = call.method;
    request.url = absl::StrCat(tls ? "https://" : "http://", host_, UriEncode(to_sign.path, true));
    if (!call.query.empty()) absl::StrAppend(&request.url, "?", CanonicalQuery(call.query));
    for (auto& [name, value] : to_sign.headers) {
      request.headers.push_back(absl::StrCat(name, ": ", value));
    }
    request.headers.push_back(
        absl::StrCat("authorization: ", Authorization(to_sign, scope, place_.credentials.access_key,
                                                      place_.credentials.secret_key)));
    for (auto& [name, value] : to_sign.headers) {
      if (name == "x-amz-security-token") WipeWhole(value);
    }
    request.body = call.body;
    request.max_body = call.max_body;
  }

  // Waits before the next attempt. False once a stop is requested.
  bool Wait(int attempt, const std::string& retry_after) {
    std::unique_lock lock(wait_mutex_);
    auto most = options_.first_wait;
    for (int i = 1; i < attempt && most < options_.longest_wait; ++i) most *= 2;
    most = std::min(most, options_.longest_wait);
    std::chrono::milliseconds wait(
        std::uniform_int_distribution<int64_t>(0, most.count())(random_));
    if (const std::optional<uint64_t> seconds = NumberOf(retry_after)) {
      constexpr uint64_t kMost = 3600;
      wait = std::max(wait, std::chrono::milliseconds(1000 * std::min(*seconds, kMost)));
    }
    wait = std::min(wait, options_.longest_wait);
    return !stopping_.wait_for(lock, options_.stop, wait, [] { return false; }) &&
           !options_.stop.stop_requested();
  }

  // Sends a request until `judge`, which sees answers of success, takes one.
  template <typename Judge>
  absl::StatusOr<HttpAnswer> Send(const Call& call, Judge judge) {
    for (int attempt = 1;; ++attempt) {
      HttpConnection::Result result;
      Verdict verdict;
      {
        ConnectionGate::Place place(gate_);
        if (!gate_.Enter(place, options_.stop)) {
          return absl::CancelledError(Text(call, "cancelled"));
        }
        HttpRequest request;
        Fill(call, request);
        result = place.connection().Perform(request, settings_);
        if (!result.status.ok()) {
          verdict = {result.status, result.again};
        } else if (result.answer.code >= 200 && result.answer.code < 300) {
          verdict = judge(result.answer);
        } else {
          verdict = FromError(call, result.answer);
        }
        const bool slow_down =
            result.status.ok() &&
            (result.answer.code == 503 || result.answer.code == 429 ||
             (result.answer.code == 200 && !verdict.status.ok() &&
              verdict.status.message().find("SlowDown") != absl::string_view::npos));
        if (slow_down) {
          gate_.SlowDown(place);
        } else if (verdict.status.ok()) {
          gate_.GoOn();
        }
      }
      if (verdict.status.ok()) return std::move(result.answer);
      const bool last = !verdict.again || attempt >= options_.attempts;
      if (last) {
        std::string text = Text(call, std::string(verdict.status.message()));
        if (attempt > 1) absl::StrAppend(&text, ", after ", attempt, " attempts");
        return absl::Status(verdict.status.code(), text);
      }
      if (!Wait(attempt, result.answer.Header("retry-after"))) {
        return absl::CancelledError(Text(call, "cancelled"));
      }
    }
  }

  const S3Place place_;
  const S3Options options_;
  const std::string host_;  // with its port
  const std::string name_;
  const HttpSettings settings_;
  ConnectionGate gate_;
  std::mutex wait_mutex_;
  std::condition_variable_any stopping_;
  std::mt19937_64 random_{std::random_device{}()};
};

bool IsPrintable(std::string_view text, std::string_view except) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return c > ' ' && c < 0x7f && except.find(c) == std::string_view::npos;
  });
}

// The host with its port, as it is in the URL and in the header Host.
absl::StatusOr<std::string> HostOf(const std::string& endpoint) {
  std::string_view rest = endpoint;
  bool tls = false;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
    tls = true;
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    rest = {};
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty() || !IsPrintable(rest, "/?#@%\\\"<>{}|^`")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an endpoint is https://HOST or https://HOST:PORT (or http://), not ", endpoint));
  }
  const std::string_view usual = tls ? ":443" : ":80";
  if (rest.ends_with(usual)) rest.remove_suffix(usual.size());
  return std::string(rest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bucket>> OpenS3Bucket(S3Place place, S3Options options) {
  absl::StatusOr<std::string> host = HostOf(place.endpoint);
  if (!host.ok()) return host.status();
  const bool virtual_host = place.addressing == Addressing::kVirtual;
  if (place.bucket.empty() || place.bucket.size() > 255 || place.bucket == "." ||
      place.bucket == ".." || !IsPrintable(place.bucket, "/?#@%\\\"<>{}|^`") ||
      (virtual_host && place.bucket.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") !=
                           std::string::npos)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a bucket can't be named \"", place.bucket, "\""));
  }
  const S3Credentials& credentials = place.credentials;
  if (credentials.access_key.empty() || credentials.secret_key.empty() ||
      !IsPrintable(credentials.access_key, ",/") ||
      !IsPrintable(credentials.session_token.Reveal(), "")) {
    return absl::InvalidArgumentError(
        "S3 needs an access key and a secret key without spaces or control characters");
  }
  if (place.region.empty() || !IsPrintable(place.region, "/,")) {
    return absl::InvalidArgumentError("S3 needs a region, us-east-1 for example");
  }
  constexpr size_t kMaxConnections = 256;
  if (options.connections < 1 || options.connections > kMaxConnections || options.attempts < 1 ||
      options.first_wait.count() < 0 || options.longest_wait.count() < 0 ||
      options.stall_timeout.count() < 1) {
    return absl::InvalidArgumentError("an option of S3 is out of range");
  }
  if (absl::Status loaded = LoadLibCurl(); !loaded.ok()) return loaded;
  if (virtual_host) *host = absl::StrCat(place.bucket, ".", *host);
  return std::make_unique<S3Bucket>(std::move(place), std::move(options), *std::move(host));
}

}  // namespace cbt::bucket
