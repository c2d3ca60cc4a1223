// Takes the finalizers of Pods that are gone from accesses (S21): their node may never come back.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_POD_SWEEPER_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_POD_SWEEPER_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/controller/part.h"

namespace cbt::kube::cosi {

// Accesses are looked at first and Pods are listed afterwards, so a finalizer that names no Pod of
// the list is of one that has ended. Only namespaces whose accesses have such finalizers are
// listed.
class PodSweeper {
 public:
  explicit PodSweeper(const Tools& tools) : tools_(tools) {}

  // One round. Blocks. What fails is for the next round.
  void Sweep();

 private:
  absl::StatusOr<std::set<std::string>> FinalizersIn(const std::string& name_space);
  void SweepAccess(const Object& access, const std::set<std::string>& living);

  const Tools& tools_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_POD_SWEEPER_H_
