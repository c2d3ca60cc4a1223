// The Secret of an access, in the sidecar's namespace (C15).
#ifndef CBT_PROGRAMS_COSI_SIDECAR_ACCESS_SECRETS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_ACCESS_SECRETS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/secrets.h"
#include "programs/cosi/sidecar/part.h"

namespace cbt::kube::cosi {

// It has the name of its access, and the access's uid as a label. It is reserved, empty, before the
// driver is asked: credentials never lack a place, and no foreign Secret is overwritten. It has no
// owner, because it says what must be revoked if its access was removed by force. Thread safe.
class AccessSecrets {
 public:
  explicit AccessSecrets(const SidecarTools& tools) : tools_(tools) {}

  // Errors: ALREADY_EXISTS for a Secret of somebody else.
  absl::StatusOr<Object> Reserve(const BucketAccess& access, const std::string& bucket_id);
  // The same error if it was given to somebody else meanwhile.
  absl::Status Fill(const Object& secret, const std::string& account_id, const Secrets& data);
  // OK also if it is gone, or somebody else's.
  absl::Status Remove(const std::string& name, const std::string& access_uid);

 private:
  const SidecarTools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_ACCESS_SECRETS_H_
