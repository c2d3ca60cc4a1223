// How an inline volume of a Pod comes and goes.
#ifndef CBT_PROGRAMS_COSI_NODE_VOLUMES_H_
#define CBT_PROGRAMS_COSI_NODE_VOLUMES_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cosi/node/csi_messages.h"
#include "programs/cosi/node/pod_access.h"
#include "programs/cosi/node/publications.h"

namespace cbt::kube::cosi {

// Publishing, each step before the next, and all of them again after a crash (C27 to C30):
//
//   1. what the Pod may have; without it UNAVAILABLE at once, never a wait
//   2. a note of volume, access and Pod
//   3. the Pod's finalizer on the access
//   4. the credentials, in memory
//
// The end never fails because something is gone: unmount first, then finalizer and note as far as
// they can be removed. A finalizer that stays is swept by the controller when its Pod is gone.
//
// Blocks. Thread safe: kubelet makes one call for a volume at a time.
class Volumes {
 public:
  Volumes(Client& client, Events& events, std::string state_directory, ops::EventLog& log)
      : access_(client, events), publications_(std::move(state_directory)), log_(log) {}

  absl::Status Prepare() const { return publications_.Prepare(); }

  // Errors: INVALID_ARGUMENT for a volume that is not inline, or lacks bucketAccessRequestName;
  //         UNAVAILABLE while access is missing; INTERNAL of the system.
  absl::Status Publish(const PublishRequest& request);
  // Errors: INTERNAL if the system can't unmount.
  absl::Status Unpublish(const UnpublishRequest& request);

 private:
  PodAccess access_;
  const Publications publications_;
  ops::EventLog& log_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_VOLUMES_H_
