#include "rpc/relay/plugin_watch.h"

#include <algorithm>
#include <utility>

namespace cbt::rpc {

using std::chrono::milliseconds;

PluginWatch::PluginWatch(milliseconds limit) : limit_(limit) {
  if (limit_.count() > 0) thread_ = std::thread([this] { Run(); });
}

PluginWatch::~PluginWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PluginWatch::Add(std::weak_ptr<WatchedCall> call) {
  if (limit_.count() == 0) return;
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
}

void PluginWatch::Run() {
  const milliseconds interval = std::clamp(limit_ / 4, milliseconds{20}, milliseconds{1000});
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, interval, [this] { return closing_; });
    // Without the lock: ending a call may destroy what added it.
    std::list<std::weak_ptr<WatchedCall>> calls;
    calls.swap(calls_);
    lock.unlock();
    calls.remove_if([this](const std::weak_ptr<WatchedCall>& weak) {
      const std::shared_ptr<WatchedCall> call = weak.lock();
      if (call != nullptr) call->CheckPlugin(limit_);
      return call == nullptr;
    });
    lock.lock();
    calls_.splice(calls_.end(), calls);
  }
}

}  // namespace cbt::rpc
