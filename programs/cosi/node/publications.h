// Which volume was published for which Pod: kubelet does not say it again at the end.
#ifndef CBT_PROGRAMS_COSI_NODE_PUBLICATIONS_H_
#define CBT_PROGRAMS_COSI_NODE_PUBLICATIONS_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace cbt::kube::cosi {

struct Publication {
  std::string access = {};  // BucketAccess
  std::string pod_uid = {};
};

// One file for each volume. No credentials are in it. Thread safe for different volumes.
class Publications {
 public:
  explicit Publications(std::string directory) : directory_(std::move(directory)) {}

  // Makes the directory. Errors: INVALID_ARGUMENT.
  absl::Status Prepare() const;
  // Errors: INVALID_ARGUMENT for a volume ID that is no name of a file; INTERNAL.
  absl::Status Store(const std::string& volume_id, const Publication& publication) const;
  // Nothing also for one that can't be read.
  std::optional<Publication> Find(const std::string& volume_id) const;
  void Forget(const std::string& volume_id) const;

 private:
  std::optional<std::string> PathOf(const std::string& volume_id) const;

  const std::string directory_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_PUBLICATIONS_H_
