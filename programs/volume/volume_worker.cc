#include "programs/volume/volume_worker.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cbt::volume {
namespace {

using Clock = std::chrono::steady_clock;

// How much is copied before another snapshot has its turn.
constexpr uint64_t kRegionsAtOnce = 64;

// Between attempts to make writes succeed again.
constexpr std::chrono::milliseconds kFirstPause(100);
constexpr std::chrono::milliseconds kMaxPause(10'000);

}  // namespace

VolumeWorker::~VolumeWorker() {
  if (!thread_.joinable()) return;
  if (!process_.IsOurs()) {
    thread_.detach();
    return;
  }
  Stop();
}

void VolumeWorker::Start(Tasks tasks) {
  tasks_ = std::move(tasks);
  repair_due_ = Clock::now();
  pause_ = kFirstPause;
  thread_ = std::thread([this] { Run(); });
}

void VolumeWorker::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void VolumeWorker::SetCopies(Copies copies) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    copies_ = std::move(copies);
  }
  changed_.notify_all();
}

void VolumeWorker::Drop(const std::shared_ptr<SnapshotCopy>& copy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(copies_, copy);
}

bool VolumeWorker::WaitForCopies(double seconds) const {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return copies_.empty(); });
}

void VolumeWorker::NoteError(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = std::string(status.message());
}

void VolumeWorker::AskForRepair(const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    repair_ = true;
    write_error_ = std::string(status.message());
  }
  changed_.notify_all();
}

std::string VolumeWorker::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return write_error_.empty() ? last_error_ : write_error_;
}

void VolumeWorker::Repair() {
  const absl::Status status = tasks_.repair();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status.ok()) {
    if (!repair_) write_error_.clear();
    pause_ = kFirstPause;
  } else {
    repair_ = true;
    write_error_ = std::string(status.message());
    pause_ = std::min(2 * pause_, kMaxPause);
  }
  repair_due_ = Clock::now() + pause_;
}

void VolumeWorker::Run() {
  const std::chrono::seconds interval(tasks_.interval.count() == 0 ? std::chrono::hours(24 * 365)
                                                                   : tasks_.interval);
  Clock::time_point due = Clock::now() + interval;
  for (size_t turn = 0;; ++turn) {
    std::shared_ptr<SnapshotCopy> copy;
    bool repair = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      const auto next = [&] { return repair_ ? std::min(due, repair_due_) : due; };
      while (!stopping_ && copies_.empty() && Clock::now() < next()) {
        changed_.wait_until(lock, next());
      }
      if (stopping_) return;
      if (!copies_.empty()) copy = copies_[turn % copies_.size()];
      // A write that fails from here on asks again.
      if (Clock::now() >= repair_due_) repair = std::exchange(repair_, false);
    }
    if (repair) Repair();
    if (copy != nullptr && !copy->Continue(kRegionsAtOnce)) tasks_.finish(copy);
    if (Clock::now() < due) continue;
    tasks_.checkpoint();
    due = Clock::now() + interval;
  }
}

}  // namespace cbt::volume
