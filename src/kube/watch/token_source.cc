#include "kube/watch/token_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::kube {

absl::StatusOr<Secret> TokenSource::Get() {
  std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (!token_.empty() && now < renew_at_) return token_.Copy();
  TokenOptions options;
  options.audiences = {audience_};
  options.lifetime = lifetime_;
  const auto wall = std::chrono::system_clock::now();
  absl::StatusOr<ServiceAccountToken> grant =
      client_->CreateToken(account_.name_space, account_.name, options);
  if (!grant.ok()) {
    return absl::Status(grant.status().code(),
                        absl::StrCat("token for service account ", account_.name_space, "/",
                                     account_.name, ": ", grant.status().message()));
  }
  // The server may give less than was asked for. What its clock says counts only downwards.
  const auto life = std::clamp<std::chrono::nanoseconds>(grant->expires - wall,
                                                         std::chrono::nanoseconds(0), lifetime_);
  token_ = std::move(grant->token);
  renew_at_ = now + std::chrono::duration_cast<Clock::duration>(life / 5 * 4);
  return token_.Copy();
}

}  // namespace cbt::kube
