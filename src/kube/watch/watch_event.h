// The lines of a watch.
#ifndef CBT_KUBE_WATCH_WATCH_EVENT_H_
#define CBT_KUBE_WATCH_WATCH_EVENT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube {

// Which objects are listed and watched. Unlike a Resource, it owns its texts.
struct WatchTarget {
  WatchTarget(const Resource& resource, std::string_view name_space);

  Resource resource() const noexcept;

  std::string group;
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced;
  std::string api_version;
  std::string name_space;  // empty: every one
};

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kBookmark;
  // In a bookmark, only the resource version counts.
  Object object;
  // A bookmark: the state that the stream began with is complete.
  bool initial_events_end = false;
};

// OK if an object of a list or an event can be one of the target's: of its kind, in its namespace,
// with a name and a resource version. Otherwise UNAVAILABLE: the server is wrong.
absl::Status CheckObject(const WatchTarget& target, const Object& object);

// Reads one line of a watch.
// Errors: what an ERROR event says (MakeApiStatus); UNAVAILABLE for anything else.
absl::StatusOr<WatchEvent> DecodeWatchEvent(const WatchTarget& target, std::string_view line);

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_WATCH_EVENT_H_
