// Follows the objects of one type: takes lists, watches from there on, and starts over where it
// must.
#ifndef CBT_KUBE_WATCH_LIST_WATCH_H_
#define CBT_KUBE_WATCH_LIST_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "cbt/kube/watch.h"
#include "kube/watch/object_store.h"
#include "kube/watch/watch_event.h"

namespace cbt::kube {

// Where the changes go. One call at a time, from the client's event thread or from the list's own;
// only Resync() may overlap with the others.
class ChangeSink {
 public:
  virtual void Replace(ObjectMap<Object> objects) = 0;
  // Not a bookmark.
  virtual absl::Status Apply(WatchEvent event) = 0;
  virtual void Resync() noexcept = 0;

 protected:
  ~ChangeSink() = default;
};

// A thread that lists and watches from Start() to Stop(). What it learns goes to the sink; how far
// that can be trusted it says itself.
class ListWatch {
 public:
  using Clock = CacheState::Clock;

  // All outlive it. Of `options`, handlers and indexes are not used.
  ListWatch(Client& client, const WatchTarget& target, const CacheOptions& options,
            ChangeSink& sink);
  ~ListWatch() { Stop(); }
  ListWatch(const ListWatch&) = delete;
  ListWatch& operator=(const ListWatch&) = delete;

  void Start();
  // No call to the sink comes afterwards.
  void Stop();

  absl::Status WaitForSync(std::chrono::milliseconds timeout) const;
  absl::Status CheckFresh(std::chrono::milliseconds max_broken) const;
  CacheState state() const;

 private:
  // One watch, from its request to its end. Written in the client's thread until `ended`.
  struct Stream {
    bool collecting = false;  // the list comes first, as events
    ObjectMap<Object> collected;
    size_t bytes = 0;  // of these, or a little more
    bool ended = false;
    bool list_again = false;  // what came can't be continued
    bool no_list = false;     // the server does not send lists as events
    Clock::time_point heard;
    absl::Status status;
  };

  void Run();
  // One step: a list, a watch, or both. Returns how it ended; OK: go on at once.
  absl::Status Step();
  absl::Status TakePages();
  absl::Status TakePage(ListOptions options, ObjectList& page);
  absl::Status Watch(bool with_list);
  Request WatchRequest(bool with_list, std::chrono::seconds length) const;

  // In the client's thread.
  void OnOpen(Stream& stream);
  absl::Status OnLine(Stream& stream, std::string_view line);
  absl::Status OnCollected(Stream& stream, WatchEvent event);

  // Under the lock.
  void Listed(std::string resource_version);
  void Watching();
  // Waits until `ready`, `until` or Stop(), and calls for a resync when its time has come.
  void Wait(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point> until,
            const std::function<bool()>& ready);

  Client& client_;
  const WatchTarget& target_;
  const CacheOptions& options_;
  ChangeSink& sink_;

  // Used by the thread alone.
  std::mt19937_64 random_{std::random_device()()};
  bool need_list_ = true;
  bool stream_lists_;
  bool in_pages_ = true;
  std::optional<Clock::time_point> next_resync_;
  Clock::time_point last_expired_ = Clock::time_point() - std::chrono::hours(1);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopping_ = false;
  CacheState state_;
  std::thread thread_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_LIST_WATCH_H_
