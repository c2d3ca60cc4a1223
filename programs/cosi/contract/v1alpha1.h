// What the two revisions of the package cosi.v1alpha1 share: each access has one bucket, and there is no
// method Find.
#ifndef CBT_PROGRAMS_COSI_CONTRACT_V1ALPHA1_H_
#define CBT_PROGRAMS_COSI_CONTRACT_V1ALPHA1_H_

#include <string>

#include "absl/status/statusor.h"
#include "programs/cosi/contract/contract.h"

namespace cbt::cosi {

class V1alpha1 : public Contract {
 public:
  absl::StatusOr<FindRequest> ReadFind(MessageBytes message) const override;
  std::string WriteFind(const FindRequest& request) const override;
  absl::StatusOr<DriverInfo> ReadInfo(MessageBytes message) const override;
  std::string WriteInfo(const DriverInfo& info) const override;

 protected:
  // The first two fields of a request: the first bucket, and the account.
  static std::string OfOneBucket(const GrantRequest& request);
  static std::string OfOneBucket(const RevokeRequest& request);
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONTRACT_V1ALPHA1_H_
