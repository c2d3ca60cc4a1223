// What a controller needs beside caches: a queue of keys, each handled by one worker at a time, and
// the election of the one process that acts. Part of cbt::kube.
#ifndef CBT_KUBE_CONTROLLER_H_
#define CBT_KUBE_CONTROLLER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/version.h"

namespace cbt::kube {

// --- The objects that need attention.

struct WorkQueueOptions {
  // The wait of a key that is added by Retry(): doubled each time until Forget().
  std::chrono::milliseconds first_retry = std::chrono::milliseconds(5);
  std::chrono::milliseconds max_retry = std::chrono::minutes(5);
};

// A queue of keys, as controllers use it. A key that is waiting is not queued twice. A key that is
// added while a worker has it is queued when the worker is done: so every change is seen by a
// worker that started after it, and no two workers have one key.
//
// Holds each key once, so that it needs no limit of its own: there are as many as objects.
// Thread-safe. Must outlive its items.
class WorkQueue {
 public:
  // A key that a worker has. The destructor gives it back: Done(), unless that was called before.
  class Item {
   public:
    Item(Item&& other) noexcept;
    Item& operator=(Item&& other) noexcept;
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    ~Item();

    const std::string& key() const noexcept { return key_; }

    // The work succeeded: Forget() and Done().
    void Succeed();
    // The work failed: Done(), and the key comes again after the next wait of its series.
    void Retry();
    // The key is free for another worker.
    void Done();

   private:
    friend class WorkQueue;
    Item(WorkQueue& queue, std::string key) : queue_(&queue), key_(std::move(key)) {}

    WorkQueue* queue_;  // null: given back
    std::string key_;
  };

  explicit WorkQueue(const WorkQueueOptions& options = {});
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // After ShutDown() these do nothing.
  void Add(std::string_view key);
  // No earlier than after `delay`. If the key is already to come later, it comes at the earlier
  // time.
  void AddAfter(std::string_view key, std::chrono::milliseconds delay);
  // After the next wait of the key's series.
  void Retry(std::string_view key);

  // Ends the key's series of waits.
  void Forget(std::string_view key);
  // How often it was retried since.
  int Retries(std::string_view key) const;

  // The next key; waits for one. Empty: shut down and drained, or nothing came within `timeout`
  // (unset: no limit).
  std::optional<Item> Get(std::optional<std::chrono::milliseconds> timeout = {});

  // Takes nothing more. Keys that are due are still handed out, those with a delay are dropped, and
  // Get() returns empty once there are no more.
  void ShutDown();
  // The same, and waits until all keys were handed out and given back. False: not within `timeout`.
  bool ShutDownAndDrain(std::chrono::milliseconds timeout);
  bool shut_down() const;

  // Keys that are due and wait for a worker; those with a delay do not count.
  size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Handles one key. OK, or an error that is worth another try.
using Reconcile = std::function<absl::Status(const std::string& key)>;

// Threads that take keys from a queue and hand them to a function: it succeeds and the key is
// forgotten, or fails and the key comes again later. An exception counts as a failure.
class Workers {
 public:
  // Both must outlive this object. `on_error` (may be empty) gets what was returned or thrown.
  Workers(WorkQueue& queue, size_t threads, Reconcile reconcile,
          std::function<void(const std::string& key, const absl::Status& error)> on_error = {});
  // Shuts the queue down, and waits for what is still in it.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

 private:
  WorkQueue& queue_;
  std::vector<std::thread> threads_;
};

// --- The process that acts.

struct LeaderElectionOptions {
  // The Lease. It is created if it is not there.
  std::string name_space = {};
  std::string name = {};
  // This process's own; no two may have the same. LeaderIdentity() makes one from the host's name.
  std::string identity = {};

  // lease_duration > renew_deadline > 1.2 * retry_period, and whole seconds for the first.
  //
  // How long others wait after the last sign of life of a leader that they see.
  std::chrono::milliseconds lease_duration = std::chrono::seconds(15);
  // A leader that could not renew for this long stops leading.
  std::chrono::milliseconds renew_deadline = std::chrono::seconds(10);
  // Between two attempts to renew; for those who wait to lead, up to 2.2 times as long.
  std::chrono::milliseconds retry_period = std::chrono::seconds(2);

  // Releases the lease at the end, so that another process need not wait for it to expire.
  bool release = true;

  // Called on the elector's thread, in turns: started, stopped, started, ... They delay the next
  // renewal, so they must not block. What they throw is dropped.
  std::function<void()> on_started_leading = {};
  // This process must not act any more when it returns: another may become the leader right after.
  std::function<void()> on_stopped_leading = {};
  // Somebody else leads, or this process does: with the identity. Empty: the lease was released.
  std::function<void(const std::string& identity)> on_new_leader = {};
};

// "host" without what a label can't hold: characters other than letters, digits and "-" become "-",
// and a "-" at the end is followed by "X". As CSI's sidecars do it.
std::string LeaderIdentity(std::string_view host_name);
// The same for this machine; in a pod, the name of the pod.
std::string LeaderIdentity();

// Takes part in an election until it is destroyed. A leader that loses the lease becomes a
// candidate again; CSI's sidecars exit in on_stopped_leading instead.
//
// Only this machine's clock counts: a lease's age is the time since this process last saw it change.
// So clocks of machines may differ, but must run at the same speed. A process that is halted (a
// stopped container, a suspended machine) can't call on_stopped_leading in time: IsLeader() says no
// by itself when the lease may have expired, and what must never run twice asks it before each
// step.
class LeaderElector {
 public:
  // Starts the elector's thread. `client` must outlive the elector.
  // Errors: INVALID_ARGUMENT for options that can't work.
  static absl::StatusOr<std::unique_ptr<LeaderElector>> Create(Client& client,
                                                               LeaderElectionOptions options);

  // If this process leads: on_stopped_leading, then the lease is released. Takes as long as the
  // request that is under way. Must not run in a callback.
  ~LeaderElector();
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // This process holds the lease, and it can't have expired for others. Thread-safe, no waiting.
  bool IsLeader() const;
  // Who holds the lease, as far as is known; empty: none, or not known yet. Thread-safe.
  std::string Leader() const;

  // For /healthz/leader-election: UNAVAILABLE if this process believes that it leads although its
  // lease expired more than `tolerance` ago, because the elector's thread hangs. Thread-safe.
  absl::Status CheckHealth(std::chrono::milliseconds tolerance = std::chrono::seconds(20)) const;
  // Why the last attempt to get or renew the lease failed; OK if it did not. Thread-safe.
  absl::Status last_error() const;

 private:
  class Core;
  explicit LeaderElector(std::unique_ptr<Core> core);

  std::unique_ptr<Core> core_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CONTROLLER_H_
