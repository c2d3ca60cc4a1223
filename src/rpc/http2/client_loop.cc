#include "rpc/http2/client_loop.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "net/loop_threads.h"
#include "net/one_per_process.h"

namespace cbt::rpc::http2 {
namespace {

// The thread; starts with the first user and ends with the last.
class LoopThread {
 public:
  // Never destroyed: a thread may still post a task late.
  static LoopThread& Get() {
    static net::OnePerProcess<LoopThread> of_processes;
    return of_processes.Get();
  }

  // False in a forked child, which has no such thread.
  bool IsOurs() const noexcept { return mark_.IsOurs(); }

  LoopThread* before = nullptr;  // see net::OnePerProcess

  absl::Status Acquire() {
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) {
      auto chunks = std::make_unique<net::ReadChunks>(std::make_shared<net::MemoryAccount>());
      absl::StatusOr<std::unique_ptr<net::EventLoop>> loop = net::EventLoop::Create();
      if (!loop.ok()) return loop.status();
      loop_ = *std::move(loop);
      chunks_ = std::move(chunks);
    }
    if (!running_) {
      // It has left Run() for good and takes no lock any more.
      if (thread_.joinable()) thread_.join();
      thread_ = std::thread([this] { Run(); });
      running_ = true;
    }
    ++users_;
    return absl::OkStatus();
  }

  // From any thread, including the loop's.
  void Release() noexcept {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) AskToEnd();
  }

  // At process exit: OpenSSL and nghttp2 must outlive the thread.
  void Join() noexcept {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      exiting_ = true;
      if (loop_ != nullptr) AskToEnd();
      thread = std::move(thread_);
    }
    if (!thread.joinable()) return;
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }

  ClientLoop loop() noexcept { return {loop_.get(), chunks_.get()}; }

 private:
  void AskToEnd() noexcept {
    may_end_.store(true);
    loop_->Post(wake_);
  }

  void Run() noexcept {
    for (;;) {
      loop_->RunOnce(std::chrono::milliseconds(-1));
      if (!may_end_.load()) continue;
      const std::lock_guard lock(mutex_);
      may_end_.store(false);
      // There may be new users by now.
      if (users_ > 0 && !exiting_) continue;
      running_ = false;
      return;
    }
  }

  void Nothing() noexcept {}

  const ProcessMark mark_;
  std::mutex mutex_;
  std::unique_ptr<net::ReadChunks> chunks_;
  std::unique_ptr<net::EventLoop> loop_;
  std::thread thread_;
  size_t users_ = 0;
  bool running_ = false;
  bool exiting_ = false;
  std::atomic<bool> may_end_{false};
  net::MemberTask<LoopThread, &LoopThread::Nothing> wake_{*this};
};

// A user of the thread.
struct Use {
  Use() = default;
  ~Use() {
    if (thread != nullptr && thread->IsOurs()) thread->Release();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  LoopThread* thread = nullptr;
  ClientLoop loop = {};
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ClientLoop>> SharedClientLoop() try {
  static const net::JoinAtExit<LoopThread> join_at_exit;
  auto use = std::make_shared<Use>();
  LoopThread& thread = LoopThread::Get();
  if (absl::Status status = thread.Acquire(); !status.ok()) return status;
  use->thread = &thread;
  use->loop = thread.loop();
  return std::shared_ptr<const ClientLoop>(use, &use->loop);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("");
} catch (const std::system_error& error) {
  return absl::UnavailableError(absl::StrCat("can't start a thread: ", error.what()));
}

}  // namespace cbt::rpc::http2
