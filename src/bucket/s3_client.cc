#include "bucket/s3_client.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"
#include "bucket/s3_xml.h"

namespace cbt::bucket {

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

std::string_view BodyText(const HttpAnswer& answer) {
  const std::string_view text(reinterpret_cast<const char*>(answer.body.data()),
                              answer.body.size());
  // Spaces come first while the work of a request takes long.
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

bool LooksLikeError(const HttpAnswer& answer) {
  return !answer.body.empty() && !ParseS3Error(BodyText(answer)).code.empty();
}

absl::Status CheckETag(const HttpAnswer& answer) {
  if (!answer.Header("etag").empty()) return absl::OkStatus();
  return absl::UnavailableError("the answer has no ETag; check that the endpoint speaks S3");
}

S3Client::S3Client(S3Place place, S3Options options, std::string host)
    : place_(std::move(place)),
      options_(std::move(options)),
      host_(std::move(host)),
      name_(absl::StrCat("bucket ", place_.bucket, " at ", place_.endpoint)),
      settings_{.ca_file = place_.ca_file,
                .ca_text = place_.ca_text,
                .connect_timeout = options_.connect_timeout,
                .stall_timeout = options_.stall_timeout,
                .stop = options_.stop},
      fixed_(std::make_shared<const S3Credentials>(
          S3Credentials{place_.credentials.access_key, place_.credentials.secret_key.Copy(),
                        place_.credentials.session_token.Copy()})),
      gate_(options_.connections) {}

std::string S3Client::Text(const Call& call, std::string_view why) const {
  return absl::StrCat(call.verb, " ", call.key, call.key.empty() ? "" : " in ", name_, ": ",
                      AbslView(why));
}

S3Client::Credentials S3Client::CurrentCredentials(std::string& trouble) const {
  if (place_.watched == nullptr) return fixed_;
  S3CredentialSource::Current current = place_.watched->Get();
  if (!current.trouble.ok()) trouble = std::string(current.trouble.message());
  return current.credentials == nullptr ? fixed_ : std::move(current.credentials);
}

// A text of the server's for a message: one line, and no secret that it may have echoed.
std::string S3Client::Quoted(std::string text) const {
  constexpr size_t kMost = 300;
  std::string ignored;
  const Credentials credentials = CurrentCredentials(ignored);
  for (const Secret* secret : {&fixed_->secret_key, &fixed_->session_token,
                               &credentials->secret_key, &credentials->session_token}) {
    if (!secret->empty() && text.find(secret->Reveal()) != std::string::npos) return {};
  }
  text.resize(std::min(text.size(), kMost));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  }
  return text;
}

Verdict S3Client::FromError(const Call& call, const HttpAnswer& answer) const {
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
    return Final(absl::InvalidArgumentError(absl::StrCat(why, "; the bucket is in the region ",
                                                         Quoted(region), ", not ", place_.region)));
  }
  if (is("RequestTimeTooSkewed")) {
    return Final(absl::FailedPreconditionError(absl::StrCat(why, "; set this machine's clock")));
  }
  if (is("ExpiredToken")) {
    return Final(absl::UnauthenticatedError(absl::StrCat(why, "; get new credentials")));
  }
  if (is("SignatureDoesNotMatch") || is("InvalidAccessKeyId") || is("InvalidToken")) {
    return Final(
        absl::UnauthenticatedError(absl::StrCat(why, "; check the access key and the secret key")));
  }
  switch (answer.code) {
    case 301:
    case 307:
      return Final(absl::InvalidArgumentError(
          absl::StrCat(why, "; check the endpoint, the region and the addressing style")));
    case 401:
    case 403:
      // No body says which it is in an answer to HEAD.
      return Final(absl::PermissionDeniedError(absl::StrCat(
          why, error.code.empty() ? "; the keys were revoked, or need" : "; the credentials need",
          " a policy that allows this (", call.method, ")")));
    case 404:
      if (is("NoSuchUpload")) {
        return Final(absl::AbortedError(absl::StrCat(why, "; it was given up or is done")));
      }
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

void S3Client::Fill(const Call& call, const S3Credentials& credentials,
                    HttpRequest& request) const {
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
  if (!credentials.session_token.empty()) {
    to_sign.headers.emplace_back("x-amz-security-token", credentials.session_token.Reveal());
  }
  const bool tls = place_.endpoint.starts_with("https://");
  request.method = call.method;
  request.url = absl::StrCat(tls ? "https://" : "http://", host_, UriEncode(to_sign.path, true));
  if (!call.query.empty()) absl::StrAppend(&request.url, "?", CanonicalQuery(call.query));
  for (auto& [name, value] : to_sign.headers) {
    request.headers.push_back(absl::StrCat(name, ": ", value));
  }
  request.headers.push_back(
      absl::StrCat("authorization: ",
                   Authorization(to_sign, scope, credentials.access_key, credentials.secret_key)));
  for (auto& [name, value] : to_sign.headers) {
    if (name == "x-amz-security-token") WipeWhole(value);
  }
  request.body = call.body;
  request.max_body = call.max_body;
}

// Waits before the next attempt. False once a stop is requested.
bool S3Client::Wait(int attempt, const std::string& retry_after) {
  std::unique_lock lock(wait_mutex_);
  auto most = options_.first_wait;
  for (int i = 1; i < attempt && most < options_.longest_wait; ++i) most *= 2;
  most = std::min(most, options_.longest_wait);
  std::chrono::milliseconds wait(std::uniform_int_distribution<int64_t>(0, most.count())(random_));
  if (const std::optional<uint64_t> seconds = NumberOf(retry_after)) {
    constexpr uint64_t kMost = 3600;
    wait = std::max(wait, std::chrono::milliseconds(1000 * std::min(*seconds, kMost)));
  }
  wait = std::min(wait, options_.longest_wait);
  return !stopping_.wait_for(lock, options_.stop, wait, [] { return false; }) &&
         !options_.stop.stop_requested();
}

// One attempt. Another follows if its credentials were replaced while it was under way.
Verdict S3Client::Attempt(const Call& call, const Judge& judge, HttpAnswer& answer) {
  const std::stop_token stop = call.last_word ? std::stop_token() : options_.stop;
  Credentials credentials;
  Verdict verdict;
  {
    ConnectionGate::Place place(gate_);
    if (!gate_.Enter(place, stop)) return Final(absl::CancelledError("cancelled"));
    std::string trouble;  // the server says it too
    credentials = CurrentCredentials(trouble);
    HttpRequest request;
    Fill(call, *credentials, request);
    HttpSettings settings = settings_;
    settings.stop = stop;
    HttpConnection::Result result = place.connection().Perform(request, settings);
    answer = std::move(result.answer);
    if (!result.status.ok()) {
      verdict = {result.status, result.again};
    } else if (answer.code >= 200 && answer.code < 300) {
      verdict = judge(answer);
    } else {
      verdict = FromError(call, answer);
    }
    const bool slow_down = result.status.ok() &&
                           (answer.code == 503 || answer.code == 429 ||
                            (answer.code == 200 && !verdict.status.ok() &&
                             verdict.status.message().find("SlowDown") != absl::string_view::npos));
    if (slow_down) {
      gate_.SlowDown(place);
    } else if (verdict.status.ok()) {
      gate_.GoOn();
    }
  }
  const bool refused =
      absl::IsUnauthenticated(verdict.status) || absl::IsPermissionDenied(verdict.status);
  if (refused && place_.watched != nullptr) {
    std::string still;
    if (CurrentCredentials(still) != credentials) return Again(verdict.status);
    if (!still.empty()) {
      verdict.status = absl::Status(
          verdict.status.code(),
          absl::StrCat(verdict.status.message(), "; newer ones can't be read: ", still));
    }
  }
  return verdict;
}

absl::StatusOr<HttpAnswer> S3Client::Send(const Call& call, const Judge& judge, int attempts) {
  const int most = attempts > 0 ? attempts : call.last_word ? 1 : options_.attempts;
  for (int attempt = 1;; ++attempt) {
    HttpAnswer answer;
    const Verdict verdict = Attempt(call, judge, answer);
    if (verdict.status.ok()) return answer;
    if (!verdict.again || attempt >= most) {
      std::string text = Text(call, std::string(verdict.status.message()));
      if (attempt > 1) absl::StrAppend(&text, ", after ", attempt, " attempts");
      return absl::Status(verdict.status.code(), text);
    }
    if (!Wait(attempt, answer.Header("retry-after"))) {
      return absl::CancelledError(Text(call, "cancelled"));
    }
  }
}

}  // namespace cbt::bucket
