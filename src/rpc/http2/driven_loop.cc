#include "rpc/http2/driven_loop.h"

#include <algorithm>
#include <condition_variable>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "net/loop_threads.h"
#include "net/one_per_process.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// How late deadlines, ping answers and cancellations may be while no thread waits.
constexpr milliseconds kExitLook{250};

// The most that one check may do: more than a window of data before a ping.
constexpr int kTurnsOfLook = 16;

// Runs loops that no thread waits for.
class Caretaker {
 public:
  // Never destroyed: threads may still come late.
  static Caretaker& Get() {
    static net::OnePerProcess<Caretaker> of_processes;
    return of_processes.Get();
  }

  // False in a forked child, which has no such thread.
  bool IsOurs() const noexcept { return mark_.IsOurs(); }

  Caretaker* before = nullptr;  // see net::OnePerProcess

  // Throws std::bad_alloc and std::system_error.
  void Add(const std::shared_ptr<DrivenLoop>& loop) {
    const std::lock_guard lock(mutex_);
    // Erases expired entries as well, so that the vector does not grow.
    std::erase_if(loops_, [](const auto& known) { return known.expired(); });
    loops_.push_back(loop);
    if (running_ || exiting_) return;
    // It has left Run() for good and takes no lock any more.
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([this] { Run(); });
    running_ = true;
  }

  // At process exit: OpenSSL and nghttp2 must outlive the thread.
  void Join() noexcept {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      exiting_ = true;
      thread = std::move(thread_);
    }
    changed_.notify_all();
    if (thread.joinable()) thread.join();
  }

 private:
  void Run() noexcept {
    std::unique_lock lock(mutex_);
    while (!exiting_) {
      changed_.wait_for(lock, kExitLook, [this] { return exiting_; });
      bool any = false;
      // By index, because loops may be added meanwhile; a loop that is skipped is run at the next
      // check.
      for (size_t i = 0; i < loops_.size() && !exiting_; ++i) {
        std::shared_ptr<DrivenLoop> loop = loops_[i].lock();
        if (loop == nullptr) continue;
        any = true;
        lock.unlock();
        loop->RunReady();
        // May be the last reference.
        loop.reset();
        lock.lock();
      }
      if (!any) break;
    }
    running_ = false;
  }

  const ProcessMark mark_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<DrivenLoop>> loops_;
  std::thread thread_;
  bool running_ = false;
  bool exiting_ = false;
};

}  // namespace

absl::StatusOr<std::shared_ptr<DrivenLoop>> DrivenLoop::Create() try {
  static const net::JoinAtExit<Caretaker> join_at_exit;
  absl::StatusOr<std::unique_ptr<net::EventLoop>> loop = net::EventLoop::Create();
  if (!loop.ok()) return loop.status();
  auto made = std::make_shared<DrivenLoop>(*std::move(loop));
  Caretaker::Get().Add(made);
  return made;
} catch (const std::bad_alloc&) {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
} catch (const std::system_error& error) {
  return absl::UnavailableError(absl::StrCat("can't start a thread: ", error.what()));
}

DrivenLoop::DrivenLoop(std::unique_ptr<net::EventLoop> loop)
    : chunks_(std::make_shared<net::MemoryAccount>()),
      loop_(std::move(loop)),
      parts_{loop_.get(), &chunks_} {}

void DrivenLoop::RunUntil(absl::FunctionRef<bool()> done,
                          net::EventLoop::Clock::time_point until) noexcept {
  std::unique_lock lock(mutex_);
  used_ = true;
  while (!done()) {
    const auto left = until - net::EventLoop::Clock::now();
    if (left <= net::EventLoop::Clock::duration::zero()) return;
    // Clamped first, because a later end would overflow.
    constexpr net::EventLoop::Clock::duration kLongest = std::chrono::hours(1);
    const auto wait = std::chrono::ceil<milliseconds>(std::min(left, kLongest));
    if (running_) {
      ++waiting_;
      turned_.wait_for(lock, wait);
      --waiting_;
    } else {
      RunOnce(lock, wait);
    }
  }
}

void DrivenLoop::RunReady() noexcept {
  std::unique_lock lock(mutex_);
  // Threads that keep returning need no help.
  if (std::exchange(used_, false)) return;
  for (int turn = 0; turn < kTurnsOfLook; ++turn) {
    if (running_ || !RunOnce(lock, milliseconds(0))) return;
  }
}

bool DrivenLoop::RunOnce(std::unique_lock<std::mutex>& lock, milliseconds wait) noexcept {
  running_ = true;
  lock.unlock();
  const bool any = loop_->RunOnce(wait);
  lock.lock();
  running_ = false;
  // One of them continues to run the loop; the others may be done.
  if (waiting_ > 0) turned_.notify_all();
  return any;
}

}  // namespace cbt::rpc::http2
