// Keys of objects that want attention, each handled by one worker at a time. Part of cbt::kube.
#ifndef CBT_KUBE_WORK_QUEUE_H_
#define CBT_KUBE_WORK_QUEUE_H_

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
#include "cbt/version.h"

namespace cbt::kube {

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

}  // namespace cbt::kube

#endif  // CBT_KUBE_WORK_QUEUE_H_
