// CSI's volume capabilities and topologies, as the driver understands them.
#ifndef CBT_PROGRAMS_DRIVER_USAGE_H_
#define CBT_PROGRAMS_DRIVER_USAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "csi.pb.h"
#include "programs/driver/node/node.h"

namespace cbt::driver {

// Errors: INVALID_ARGUMENT for a capability that is incomplete, or that a volume of one node can't
//         have.
absl::StatusOr<Usage> UsageOf(const csi::v1::VolumeCapability& capability);

// OK if a volume can be used so: a view, or another, perhaps made from a snapshot.
// Errors: INVALID_ARGUMENT.
absl::Status CheckUsage(const Usage& usage, bool view, bool of_snapshot);

// The node on which volumes can be reached: one label.
struct NodeTopology {
  std::string key;
  std::string node_id;

  void FillIn(csi::v1::Topology& topology) const;
  // True unless the topology is of another node.
  bool Matches(const csi::v1::Topology& topology) const;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_USAGE_H_
