#include "rpc/relay/plugin_errors.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

// Shorter parts of a secret reveal nothing.
constexpr size_t kShortestPart = 4;
// Longest secret that is searched for: the search takes time with its length.
constexpr size_t kLongestForm = 4096;

std::string_view SentenceOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return "it rejected the request as invalid";
    case absl::StatusCode::kNotFound:
      return "it does not have the snapshot";
    case absl::StatusCode::kFailedPrecondition:
      return "the snapshot's state does not allow this request";
    case absl::StatusCode::kOutOfRange:
      return "the starting offset is out of range";
    case absl::StatusCode::kUnavailable:
      return "it or the snapshot is not ready; try again later";
    case absl::StatusCode::kUnimplemented:
      return "it does not support this request";
    case absl::StatusCode::kResourceExhausted:
      return "it is out of resources; try again later";
    case absl::StatusCode::kDeadlineExceeded:
      return "it took too long";
    case absl::StatusCode::kAborted:
      return "its data has changed; start again from 0";
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return "it rejected the relay's credentials";
    case absl::StatusCode::kDataLoss:
      return "its answer is damaged or incomplete";
    default:
      return "it failed";
  }
}

// Unique for every error, also across restarts.
std::string NextId() {
  static std::atomic<uint64_t> next = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return absl::StrCat(absl::Hex(next++, absl::kZeroPad16));
}

// Letters and digits only, in lower case: texts that differ in case or spacing compare equal.
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char c : text.substr(0, kLongestForm)) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte)) plain.push_back(absl::ascii_tolower(byte));
  }
  return plain;
}

bool HoldsPartOf(std::string_view text, std::string_view form) {
  if (form.empty()) return false;
  const size_t part = std::min(form.size(), std::max(kShortestPart, form.size() / 2));
  for (size_t begin = 0; begin + part <= form.size(); ++begin) {
    if (text.find(form.substr(begin, part)) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

bool Resembles(std::string_view text, const Secrets& secrets) {
  const std::string plain_text = Plain(text);
  const bool text_cut = text.size() > kLongestForm;
  bool found = false;
  secrets.ForEach([&](const std::string&, const std::string& value) {
    if (value.empty() || found) return;
    // Text after a cut is not searched, so assume a match. Hexadecimal is the longest form.
    if (text_cut || value.size() > kLongestForm / 2) {
      found = true;
      return;
    }
    // Verbatim too, for secrets without letters and digits.
    found = text.find(value) != std::string_view::npos || HoldsPartOf(plain_text, Plain(value)) ||
            HoldsPartOf(plain_text, Plain(absl::BytesToHexString(value)));
    // Bytes before a secret shift it within base64; the first and last characters may be mixed with
    // neighbours.
    for (size_t skipped = 0; skipped < 3 && skipped < value.size(); ++skipped) {
      const std::string form = absl::Base64Escape(AbslView(value).substr(skipped));
      found = found || HoldsPartOf(plain_text, Plain(form.substr(0, form.find('='))));
    }
  });
  return found;
}

absl::Status PluginErrors::ForClient(const absl::Status& error,
                                     const Secrets& secrets) const noexcept try {
  if (error.ok()) return error;
  const std::string sentence = absl::StrCat("plugin: ", AbslView(SentenceOf(error.code())));
  if (log_ == nullptr || !log_->Wants(LogLevel::kWarning)) return {error.code(), sentence};
  const std::string id = NextId();
  const std::string text(error.message());
  const bool withheld = Resembles(text, secrets);
  const std::array<LogField, 3> fields = {
      {{"error", id},
       {"code", absl::StatusCodeToString(error.code())},
       {"text", withheld ? "withheld: may contain a secret" : text.substr(0, kMaxStatusText)}}};
  log_->Write(LogLevel::kWarning, "plugin failed", fields);
  return {error.code(), absl::StrCat(sentence, " (error ", id, " in the relay's log)")};
} catch (const std::bad_alloc&) {
  return {error.code(), ""};
}

}  // namespace cbt::rpc
