#include "programs/cosi/node/volumes.h"

#include <sys/types.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "programs/cosi/node/credentials_mount.h"

namespace cbt::kube::cosi {
namespace {

constexpr char kEphemeral[] = "csi.storage.k8s.io/ephemeral";
constexpr char kPodName[] = "csi.storage.k8s.io/pod.name";
constexpr char kPodNamespace[] = "csi.storage.k8s.io/pod.namespace";
constexpr char kPodUid[] = "csi.storage.k8s.io/pod.uid";
constexpr char kRequestName[] = "bucketAccessRequestName";

absl::StatusOr<std::optional<gid_t>> GroupOf(const PublishRequest& request) {
  if (request.mount_group.empty()) return std::optional<gid_t>();
  uint32_t group = 0;
  if (!absl::SimpleAtoi(request.mount_group, &group)) {
    return absl::InvalidArgumentError("volume_mount_group: expected a number");
  }
  return std::optional<gid_t>(group);
}

// The API server's codes mean something else to kubelet.
absl::Status AsUnavailable(const absl::Status& status) {
  if (status.ok() || absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat("the API server: ", status.message()));
}

}  // namespace

absl::Status Volumes::Publish(const PublishRequest& request) {
  const Pod pod = {.name_space = request.At(kPodNamespace),
                   .name = request.At(kPodName),
                   .uid = request.At(kPodUid)};
  if (request.At(kEphemeral) != "true" || pod.uid.empty() || pod.name_space.empty()) {
    return absl::InvalidArgumentError(
        "volume_context: expected an inline volume of a Pod, with podInfoOnMount");
  }
  const std::string& name = request.At(kRequestName);
  if (name.empty()) {
    return absl::InvalidArgumentError("volumeAttributes: bucketAccessRequestName is missing");
  }
  const absl::StatusOr<std::optional<gid_t>> group = GroupOf(request);
  if (!group.ok()) return group.status();
  const absl::StatusOr<PodAccess::Granted> granted = access_.Find(pod, name);
  if (!granted.ok()) return AsUnavailable(granted.status());
  const std::string access(granted->access.name());
  const Publication publication = {.access = access, .pod_uid = pod.uid};
  if (absl::Status noted = publications_.Store(request.volume_id, publication); !noted.ok()) {
    return noted;
  }
  if (absl::Status held = access_.Hold(granted->access, pod); !held.ok()) {
    return AsUnavailable(held);
  }
  absl::Status mounted = MountCredentials(request.target_path, *group, granted->files);
  if (mounted.ok()) {
    log_.Write(rpc::LogLevel::kInfo, "credentials mounted",
               {{.key = "pod", .value = pod.name_space + "/" + pod.name},
                {.key = "access", .value = access}});
  }
  return mounted;
}

absl::Status Volumes::Unpublish(const UnpublishRequest& request) {
  if (absl::Status gone = UnmountCredentials(request.target_path); !gone.ok()) return gone;
  const std::optional<Publication> publication = publications_.Find(request.volume_id);
  if (!publication.has_value()) return absl::OkStatus();
  const absl::Status released = access_.Release(publication->access, publication->pod_uid);
  if (!released.ok()) {
    log_.Failed("finalizer of a pod left to the controller", released,
                {{.key = "access", .value = publication->access}});
  }
  publications_.Forget(request.volume_id);
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi
