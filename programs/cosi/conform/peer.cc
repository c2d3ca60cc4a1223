#include "programs/cosi/conform/peer.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/wipe.h"
#include "rpc/client/unary_call.h"

namespace cbt::cosi {

template <typename Read>
auto Peer::Ask(Method method, const std::string& request, Read read) const
    -> decltype(read(MessageBytes())) {
  rpc::UnaryCall call(*channel_, std::chrono::system_clock::now() + call_timeout_);
  const absl::StatusOr<absl::Cord> answer = call.Run(std::string(contract_.Path(method)), request);
  if (!answer.ok()) return answer.status();
  std::string bytes(*answer);
  const Wiper wiper(bytes);
  auto parsed = read(MessageBytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  if (!parsed.ok()) {
    return absl::InternalError(
        absl::StrCat("the answer can't be read: ", parsed.status().message()));
  }
  return parsed;
}

absl::StatusOr<DriverInfo> Peer::Info() const {
  return Ask(Method::kInfo, "", [this](MessageBytes bytes) { return contract_.ReadInfo(bytes); });
}

absl::StatusOr<BucketAnswer> Peer::Create(const CreateRequest& request) const {
  return Ask(Method::kCreate, contract_.WriteCreate(request),
             [this](MessageBytes bytes) { return contract_.ReadBucket(bytes); });
}

absl::StatusOr<BucketAnswer> Peer::Find(const FindRequest& request) const {
  return Ask(Method::kFind, contract_.WriteFind(request),
             [this](MessageBytes bytes) { return contract_.ReadBucket(bytes); });
}

absl::Status Peer::Delete(const std::string& bucket_id, const Parameters& parameters) const {
  return Ask(Method::kDelete,
             contract_.WriteDelete({.bucket_id = bucket_id, .parameters = parameters}),
             [](MessageBytes) -> absl::StatusOr<bool> { return true; })
      .status();
}

absl::StatusOr<GrantAnswer> Peer::Grant(const GrantRequest& request) const {
  return Ask(Method::kGrant, contract_.WriteGrant(request),
             [this](MessageBytes bytes) { return contract_.ReadAccess(bytes); });
}

absl::Status Peer::Revoke(const RevokeRequest& request) const {
  return Ask(Method::kRevoke, contract_.WriteRevoke(request),
             [](MessageBytes) -> absl::StatusOr<bool> { return true; })
      .status();
}

}  // namespace cbt::cosi
