// The operations of a bucket in S3.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "bucket/s3.h"
#include "bucket/s3_client.h"
#include "bucket/s3_multipart.h"
#include "bucket/s3_xml.h"

namespace cbt::bucket {
namespace {

constexpr uint64_t kMaxListBytes = 16 << 20;
constexpr size_t kMaxPages = 10'000'000;

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

class S3Bucket final : public Bucket {
 public:
  S3Bucket(S3Place place, S3Options options, std::string host)
      : client_(std::move(place), std::move(options), std::move(host)),
        options_(client_.options()) {}

  const std::string& name() const override { return client_.name(); }

  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (bytes.size() > kMaxPartBytes) {
      return PutParts(key, bytes.size(), [bytes](uint64_t offset, std::span<uint8_t> out) {
        std::memcpy(out.data(), bytes.data() + offset, out.size());
        return absl::OkStatus();
      });
    }
    const std::vector<uint8_t> md5 = Md5(bytes);
    S3Client::Call call{
        .verb = "put", .method = "PUT", .key = key, .body = bytes, .max_body = kErrorRoom};
    if (!md5.empty()) call.signed_headers.emplace_back("content-md5", Base64(md5));
    return client_
        .Send(call,
              [&](const HttpAnswer& answer) {
                // S3 answers 200 before it knows that all is well, in some calls.
                if (LooksLikeError(answer)) return client_.FromError(call, answer);
                if (absl::Status tagged = CheckETag(answer); !tagged.ok()) return Again(tagged);
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

  absl::Status PutParts(const std::string& key, uint64_t size, const PartReader& read) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (size > options_.part_bytes) return PutMultipart(client_, key, size, read);
    std::vector<uint8_t> bytes(static_cast<size_t>(size));
    if (absl::Status got = read(0, bytes); !got.ok()) return got;
    return Put(key, bytes);
  }

  absl::StatusOr<std::vector<uint8_t>> GetRange(const std::string& key, uint64_t offset,
                                                uint64_t length) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (length == 0 || offset + length < offset) {
      return absl::OutOfRangeError(absl::StrCat("get ", key, ": an empty range"));
    }
    const uint64_t last = offset + length - 1;
    S3Client::Call call{
        .verb = "get", .method = "GET", .key = key, .max_body = std::max(length, kErrorRoom)};
    call.signed_headers.emplace_back("range", absl::StrCat("bytes=", offset, "-", last));
    absl::StatusOr<HttpAnswer> answer = client_.Send(call, [&](const HttpAnswer& got) {
      if (got.code != 206) {
        if (LooksLikeError(got)) return client_.FromError(call, got);
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
    S3Client::Call call{
        .verb = "get", .method = "GET", .key = key, .max_body = std::max(max_bytes, kErrorRoom)};
    absl::StatusOr<HttpAnswer> answer = client_.Send(call, [&](const HttpAnswer& got) {
      const std::optional<std::string> tag = Md5OfETag(got);
      // An object of ours that looks like an error has its ETag.
      if (got.Header("etag").empty() && LooksLikeError(got)) return client_.FromError(call, got);
      if (absl::Status tagged = CheckETag(got); !tagged.ok()) return Again(tagged);
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
    const S3Client::Call call{.verb = "look at", .method = "HEAD", .key = key};
    const absl::StatusOr<HttpAnswer> answer = client_.Send(call, [&](const HttpAnswer& got) {
      if (absl::Status tagged = CheckETag(got); !tagged.ok()) return Again(tagged);
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
      S3Client::Call call{.verb = "list", .method = "GET", .max_body = kMaxListBytes};
      call.query = {{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", prefix}};
      if (!token.empty()) call.query.emplace_back("continuation-token", token);
      ListPage page;
      const absl::StatusOr<HttpAnswer> answer = client_.Send(call, [&](const HttpAnswer& got) {
        if (LooksLikeError(got)) return client_.FromError(call, got);
        absl::StatusOr<ListPage> parsed = ParseListPage(BodyText(got));
        if (!parsed.ok()) return Again(parsed.status());
        page = *std::move(parsed);
        return Final(absl::OkStatus());
      });
      if (!answer.ok()) return answer.status();
      for (const ObjectInfo& object : page.objects) {
        if (!object.key.starts_with(prefix)) {
          return absl::UnavailableError(
              client_.Text(call, "the list has keys that do not begin with the prefix"));
        }
        if (absl::Status used = use(object); !used.ok()) return used;
      }
      if (!page.truncated) return absl::OkStatus();
      if (page.next_token == token) {
        return absl::UnavailableError(client_.Text(call, "the list goes on where it was"));
      }
      token = std::move(page.next_token);
    }
    return absl::ResourceExhaustedError(absl::StrCat("list ", name(), ": it does not end"));
  }

  absl::Status Delete(const std::string& key) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    const S3Client::Call call{
        .verb = "delete", .method = "DELETE", .key = key, .max_body = kErrorRoom};
    const absl::Status deleted = client_
                                     .Send(call,
                                           [&](const HttpAnswer& answer) {
                                             if (LooksLikeError(answer))
                                               return client_.FromError(call, answer);
                                             // S3 sends none: a page of something else.
                                             if (!answer.body.empty()) {
                                               return Again(absl::UnavailableError(
                                                   "the answer is not that of S3; check that the "
                                                   "endpoint speaks it"));
                                             }
                                             return Final(absl::OkStatus());
                                           })
                                     .status();
    // Of the first attempt, whose answer was lost; or it was not there before.
    return absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
  }

 private:
  static absl::Status TooShort(uint64_t offset, uint64_t length, uint64_t size) {
    return absl::OutOfRangeError(
        absl::StrCat("has ", size, " bytes, but ", length, " at ", offset, " are needed"));
  }

  S3Client client_;
  const S3Options& options_;
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
    // What stands before an @ may be a password.
    return absl::InvalidArgumentError(
        absl::StrCat("an endpoint is https://HOST or https://HOST:PORT (or http://), ",
                     endpoint.find('@') == std::string::npos ? "not " + endpoint
                                                             : "without a user and a password"));
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
  S3CredentialSource::Current watched;
  if (place.watched != nullptr) {
    watched = place.watched->Get();
    if (watched.credentials == nullptr) return watched.trouble;
  }
  const S3Credentials& credentials =
      watched.credentials != nullptr ? *watched.credentials : place.credentials;
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
      options.stall_timeout.count() < 1 || options.part_bytes < 1 ||
      options.part_bytes > kMaxPartBytes) {
    return absl::InvalidArgumentError("an option of S3 is out of range");
  }
  if (absl::Status loaded = LoadLibCurl(); !loaded.ok()) return loaded;
  if (virtual_host) *host = absl::StrCat(place.bucket, ".", *host);
  return std::make_unique<S3Bucket>(std::move(place), std::move(options), *std::move(host));
}

}  // namespace cbt::bucket
