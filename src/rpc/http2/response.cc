#include "rpc/http2/response.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "base/text.h"
#include "rpc/contract/metadata.h"
#include "rpc/http2/protocol.h"

namespace cbt::rpc::http2 {
namespace {

constexpr std::string_view kStatusKey = "grpc-status";
constexpr std::string_view kTextKey = "grpc-message";
constexpr std::string_view kContentTypeKey = "content-type";
constexpr int kHttpOk = 200;

absl::Status MakeStatus(absl::StatusCode code, std::string_view text) {
  return {code, AbslView(text)};
}

// 0 unless it has three digits.
int HttpStatusOf(const HeaderBlock& headers) {
  const std::string_view text = headers.Find(":status").value_or("");
  if (text.size() != 3) return 0;
  int status = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return 0;
    status = 10 * status + (c - '0');
  }
  return status;
}

// The only value of `key`; kGivenTwice if there are several, even equal ones.
std::optional<std::string_view> Only(const std::vector<std::pair<std::string, std::string>>& fields,
                                     std::string_view key) {
  std::optional<std::string_view> found;
  for (const auto& [name, value] : fields) {
    if (name != key) continue;
    if (found.has_value()) return kGivenTwice;
    found = value;
  }
  return found;
}

}  // namespace

// Appends the fields of `block`. A field may have several binary values, separated by commas.
absl::Status Response::Keep(const HeaderBlock& block, Fields& fields) {
  if (block.cut()) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "the server's headers exceed the limit of this client");
  }
  for (size_t i = 0; i < block.size(); ++i) {
    const auto [name, value] = block[i];
    if (name.starts_with(':')) continue;
    if (!IsBinaryKey(name)) {
      fields.emplace_back(name, value);
      continue;
    }
    for (std::string_view rest = value;;) {
      const size_t comma = rest.find(',');
      std::optional<std::string> bytes = Base64Decode(rest.substr(0, comma));
      if (!bytes.has_value()) {
        return MakeStatus(absl::StatusCode::kInternal, "metadata of the server is not base64");
      }
      fields.emplace_back(name, *std::move(bytes));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return absl::OkStatus();
}

void Response::OnHeaders(const HeaderBlock& headers, bool end) {
  if (ended()) return;
  if (http_status_ != 0) return Fail(absl::StatusCode::kInternal, "the server sent headers twice");
  http_status_ = HttpStatusOf(headers);
  Fields& fields = end ? trailing_ : initial_;
  absl::Status kept = Keep(headers, fields);
  is_grpc_ =
      http_status_ == kHttpOk && IsGrpcContentType(Only(fields, kContentTypeKey).value_or(""));
  if (end) {
    has_trailers_ = true;
    if (!kept.ok()) end_ = std::move(kept);
  } else if (!kept.ok()) {
    status_ = std::move(kept);
  } else if (!is_grpc_) {
    // The body is not gRPC messages.
    status_ = NotGrpc();
  } else if (Only(initial_, kStatusKey).has_value()) {
    // Whatever the trailers say: an error here and OK there must not be OK.
    Fail(absl::StatusCode::kUnknown, "the server gave a status before the end of its answer");
  }
}

void Response::OnData(absl::Cord data) {
  if (ended()) return;
  if (http_status_ == 0 || has_trailers_) {
    return Fail(absl::StatusCode::kInternal, "the server sent data outside of the answer's body");
  }
  reader_.Append(std::move(data));
}

void Response::OnTrailers(const HeaderBlock& trailers) {
  if (ended()) return;
  if (http_status_ == 0) {
    return Fail(absl::StatusCode::kInternal, "the server sent an answer without an HTTP status");
  }
  has_trailers_ = true;
  if (absl::Status status = Keep(trailers, trailing_); !status.ok()) end_ = std::move(status);
}

void Response::OnEnd() {
  if (ended()) return;
  end_ = StatusOfTrailers();
}

void Response::OnFailure(absl::Status reason) {
  if (ended()) return;
  end_ = reason.ok() ? MakeStatus(absl::StatusCode::kUnknown, "the stream was cut")
                     : std::move(reason);
}

bool Response::Next(absl::Cord& message) {
  if (status_.has_value()) return false;
  switch (reader_.Next(message)) {
    case MessageReader::Result::kMessage:
      return true;
    case MessageReader::Result::kNeedMore:
      if (end_.has_value()) Finish();
      break;
    case MessageReader::Result::kTooLong:
      Fail(absl::StatusCode::kResourceExhausted,
           "a message of the server exceeds the limit of this client");
      break;
    case MessageReader::Result::kCompressed:
      Fail(absl::StatusCode::kUnimplemented,
           "the server compresses messages, which this client does not support: turn compression "
           "off");
      break;
    case MessageReader::Result::kMalformed:
      Fail(absl::StatusCode::kInternal, "the server sent bytes that are not a message");
      break;
  }
  return false;
}

std::optional<std::string_view> Response::Initial(std::string_view key) const {
  return Only(initial_, key);
}

std::optional<std::string_view> Response::Trailing(std::string_view key) const {
  if (Only(initial_, key).has_value() && Only(trailing_, key).has_value()) return kGivenTwice;
  return Only(trailing_, key);
}

absl::Status Response::NotGrpc() const {
  if (http_status_ == kHttpOk) {
    return MakeStatus(absl::StatusCode::kUnknown, "the server's answer is not of gRPC");
  }
  return {CodeOfHttpStatus(http_status_),
          absl::StrCat("the server answered with HTTP status ", http_status_)};
}

absl::Status Response::StatusOfTrailers() const {
  const std::optional<std::string_view> value = Only(trailing_, kStatusKey);
  if (!value.has_value()) {
    if (!is_grpc_) return NotGrpc();
    return MakeStatus(absl::StatusCode::kUnknown, "the server ended the stream without a status");
  }
  if (*value == kGivenTwice) {
    return MakeStatus(absl::StatusCode::kUnknown, "the server gave its status more than once");
  }
  const absl::StatusCode code = ParseStatusCode(*value);
  // An answer that is not gRPC's is never a success.
  if (code == absl::StatusCode::kOk) return is_grpc_ ? absl::OkStatus() : NotGrpc();
  for (const auto& [name, text] : trailing_) {
    if (name == kTextKey) return MakeStatus(code, *PercentDecode(text, BrokenEscapes::kKept));
  }
  return MakeStatus(code, "");
}

void Response::Fail(absl::StatusCode code, std::string_view text) {
  status_ = MakeStatus(code, text);
}

// Requires end_, and that the reader has no message left.
void Response::Finish() {
  if (end_->ok() && !reader_.AtBoundary()) {
    return Fail(absl::StatusCode::kInternal, "the stream ended within a message");
  }
  status_ = *end_;
}

}  // namespace cbt::rpc::http2
