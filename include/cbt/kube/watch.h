// The objects of one type as the API server has them now, kept current by a watch. Part of
// cbt::kube.
#ifndef CBT_KUBE_WATCH_H_
#define CBT_KUBE_WATCH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "cbt/units.h"
#include "cbt/version.h"

namespace cbt::kube {

// An object that does not change any more: what the cache hands out stays as it was, and another
// takes its place.
using ObjectPtr = std::shared_ptr<const Object>;

// What a cache calls as objects come, change and go; any of them may be empty.
//
// Calls come one at a time, in the order of the changes, and describe one history for each object:
// added, then any number of updates, then deleted. What was missed while there was no watch is
// filled in by comparing lists: several changes become one, an object that was deleted and created
// again under its name is reported as deleted and added, and one that came and went meanwhile is
// not seen. The cache shows a change before it is reported.
//
// They run on the client's event thread or on the cache's, so they must not block: put a key into a
// WorkQueue. What they throw is dropped. They may read the cache, but not destroy it.
struct ObjectHandlers {
  std::function<void(const ObjectPtr& object)> added = {};
  // For a resync, both are the same object.
  std::function<void(const ObjectPtr& before, const ObjectPtr& now)> updated = {};
  // `last`: the last state that is known; if the deletion itself was missed, an earlier one.
  std::function<void(const ObjectPtr& last)> deleted = {};
  // Once: the first list is complete, and `added` was called for all of it.
  std::function<void()> synced = {};
};

// The values under which an object is found. Called for each state of each object, from the same
// threads as handlers. An object without values is in the cache, but not in the index.
using IndexFunction = std::function<std::vector<std::string>(const Object& object)>;

// Waits between attempts that fail.
struct BackOffOptions {
  std::chrono::milliseconds first = std::chrono::milliseconds(800);  // at least 1 ms
  std::chrono::milliseconds max = std::chrono::seconds(30);
  double factor = 2;
  // A random part of the wait, up to this many times the wait, is added, so that clients do not
  // come back all at once.
  double jitter = 1;
  // The series begins again when the next wait is asked for this long after the last.
  std::chrono::milliseconds reset_after = std::chrono::minutes(2);
};

struct CacheOptions {
  std::string name_space = {};  // empty: every namespace
  std::string label_selector = {};
  std::string field_selector = {};

  ObjectHandlers handlers = {};
  std::map<std::string, IndexFunction> indexes = {};

  // Calls `updated` for every object this often, as a controller wants it that compares with the
  // world outside. Zero: never.
  std::chrono::milliseconds resync = {};

  // Takes the first list as a stream of events where the server has that (less memory on both
  // sides), and as pages where it has not.
  bool streaming_list = true;
  int64_t page_size = 500;
  // For a page, or for the next event of a list that is a stream.
  std::chrono::milliseconds list_timeout = std::chrono::seconds(60);

  // How long the server keeps a watch open: chosen at random between the two, so that the watches
  // of many clients do not end together.
  std::chrono::seconds min_watch = std::chrono::seconds(300);
  std::chrono::seconds max_watch = std::chrono::seconds(600);
  // A watch on which nothing comes for this long is opened again: it may have lost its server. API
  // servers send a bookmark every minute.
  std::chrono::milliseconds silence = std::chrono::seconds(150);

  // Between attempts, when something has failed.
  BackOffOptions back_off = {};

  // Limits of memory. What is beyond them leaves the cache as it is, and stale.
  size_t max_objects = 1'000'000;
  size_t max_object_bytes = 16 * kMiB;  // of JSON; API servers store 1.5 MiB at most

  // metadata.managedFields is often half of an object, and of no use to readers.
  bool keep_managed_fields = false;
  // The only fields that are kept, beside apiVersion, kind and, of metadata, name, namespace, uid,
  // resourceVersion, generation and deletionTimestamp. Empty: all. Writers of objects then can't
  // make the cache hold fields that have no reader.
  std::vector<Path> fields = {};
  // Most bytes of JSON kept of one object; they take about four times as much memory. A larger
  // object is left out, as if it did not exist: ask the server for objects that are not here.
  size_t max_kept_bytes = std::numeric_limits<size_t>::max();
  // The same for all objects together. Beyond it the cache stays as it is, and is stale: see
  // CheckFresh().
  size_t max_bytes = std::numeric_limits<size_t>::max();
};

// The state of a cache.
struct CacheState {
  using Clock = std::chrono::steady_clock;

  // The first list is complete.
  bool synced = false;
  // Set while no watch is open: since when changes may have been missed. From the beginning on, and
  // for a moment whenever a watch ends.
  std::optional<Clock::time_point> broken_since = {};
  // When the server last sent something: a list, an event, a bookmark.
  std::optional<Clock::time_point> last_heard = {};
  // Why the last attempt failed; OK while a watch is open.
  absl::Status error = {};
  std::string resource_version = {};  // of the last list or event; opaque

  uint64_t lists = 0;    // complete ones
  uint64_t watches = 0;  // opened
  uint64_t events = 0;   // of watches, without bookmarks
};

// Lists the objects of one type and watches them, for as long as it lives.
//
// It goes on after a broken connection where it was; when that is no longer possible (410, or
// answers that make no sense) it takes the list again and reports the differences. It never gives
// up, and never empties because of an error: its objects are old then, and CheckFresh() and state()
// say so. Call CheckFresh() before basing an access decision on the cache.
//
// Readers are thread-safe, never wait for the network, and cost a shared lock and a search.
class ObjectCache {
 public:
  // Starts a thread that lists and watches; returns before the list is there. `client` must outlive
  // the cache. Errors: INVALID_ARGUMENT for a resource or options that make no request.
  static absl::StatusOr<std::unique_ptr<ObjectCache>> Create(Client& client,
                                                             const Resource& resource,
                                                             CacheOptions options = {});

  // Ends the watch; no handler is called afterwards. Must not run in a handler or in `done` of one
  // of the client's calls.
  ~ObjectCache();
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  // --- Readers. Before the first list is complete they find nothing.

  // Null if it does not exist. `name_space` is empty for types without namespaces.
  ObjectPtr Find(std::string_view name_space, std::string_view name) const;
  // In the order of namespaces and names.
  std::vector<ObjectPtr> All() const;
  // Empty also for an index that does not exist.
  std::vector<ObjectPtr> ByIndex(std::string_view index, std::string_view value) const;
  size_t size() const;

  // The object as a struct of cbt/kube/typed_objects.h or a similar one. NOT_FOUND; UNAVAILABLE if
  // it can't be decoded.
  template <typename T>
  absl::StatusOr<T> FindAs(std::string_view name_space, std::string_view name) const {
    const ObjectPtr object = Find(name_space, name);
    if (object == nullptr) return NotFound(name_space, name);
    absl::StatusOr<T> value = T::Decode(*object);
    if (!value.ok()) return Undecodable(name_space, name, value.status());
    return value;
  }

  // --- Freshness.

  // Waits until the first list is complete. DEADLINE_EXCEEDED, with the reason of the last failure.
  absl::Status WaitForSync(std::chrono::milliseconds timeout) const;
  // OK if the first list is complete and a watch is open, or has been missing for no longer than
  // `max_broken`; otherwise UNAVAILABLE with the reason.
  absl::Status CheckFresh(std::chrono::milliseconds max_broken) const;
  CacheState state() const;

 private:
  class Core;
  explicit ObjectCache(std::shared_ptr<Core> core);
  absl::Status NotFound(std::string_view name_space, std::string_view name) const;
  absl::Status Undecodable(std::string_view name_space, std::string_view name,
                           const absl::Status& error) const;

  std::shared_ptr<Core> core_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_H_
