// Keeps the SnapshotMetadataService object of the driver current.
#ifndef CBT_KUBE_SIDECAR_PUBLISHER_H_
#define CBT_KUBE_SIDECAR_PUBLISHER_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "cbt/kube/client.h"
#include "kube/sidecar/driver.h"
#include "kube/sidecar/objects/objects.h"
#include "kube/sidecar/options.h"
#include "ops/event_log.h"

namespace cbt::kube::sidecar {

// Writes address, audience and CA by server-side apply once the driver's name is known; again
// within seconds when the CA's file or the object changes, and after failures with growing waits.
// While the file can't be used, what was published stays.
class Publisher {
 public:
  // `certificate_file`: the server's own. All must outlive the object. Throws std::system_error if
  // no thread can be started.
  Publisher(Client& client, Objects& watched, const Driver& driver, const Publication& publication,
            const std::string& certificate_file, const std::string& audience, ops::EventLog& log);
  // A request that is under way is waited for.
  ~Publisher() = default;
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

 private:
  void Run(const std::stop_token& stop);
  // Whether the object is known to be as it should.
  bool IsCurrent(const std::string& driver, const std::string& authorities);
  absl::Status Apply(const std::string& driver, const std::string& authorities);
  absl::StatusOr<std::string> ReadAuthorities() const;

  Client& client_;
  Objects& watched_;
  const Driver& driver_;
  const std::string address_;
  const std::string ca_file_;
  const std::string certificate_file_;
  const std::string audience_;
  ops::EventLog& log_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_KUBE_SIDECAR_PUBLISHER_H_
