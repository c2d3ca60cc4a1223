// What a Lease says to those who want to lead, judged by the local clock alone.
#ifndef CBT_KUBE_WATCH_LEASE_RECORD_H_
#define CBT_KUBE_WATCH_LEASE_RECORD_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/kube/object.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube {

// The last state of a Lease that was seen, and when it was first seen. Server times are never
// compared with anything.
class LeaseRecord {
 public:
  using Clock = std::chrono::steady_clock;

  // `default_duration`: for a lease that does not say how long it holds.
  explicit LeaseRecord(std::chrono::milliseconds default_duration)
      : default_duration_(default_duration) {}

  // Takes over what was read, or what the server stored. A record that is as before keeps the time
  // of its first sight; `written_at`: of what this process wrote itself, when it began to.
  absl::Status See(const Object& object, Clock::time_point seen_at);
  // The lease is not there.
  void Clear();

  bool exists() const noexcept { return object_.has_value(); }
  const std::string& holder() const noexcept { return lease_.holder; }

  // Somebody other than `identity` has it, as long as nothing else is known at `now`.
  bool HeldByAnother(std::string_view identity, Clock::time_point now) const;

  // The lease as `identity` takes or renews it; `now` is the wall clock, for people.
  Object Renewed(std::string_view name_space, std::string_view name, std::string_view identity,
                 std::chrono::milliseconds duration, Time now) const;
  // The lease as its holder gives it up.
  Object Released(Time now) const;

 private:
  const std::chrono::milliseconds default_duration_;
  std::optional<Object> object_;
  Lease lease_;
  Clock::time_point seen_at_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_LEASE_RECORD_H_
