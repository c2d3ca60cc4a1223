#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/status.h"
#include "kube/watch/lease_record.h"
#include "kube/watch/notify.h"

namespace cbt::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr double kJitter = 1.2;
// For the release at the end.
constexpr auto kReleaseTime = seconds(5);

Time WallClock() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

absl::Status CheckOptions(const LeaderElectionOptions& options) {
  if (options.name_space.empty() || options.name.empty()) {
    return absl::InvalidArgumentError("leader election: the lease has no namespace or no name");
  }
  if (options.identity.empty()) {
    return absl::InvalidArgumentError("leader election: the identity is missing");
  }
  if (options.lease_duration < seconds(1) ||
      options.lease_duration % seconds(1) != milliseconds(0)) {
    return absl::InvalidArgumentError("leader election: lease_duration is not in whole seconds");
  }
  if (options.lease_duration <= options.renew_deadline) {
    return absl::InvalidArgumentError(
        "leader election: lease_duration must be longer than renew_deadline");
  }
  if (options.retry_period <= milliseconds(0) ||
      static_cast<double>(options.renew_deadline.count()) <=
          kJitter * static_cast<double>(options.retry_period.count())) {
    return absl::InvalidArgumentError(
        "leader election: renew_deadline must be longer than 1.2 times retry_period");
  }
  const absl::StatusOr<std::string> path = ResourcePath(kLeases, options.name_space, options.name);
  return path.status();
}

}  // namespace

std::string LeaderIdentity(std::string_view host_name) {
  std::string identity(host_name);
  for (char& c : identity) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!allowed) c = '-';
  }
  if (identity.ends_with('-')) identity += 'X';
  return identity;
}

std::string LeaderIdentity() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return LeaderIdentity(name.data());
}

class LeaderElector::Core {
 public:
  Core(Client& client, LeaderElectionOptions options)
      : client_(client), options_(std::move(options)), record_(options_.lease_duration) {}

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }

  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  bool IsLeader() const {
    std::lock_guard lock(mutex_);
    return leading_ && Clock::now() < renewed_ + options_.lease_duration;
  }

  std::string Leader() const {
    std::lock_guard lock(mutex_);
    return leader_;
  }

  absl::Status CheckHealth(milliseconds tolerance) const {
    std::lock_guard lock(mutex_);
    if (!leading_ || Clock::now() <= renewed_ + options_.lease_duration + tolerance) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("leader election: the lease ", options_.name,
                     " expired, and this process has not stopped leading"));
  }

  absl::Status last_error() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  void Run() {
    while (!stopping()) {
      if (!Acquire()) continue;
      Notify(options_.on_started_leading);
      Lead();
      {
        std::lock_guard lock(mutex_);
        leading_ = false;
      }
      Notify(options_.on_stopped_leading);
      // Only now: the next holder must be the only one that acts.
      if (stopping() && options_.release) Release();
    }
  }

  // One attempt, and the wait after one that failed. True: this process leads.
  bool Acquire() {
    const absl::Status status =
        Attempt(Clock::now() + options_.renew_deadline, /*from_cache=*/false);
    Note(status);
    if (status.ok() && leads_) return true;
    const double part = std::uniform_real_distribution<double>(0, kJitter)(random_);
    Pause(milliseconds(
        static_cast<int64_t>(static_cast<double>(options_.retry_period.count()) * (1 + part))));
    return false;
  }

  // Renews until that fails for too long, somebody else has the lease, or Stop().
  void Lead() {
    for (;;) {
      Pause(options_.retry_period);
      const Clock::time_point deadline = last_renewal() + options_.renew_deadline;
      bool from_cache = true;
      for (;;) {
        if (stopping()) return;
        if (Clock::now() >= deadline) return;
        const absl::Status status = Attempt(deadline, from_cache);
        Note(status);
        if (status.ok()) {
          if (!leads_) return;
          break;
        }
        // After a failure the lease is read again before it is written: at once the first time,
        // since somebody may have touched it.
        if (from_cache) {
          from_cache = false;
          continue;
        }
        const Clock::time_point now = Clock::now();
        if (now >= deadline) return;
        Pause(std::min(options_.retry_period, std::chrono::ceil<milliseconds>(deadline - now)));
      }
    }
  }

  // Reads the lease unless what was stored last is good enough, and takes or renews it if it may.
  // OK: `leads_` says who leads.
  absl::Status Attempt(Clock::time_point deadline, bool from_cache) {
    leads_ = false;
    if (!from_cache || !record_.exists()) {
      GetOptions options;
      options.timeout = Timeout(deadline);
      const absl::StatusOr<Object> object =
          client_.Get(kLeases, options_.name_space, options_.name, options);
      if (object.ok()) {
        // From the answer on, so that another's lease is not cut short.
        if (absl::Status status = record_.See(*object, Clock::now()); !status.ok()) return status;
      } else if (absl::IsNotFound(object.status())) {
        record_.Clear();
      } else {
        return object.status();
      }
      NoteLeader();
      if (record_.HeldByAnother(options_.identity, Clock::now())) return absl::OkStatus();
    }
    // One's own lease counts from before it was written.
    const Clock::time_point began = Clock::now();
    const Object wanted = record_.Renewed(options_.name_space, options_.name, options_.identity,
                                          options_.lease_duration, WallClock());
    WriteOptions options;
    options.timeout = Timeout(deadline);
    const absl::StatusOr<Object> stored = record_.exists()
                                              ? client_.Update(kLeases, wanted, options)
                                              : client_.Create(kLeases, wanted, options);
    if (!stored.ok()) return stored.status();
    if (absl::Status status = record_.See(*stored, began); !status.ok()) return status;
    if (record_.holder() != options_.identity) {
      return absl::UnavailableError("leader election: the server stored another holder");
    }
    {
      std::lock_guard lock(mutex_);
      renewed_ = began;
      leading_ = true;
    }
    NoteLeader();
    leads_ = true;
    return absl::OkStatus();
  }

  void Release() {
    // What is known may be old: the last attempt may have failed after it took effect.
    const Clock::time_point deadline = Clock::now() + kReleaseTime;
    GetOptions get;
    get.timeout = Timeout(deadline);
    const absl::StatusOr<Object> object =
        client_.Get(kLeases, options_.name_space, options_.name, get);
    if (!object.ok() || !record_.See(*object, Clock::now()).ok()) return;
    if (record_.holder() != options_.identity) return;
    WriteOptions put;
    put.timeout = Timeout(deadline);
    // If it fails, the lease expires by itself.
    static_cast<void>(client_.Update(kLeases, record_.Released(WallClock()), put));
  }

  // Half of the deadline at most: one request without an answer must not cost the lease.
  milliseconds Timeout(Clock::time_point deadline) const {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    return std::clamp(left, milliseconds(1),
                      std::max(options_.renew_deadline / 2, milliseconds(1)));
  }

  void Note(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    error_ = status;
  }

  void NoteLeader() {
    {
      std::lock_guard lock(mutex_);
      if (leader_ == record_.holder()) return;
      leader_ = record_.holder();
    }
    Notify(options_.on_new_leader, record_.holder());
  }

  Clock::time_point last_renewal() const {
    std::lock_guard lock(mutex_);
    return renewed_;
  }

  bool stopping() const {
    std::lock_guard lock(mutex_);
    return stopping_;
  }

  void Pause(milliseconds wait) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, wait, [this] { return stopping_; });
  }

  Client& client_;
  const LeaderElectionOptions options_;

  // Used by the thread alone.
  LeaseRecord record_;
  bool leads_ = false;
  std::mt19937_64 random_{std::random_device()()};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool leading_ = false;
  Clock::time_point renewed_;  // when the request began that last renewed it
  std::string leader_;
  absl::Status error_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<LeaderElector>> LeaderElector::Create(
    Client& client, LeaderElectionOptions options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  auto core = std::make_unique<Core>(client, std::move(options));
  core->Start();
  return std::unique_ptr<LeaderElector>(new LeaderElector(std::move(core)));
}

LeaderElector::LeaderElector(std::unique_ptr<Core> core) : core_(std::move(core)) {}

LeaderElector::~LeaderElector() { core_->Stop(); }

bool LeaderElector::IsLeader() const { return core_->IsLeader(); }
std::string LeaderElector::Leader() const { return core_->Leader(); }
absl::Status LeaderElector::CheckHealth(milliseconds tolerance) const {
  return core_->CheckHealth(tolerance);
}
absl::Status LeaderElector::last_error() const { return core_->last_error(); }

}  // namespace cbt::kube
