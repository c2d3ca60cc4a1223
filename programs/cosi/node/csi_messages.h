// The messages of csi.v1 that a node of inline ephemeral volumes needs, as bytes.
#ifndef CBT_PROGRAMS_COSI_NODE_CSI_MESSAGES_H_
#define CBT_PROGRAMS_COSI_NODE_CSI_MESSAGES_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace cbt::kube::cosi {

struct PublishRequest {
  std::string volume_id = {};
  std::string target_path = {};
  bool has_capability = false;
  bool is_mount = false;
  std::string mount_group = {};  // the Pod's fsGroup, as a number
  std::map<std::string, std::string> context = {};

  const std::string& At(const std::string& key) const;  // empty if absent
};

struct UnpublishRequest {
  std::string volume_id = {};
  std::string target_path = {};
};

// Errors: INVALID_ARGUMENT, without the request's bytes. What a request must have is checked here.
absl::StatusOr<PublishRequest> DecodePublish(std::span<const uint8_t> request);
absl::StatusOr<UnpublishRequest> DecodeUnpublish(std::span<const uint8_t> request);

std::string EncodePluginInfo(const std::string& name, const std::string& version);
std::string EncodeNodeInfo(const std::string& node_id);
// VOLUME_MOUNT_GROUP and nothing else: nothing is staged (S1).
std::string EncodeNodeCapabilities();
std::string EncodeReady();

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_CSI_MESSAGES_H_
