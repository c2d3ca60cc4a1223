// Which audience tokens must have.
#ifndef CBT_PROGRAMS_SIDECAR_AUDIENCE_H_
#define CBT_PROGRAMS_SIDECAR_AUDIENCE_H_

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::sidecar {

// The audiences of a token that is a JSON web token; none of any other. The token is not verified.
std::vector<std::string> AudiencesOf(std::string_view token);

// Thread safe.
class Audience {
 public:
  // `fixed`: the audience. If it is empty and the sidecar publishes: the one that it publishes.
  // Otherwise that of the SnapshotMetadataService object named as the driver, from `watched` as
  // long as that is current, else from `live`, at most once a second. `api_server`: the audiences
  // of tokens for the API server itself, as far as they are known; one of them is used, and logged:
  // the sidecar accepts every pod's own token then. All must outlive the object.
  Audience(std::string fixed, bool publishes, const cluster::Driver& driver,
           cluster::Objects& watched, cluster::Objects& live, std::vector<std::string> api_server,
           ops::EventLog& log);

  // Calls `done` once, during the call or later, with the audience, which is not empty. Errors:
  // UNAVAILABLE.
  void Get(cluster::Found<std::string> done);

 private:
  void Find(cluster::Found<std::string> done);
  void Judge(const std::string& audience);

  const std::string fixed_;
  const bool publishes_;
  const cluster::Driver& driver_;
  cluster::Objects& watched_;
  cluster::Objects& live_;
  const std::vector<std::string> api_server_;
  ops::EventLog& log_;
  std::mutex mutex_;
  std::string judged_;  // the last one
  cluster::AnswerCache<std::string> kept_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_AUDIENCE_H_
