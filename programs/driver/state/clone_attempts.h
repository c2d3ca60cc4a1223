// Which volumes are being cloned, and from which hidden snapshots.
#ifndef CBT_PROGRAMS_DRIVER_STATE_CLONE_ATTEMPTS_H_
#define CBT_PROGRAMS_DRIVER_STATE_CLONE_ATTEMPTS_H_

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace cbt::driver {

// A clone is made from a hidden snapshot of its source. Where that is copied, one call may be too
// short: the client calls again, and all these calls are one attempt with one snapshot, which is of
// a moment after the first call. An attempt without a call for `wait_limit` is over: its snapshot
// goes, and so does a clone that no client has got; the next call begins a new attempt. Snapshots
// have random ids, so none is used by chance after its attempt.
//
// Kept in memory: after a restart there are no attempts, and every hidden snapshot is a stray.
// Thread safe.
class CloneAttempts {
 public:
  static constexpr std::string_view kPrefix = "clone-";  // of the ids of hidden snapshots

  explicit CloneAttempts(std::chrono::milliseconds wait_limit) : wait_limit_(wait_limit) {}

  // True once the client of a call waits for no answer any more.
  using IsGone = std::function<bool()>;

  // A call that is at an attempt. The destructor leaves the attempt to the next call. Must not
  // outlive the CloneAttempts.
  class Call {
   public:
    Call(Call&& other) noexcept
        : attempts_(std::exchange(other.attempts_, nullptr)),
          name_(std::move(other.name_)),
          snapshot_(std::move(other.snapshot_)),
          is_gone_(std::move(other.is_gone_)) {}
    Call& operator=(Call&&) = delete;
    ~Call();

    const std::string& snapshot() const noexcept { return snapshot_; }
    bool ClientIsGone() const { return is_gone_(); }
    // The attempt is over, with or without a clone. The caller deletes the snapshot.
    void End();

   private:
    friend class CloneAttempts;
    Call(CloneAttempts* attempts, std::string name, std::string snapshot,
         CloneAttempts::IsGone is_gone)
        : attempts_(attempts),
          name_(std::move(name)),
          snapshot_(std::move(snapshot)),
          is_gone_(std::move(is_gone)) {}

    CloneAttempts* attempts_;
    std::string name_;
    std::string snapshot_;
    CloneAttempts::IsGone is_gone_;
  };

  // Joins the attempt at the clone `name` of `volume`, or begins one. One call at a time per name.
  // Errors: UNAVAILABLE without random numbers.
  absl::StatusOr<Call> Join(const std::string& name, const std::string& volume, IsGone is_gone);
  // A client calls for the clone while another call is at the attempt.
  void Touch(const std::string& name);
  // Whether an attempt at the clone is not over.
  bool Has(const std::string& name) const;
  void End(const std::string& name);

  // Whether an attempt needs this hidden snapshot.
  bool Uses(std::string_view snapshot) const;

  // Ends the attempts that have had no call for the time, or all of `volume`, which has no call.
  void EndOld();
  void EndAllOf(std::string_view volume);

  // Volumes that may have strays: hidden snapshots that no attempt needs.
  void AddSuspect(const std::string& volume);
  void RemoveSuspect(const std::string& volume);
  std::set<std::string> suspects() const;

 private:
  struct Attempt {
    std::string volume;
    std::string snapshot;
    bool called = true;  // by a call that has not ended
    // When a client was last known to wait, since the boot.
    std::chrono::nanoseconds last_call = {};
  };

  bool IsOld(const Attempt& attempt) const;

  const std::chrono::milliseconds wait_limit_;
  mutable std::mutex mutex_;
  std::map<std::string, Attempt, std::less<>> attempts_;  // by the name of the clone
  std::set<std::string> suspects_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_CLONE_ATTEMPTS_H_
