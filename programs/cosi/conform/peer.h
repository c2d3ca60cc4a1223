// A driver as a sidecar of one revision sees it.
#ifndef CBT_PROGRAMS_COSI_CONFORM_PEER_H_
#define CBT_PROGRAMS_COSI_CONFORM_PEER_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/contract/contract.h"
#include "rpc/transport/client_call.h"

namespace cbt::cosi {

// Thread-safe; calls wait. Errors: the driver's, and INTERNAL for an answer that can't be read.
class Peer {
 public:
  Peer(std::shared_ptr<rpc::Channel> channel, Revision revision,
       std::chrono::milliseconds call_timeout)
      : channel_(std::move(channel)),
        contract_(ContractOf(revision)),
        revision_(revision),
        call_timeout_(call_timeout) {}

  Revision revision() const noexcept { return revision_; }

  absl::StatusOr<DriverInfo> Info() const;
  absl::StatusOr<BucketAnswer> Create(const CreateRequest& request) const;
  absl::StatusOr<BucketAnswer> Find(const FindRequest& request) const;
  absl::Status Delete(const std::string& bucket_id, const Parameters& parameters) const;
  absl::StatusOr<GrantAnswer> Grant(const GrantRequest& request) const;
  absl::Status Revoke(const RevokeRequest& request) const;

 private:
  template <typename Read>
  auto Ask(Method method, const std::string& request, Read read) const
      -> decltype(read(MessageBytes()));

  const std::shared_ptr<rpc::Channel> channel_;
  const Contract& contract_;
  const Revision revision_;
  const std::chrono::milliseconds call_timeout_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONFORM_PEER_H_
