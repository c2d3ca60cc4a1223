// The node adapter: a CSI driver of inline ephemeral volumes with credentials of buckets.
#ifndef CBT_PROGRAMS_COSI_NODE_NODE_H_
#define CBT_PROGRAMS_COSI_NODE_NODE_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "programs/cosi/node/options.h"

namespace cbt::kube::cosi {

// A running adapter. Thread safe.
class Node {
 public:
  // The API server need not be there yet.
  // Errors: INVALID_ARGUMENT for options that can't work; those of Client::Create() and of
  //         listening.
  static absl::StatusOr<std::unique_ptr<Node>> Start(NodeOptions options);

  // Calls Shutdown() without grace unless it was called before.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int http_port() const noexcept;  // or 0
  std::string address() const;

  // Calls under way are finished for up to `grace`. Mounts stay: Pods use them.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_NODE_H_
