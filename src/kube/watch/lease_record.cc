#include "kube/watch/lease_record.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace cbt::kube {
namespace {

// A day: longer durations make no difference, and no arithmetic overflows.
constexpr int64_t kMaxDurationSeconds = 86400;

}  // namespace

absl::Status LeaseRecord::See(const Object& object, Clock::time_point seen_at) {
  absl::StatusOr<Lease> lease = Lease::Decode(object);
  if (!lease.ok()) return lease.status();
  const absl::StatusOr<Object> spec = object.Child({"spec"});
  if (!spec.ok()) return spec.status();
  if (object_.has_value()) {
    const absl::StatusOr<Object> before = object_->Child({"spec"});
    if (!before.ok() || !(*before == *spec)) seen_at_ = seen_at;
  } else {
    seen_at_ = seen_at;
  }
  object_ = object;
  lease_ = *std::move(lease);
  return absl::OkStatus();
}

void LeaseRecord::Clear() {
  object_.reset();
  lease_ = {};
}

bool LeaseRecord::HeldByAnother(std::string_view identity, Clock::time_point now) const {
  if (!object_.has_value() || lease_.holder.empty() || lease_.holder == identity) return false;
  std::chrono::milliseconds duration = default_duration_;
  if (lease_.duration_seconds.has_value() && *lease_.duration_seconds >= 0) {
    duration = std::chrono::seconds(std::min(*lease_.duration_seconds, kMaxDurationSeconds));
  }
  return now < seen_at_ + duration;
}

Object LeaseRecord::Renewed(std::string_view name_space, std::string_view name,
                            std::string_view identity, std::chrono::milliseconds duration,
                            Time now) const {
  Lease lease = lease_;
  if (!object_.has_value()) {
    lease.acquire_time = now;
    lease.transitions = 0;
  } else if (lease.holder != identity) {
    lease.acquire_time = now;
    ++lease.transitions;
  }
  lease.holder = std::string(identity);
  lease.duration_seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  lease.renew_time = now;
  Object object =
      object_.has_value() ? *object_ : Object(kLeases.ApiVersion(), kLeases.kind, name_space, name);
  lease.WriteTo(object);
  return object;
}

Object LeaseRecord::Released(Time now) const {
  Object object = *object_;
  Lease lease = lease_;
  lease.holder.clear();
  lease.duration_seconds = 1;
  lease.acquire_time = now;
  lease.renew_time = now;
  lease.WriteTo(object);
  return object;
}

}  // namespace cbt::kube
