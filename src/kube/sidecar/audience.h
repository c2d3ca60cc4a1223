// Which audience tokens must have.
#ifndef CBT_KUBE_SIDECAR_AUDIENCE_H_
#define CBT_KUBE_SIDECAR_AUDIENCE_H_

#include <string>

#include "kube/sidecar/answer_cache.h"
#include "kube/sidecar/driver.h"
#include "kube/sidecar/objects/objects.h"
#include "ops/event_log.h"

namespace cbt::kube::sidecar {

// The audience that a publishing sidecar publishes: the configured one, or else the driver's name.
std::string PublishedAudience(const std::string& configured, const std::string& driver);

// Thread safe.
class Audience {
 public:
  // `fixed`: the audience. If it is empty and the sidecar publishes: the one that it publishes.
  // Otherwise that of the SnapshotMetadataService object named as the driver, from `watched` as
  // long as that is current, else from `live`, at most once a second. All must outlive the object.
  Audience(std::string fixed, bool publishes, const Driver& driver, Objects& watched, Objects& live,
           ops::EventLog& log);

  // Calls `done` once, during the call or later, with the audience, which is not empty. Errors:
  // UNAVAILABLE.
  void Get(Found<std::string> done);

 private:
  const std::string fixed_;
  const bool publishes_;
  const Driver& driver_;
  Objects& watched_;
  Objects& live_;
  ops::EventLog& log_;
  AnswerCache<std::string> kept_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_KUBE_SIDECAR_AUDIENCE_H_
