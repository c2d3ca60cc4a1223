#include "kube/client/answer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/curl/libcurl.h"
#include "base/text.h"
#include "cbt/kube/status.h"
#include "kube/object/json.h"
#include "kube/object/object_access.h"

namespace cbt::kube {
namespace {

using json::Value;

// Longer messages are cut: they end in logs.
constexpr size_t kMaxMessage = 1024;
constexpr std::chrono::milliseconds kMaxRetryAfter = std::chrono::hours(24);

// A text of the server for a log: bounded, on one line.
std::string Tidy(std::string_view text) {
  std::string tidy(text.substr(0, kMaxMessage));
  for (char& c : tidy) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (text.size() > kMaxMessage) {
    // Not in the middle of a character.
    while (!tidy.empty() && (static_cast<unsigned char>(tidy.back()) & 0xc0) == 0x80) {
      tidy.pop_back();
    }
    if (!tidy.empty() && static_cast<unsigned char>(tidy.back()) >= 0xc0) tidy.pop_back();
    tidy += "...";
  }
  return tidy;
}

std::string TextOf(const Value& object, std::string_view key) {
  const Value* const found = json::Find(object, key);
  return found != nullptr && found->IsString() ? Tidy(json::View(*found)) : std::string();
}

std::optional<std::chrono::milliseconds> Seconds(int64_t seconds) {
  if (seconds < 0) return std::nullopt;
  return std::min<std::chrono::milliseconds>(
      std::chrono::seconds(std::min<int64_t>(seconds, 1'000'000)), kMaxRetryAfter);
}

absl::Status CheckField(const Expected& expected, std::string_view field, std::string_view found,
                        std::string_view wanted) {
  if (wanted.empty() || found == wanted) return absl::OkStatus();
  return WrongAnswer(expected.what,
                     absl::StrCat("it has another ", AbslView(field), " than was asked for"));
}

absl::Status CheckExpected(const Object& object, const Expected& expected) {
  absl::Status status = CheckMetadata(ObjectAccess::Root(object));
  if (!status.ok()) return WrongAnswer(expected.what, std::string(status.message()));
  status.Update(CheckField(expected, "apiVersion", object.api_version(), expected.api_version));
  status.Update(CheckField(expected, "kind", object.kind(), expected.kind));
  status.Update(CheckField(expected, "namespace", object.name_space(), expected.name_space));
  status.Update(CheckField(expected, "name", object.name(), expected.name));
  return status;
}

absl::Status ParseBody(const Answer& answer, const Expected& expected, int max_depth,
                       Value& value) {
  const absl::Status parsed = json::Parse(answer.body.view(), max_depth, value);
  if (!parsed.ok()) return WrongAnswer(expected.what, std::string(parsed.message()));
  if (!value.IsObject()) return WrongAnswer(expected.what, "it is not a JSON object");
  return absl::OkStatus();
}

// Elements of lists come without these.
void SetIfAbsent(Object& object, std::string_view key, const std::string& text) {
  if (!text.empty() && !object.Has({key})) object.SetString({key}, text);
}

}  // namespace

absl::Status WrongAnswer(std::string_view what, std::string_view why) {
  return absl::UnavailableError(
      absl::StrCat(AbslView(what), ": the server's answer is unusable: ", AbslView(why)));
}

absl::Status ErrorOf(const Answer& answer, std::string_view what) {
  std::string reason;
  std::string message;
  std::optional<std::chrono::milliseconds> retry_after = answer.retry_after;
  Value status;
  if (json::Parse(answer.body.view(), Object::kMaxDepth, status).ok() &&
      TextOf(status, "kind") == "Status") {
    reason = TextOf(status, "reason");
    message = TextOf(status, "message");
    const Value* const details = json::Find(status, "details");
    const Value* const seconds =
        details == nullptr ? nullptr : json::Find(*details, "retryAfterSeconds");
    if (!retry_after && seconds != nullptr && seconds->IsInt64() && seconds->GetInt64() > 0) {
      retry_after = Seconds(seconds->GetInt64());
    }
  }
  if (message.empty()) message = absl::StrCat(AbslView(what), ": HTTP ", answer.http_code);
  return MakeApiStatus(answer.http_code, reason, message, retry_after);
}

absl::StatusOr<Object> ObjectOf(const Answer& answer, const Expected& expected) {
  Value value;
  absl::Status status = ParseBody(answer, expected, Object::kMaxDepth, value);
  if (!status.ok()) return status;
  Object object = ObjectAccess::Make(std::move(value));
  status = CheckExpected(object, expected);
  if (!status.ok()) return status;
  return object;
}

absl::StatusOr<ObjectList> ListOf(const Answer& answer, const Expected& expected) {
  Value value;
  // The list itself, and `items`.
  absl::Status status = ParseBody(answer, expected, Object::kMaxDepth + 2, value);
  if (!status.ok()) return status;
  if (!expected.kind.empty() && TextOf(value, "kind") != expected.kind + "List") {
    return WrongAnswer(expected.what, "it is not a list of what was asked for");
  }
  ObjectList list;
  const Value* const metadata = json::Find(value, "metadata");
  if (metadata == nullptr) return WrongAnswer(expected.what, "the list has no metadata");
  for (const auto& [key, text] : {std::pair("resourceVersion", &list.resource_version),
                                  std::pair("continue", &list.continue_token)}) {
    const Value* const found = json::Find(*metadata, key);
    if (found == nullptr) continue;
    if (!found->IsString()) return WrongAnswer(expected.what, "the list's metadata is malformed");
    *text = json::View(*found);
  }
  // A list without elements has an empty list or null there. A list that lacks the key may be
  // anything, and is not taken for an empty one.
  for (auto& member : json::Members(value)) {
    if (json::View(member.name) != "items") continue;
    if (member.value.IsNull()) return list;
    if (!member.value.IsArray()) return WrongAnswer(expected.what, "items is not a list");
    list.items.reserve(member.value.Size());
    for (Value& item : member.value.GetArray()) {
      if (!item.IsObject()) return WrongAnswer(expected.what, "an item is not an object");
      Object object = ObjectAccess::Make(std::move(item));
      SetIfAbsent(object, "apiVersion", expected.api_version);
      SetIfAbsent(object, "kind", expected.kind);
      status = CheckExpected(object, expected);
      if (!status.ok()) return status;
      if (object.name().empty()) return WrongAnswer(expected.what, "an item has no name");
      list.items.push_back(std::move(object));
    }
    return list;
  }
  return WrongAnswer(expected.what, "the list has no items");
}

std::optional<std::chrono::milliseconds> ParseRetryAfter(std::string_view text, int64_t now) {
  int64_t seconds = 0;
  if (absl::SimpleAtoi(AbslView(text), &seconds)) return Seconds(seconds);
  // A client has loaded it; a test of this function may not have.
  if (!LoadLibCurl().ok()) return std::nullopt;
  const time_t date = Curl().getdate(std::string(text).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  return Seconds(std::max<int64_t>(date - now, 0));
}

}  // namespace cbt::kube
