// COSI's gRPC methods and their messages, revision by revision.
#ifndef CBT_PROGRAMS_COSI_CONTRACT_CONTRACT_H_
#define CBT_PROGRAMS_COSI_CONTRACT_CONTRACT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

enum class Revision {
  kProposal,  // the first one: cosi.v1alpha1, methods Provisioner...
  kV02,       // cosi.v1alpha1, methods Driver...
  kV1alpha2,  // sigs.k8s.io.cosi.v1alpha2
};
inline constexpr std::array kRevisions = {Revision::kProposal, Revision::kV02, Revision::kV1alpha2};
// "proposal", "v0.2" or "v1alpha2".
std::string_view RevisionName(Revision revision) noexcept;

enum class Method { kInfo, kCreate, kFind, kDelete, kGrant, kRevoke };

using MessageBytes = std::span<const uint8_t>;

// One revision. Readers accept what libprotobuf accepts. Errors: INVALID_ARGUMENT with the place,
// and no text from there.
class Contract {
 public:
  virtual ~Contract() = default;
  Contract(const Contract&) = delete;
  Contract& operator=(const Contract&) = delete;

  // "/package.Service/Method"; empty where the revision has no such method.
  virtual std::string_view Path(Method method) const noexcept = 0;

  // --- The driver's side. Answers to Delete and Revoke are empty.
  virtual absl::StatusOr<CreateRequest> ReadCreate(MessageBytes message) const = 0;
  virtual absl::StatusOr<FindRequest> ReadFind(MessageBytes message) const = 0;
  virtual absl::StatusOr<DeleteRequest> ReadDelete(MessageBytes message) const = 0;
  virtual absl::StatusOr<GrantRequest> ReadGrant(MessageBytes message) const = 0;
  virtual absl::StatusOr<RevokeRequest> ReadRevoke(MessageBytes message) const = 0;
  virtual std::string WriteInfo(const DriverInfo& info) const = 0;
  virtual std::string WriteBucket(const BucketAnswer& bucket) const = 0;
  // Holds the secret key in clear: the caller wipes it.
  virtual std::string WriteAccess(const GrantAnswer& access) const = 0;

  // --- The sidecar's side.
  virtual std::string WriteCreate(const CreateRequest& request) const = 0;
  virtual std::string WriteFind(const FindRequest& request) const = 0;
  virtual std::string WriteDelete(const DeleteRequest& request) const = 0;
  virtual std::string WriteGrant(const GrantRequest& request) const = 0;
  virtual std::string WriteRevoke(const RevokeRequest& request) const = 0;
  virtual absl::StatusOr<DriverInfo> ReadInfo(MessageBytes message) const = 0;
  virtual absl::StatusOr<BucketAnswer> ReadBucket(MessageBytes message) const = 0;
  virtual absl::StatusOr<GrantAnswer> ReadAccess(MessageBytes message) const = 0;

 protected:
  Contract() = default;
};

const Contract& ContractOf(Revision revision);

// One for each revision.
const Contract& ProposalContract();
const Contract& V02Contract();
const Contract& V1alpha2Contract();

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONTRACT_CONTRACT_H_
