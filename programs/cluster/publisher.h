// Keeps an object current in which clients find the driver's service.
#ifndef CBT_PROGRAMS_CLUSTER_PUBLISHER_H_
#define CBT_PROGRAMS_CLUSTER_PUBLISHER_H_

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/published_object.h"

namespace cbt::kube::cluster {

// Writes the object by server-side apply once the driver's name is known; again within seconds when
// the CA's file or the object changes, and after failures with growing waits. An object that is not
// watched is written every five minutes. While the file can't be used, what was published stays.
class Publisher {
 public:
  // `ca_file` may be empty: see Publication. `certificate_file`: the server's own. All must outlive
  // the object. Throws std::system_error if no thread can be started.
  Publisher(Client& client, std::unique_ptr<const PublishedObject> object, const Driver& driver,
            const std::string& ca_file, const std::string& certificate_file, ops::EventLog& log);
  // A request that is under way is waited for.
  ~Publisher() = default;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

 private:
  void Run(const std::stop_token& stop);
  absl::Status Apply(const Object& object);
  absl::StatusOr<std::string> ReadAuthorities() const;

  Client& client_;
  const std::unique_ptr<const PublishedObject> object_;
  const Driver& driver_;
  const std::string ca_file_;
  const std::string certificate_file_;
  ops::EventLog& log_;

  std::jthread thread_;  // last: it uses the others
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_PUBLISHER_H_
