// What a Pod may have: the credentials behind its BucketAccessRequest.
#ifndef CBT_PROGRAMS_COSI_NODE_POD_ACCESS_H_
#define CBT_PROGRAMS_COSI_NODE_POD_ACCESS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/secrets.h"
#include "ops/event_log.h"
#include "programs/cluster/events.h"
#include "programs/cosi/api/objects.h"

namespace cbt::kube::cosi {

using cluster::Events;

struct Pod {
  std::string name_space = {};
  std::string name = {};
  std::string uid = {};
};

// Asks the API server each time: an access that is revoked is not mounted again. Thread safe.
class PodAccess {
 public:
  PodAccess(Client& client, Events& events) : client_(client), events_(events) {}

  struct Granted {
    Object access = {};
    Secrets files = {};
  };

  // The request is of the Pod's namespace; request and access name each other, and the access is
  // granted and not being deleted (C28). Otherwise UNAVAILABLE at once, with an Event of the Pod:
  // kubelet asks again. Errors: those of the API server too.
  absl::StatusOr<Granted> Find(const Pod& pod, const std::string& request);

  // The finalizer of the Pod on the access, before anything is mounted (C30).
  absl::Status Hold(const Object& access, const Pod& pod);
  // OK also if the access is gone.
  absl::Status Release(const std::string& access, std::string_view pod_uid);

 private:
  absl::Status Missing(const Pod& pod, const std::string& text);

  Client& client_;
  Events& events_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_POD_ACCESS_H_
