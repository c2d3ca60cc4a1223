// What is known of the plugin at the moment.
#ifndef CBT_PROGRAMS_CLUSTER_DRIVER_H_
#define CBT_PROGRAMS_CLUSTER_DRIVER_H_

#include <atomic>
#include <mutex>
#include <string>

namespace cbt::kube::cluster {

// Thread safe.
class Driver {
 public:
  // The driver's name; empty before the plugin has said it. Never changes after that.
  std::string name() const {
    const std::lock_guard lock(mutex_);
    return name_;
  }
  // The plugin answers, has the name and the capability: it may be asked.
  bool ready() const noexcept { return ready_; }

  // False if there is another name already.
  bool SetName(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (name_.empty()) name_ = name;
    return name_ == name;
  }
  void SetReady(bool ready) noexcept { ready_ = ready; }

  // False: the plugin has said that it gives deltas from snapshots that were deleted.
  bool requires_base() const noexcept { return requires_base_; }
  void SetRequiresBase(bool requires_base) noexcept { requires_base_ = requires_base; }

 private:
  mutable std::mutex mutex_;
  std::string name_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> requires_base_ = true;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_DRIVER_H_
