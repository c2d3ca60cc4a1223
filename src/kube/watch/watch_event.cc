#include "kube/watch/watch_event.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cbt/kube/status.h"
#include "kube/object/object_access.h"

namespace cbt::kube {
namespace {

constexpr int64_t kMaxRetryAfterSeconds = 3600;
constexpr int kGone = 410;

absl::Status WrongEvent(const WatchTarget& target, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("the API server sent a wrong watch event of ", target.plural, ": ", what));
}

// What an ERROR event says. It is an error whatever it says.
absl::Status ErrorOf(const WatchTarget& target, const Object& status) {
  const auto text = [&](std::string_view field) {
    absl::StatusOr<std::optional<std::string>> value = status.OptionalString({field});
    return value.ok() ? std::move(*value).value_or("") : std::string();
  };
  const std::string reason = text("reason");
  const absl::StatusOr<std::optional<int64_t>> code = status.OptionalInt({"code"});
  int64_t http_code = code.ok() ? code->value_or(0) : 0;
  if (http_code < 400 || http_code > 599) {
    // Older servers and proxies give a reason alone.
    http_code = reason == "Expired" || reason == "Gone" ? kGone : 500;
  }
  std::optional<std::chrono::milliseconds> retry_after;
  const absl::StatusOr<std::optional<int64_t>> wait =
      status.OptionalInt({"details", "retryAfterSeconds"});
  if (wait.ok() && wait->has_value() && **wait > 0) {
    retry_after = std::chrono::seconds(std::min(**wait, kMaxRetryAfterSeconds));
  }
  return MakeApiStatus(static_cast<int>(http_code), reason,
                       absl::StrCat("watch of ", target.plural, ": ", text("message")),
                       retry_after);
}

}  // namespace

WatchTarget::WatchTarget(const Resource& resource, std::string_view in_namespace)
    : group(resource.group),
      version(resource.version),
      plural(resource.plural),
      kind(resource.kind),
      namespaced(resource.namespaced),
      api_version(resource.ApiVersion()),
      name_space(in_namespace) {}

Resource WatchTarget::resource() const noexcept {
  return {
      .group = group, .version = version, .plural = plural, .kind = kind, .namespaced = namespaced};
}

absl::Status CheckObject(const WatchTarget& target, const Object& object) {
  if (absl::Status status = CheckMetadata(ObjectAccess::Root(object)); !status.ok()) {
    return WrongEvent(target, status.message());
  }
  if (object.kind() != target.kind || object.api_version() != target.api_version) {
    return WrongEvent(target, "an object of another kind");
  }
  if (object.name().empty()) return WrongEvent(target, "an object without a name");
  if (object.resource_version().empty()) return WrongEvent(target, "no resource version");
  if (object.name_space().empty() == target.namespaced ||
      (!target.name_space.empty() && object.name_space() != target.name_space)) {
    return WrongEvent(target, "an object of another namespace");
  }
  return absl::OkStatus();
}

absl::StatusOr<WatchEvent> DecodeWatchEvent(const WatchTarget& target, std::string_view line) {
  absl::StatusOr<Object> json = Object::Parse(line);
  if (!json.ok()) return WrongEvent(target, json.status().message());
  const absl::StatusOr<std::string> type = json->String({"type"});
  if (!type.ok()) return WrongEvent(target, type.status().message());
  if (!json->Has({"object"})) return WrongEvent(target, "no object");
  absl::StatusOr<Object> object = json->Child({"object"});
  if (!object.ok()) return WrongEvent(target, object.status().message());

  if (*type == "ERROR") return ErrorOf(target, *object);
  WatchEvent event;
  if (*type == "BOOKMARK") {
    if (object->resource_version().empty()) return WrongEvent(target, "no resource version");
    event.initial_events_end = object->annotation("k8s.io/initial-events-end") == "true";
    event.object = *std::move(object);
    return event;
  }
  if (*type == "ADDED") {
    event.type = WatchEvent::Type::kAdded;
  } else if (*type == "MODIFIED") {
    event.type = WatchEvent::Type::kModified;
  } else if (*type == "DELETED") {
    event.type = WatchEvent::Type::kDeleted;
  } else {
    return WrongEvent(target, "an unknown type");
  }
  if (absl::Status status = CheckObject(target, *object); !status.ok()) return status;
  event.object = *std::move(object);
  return event;
}

}  // namespace cbt::kube
