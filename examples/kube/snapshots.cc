// Prints the volume snapshots of a namespace and the handles that their storage knows them by.
//
//   snapshots [NAMESPACE]
//
// Finds the API server as kubectl does: KUBECONFIG, ~/.kube/config, or the pod that it runs in.
#include <cstdio>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"

namespace {

using cbt::kube::Client;
using cbt::kube::VolumeSnapshot;
using cbt::kube::VolumeSnapshotContent;

// The handle of a snapshot that is ready and bound in both directions; otherwise why it has none.
absl::StatusOr<std::string> HandleOf(Client& client, const VolumeSnapshot& snapshot) {
  if (!snapshot.status || !snapshot.status->ready_to_use.value_or(false) ||
      !snapshot.status->bound_content) {
    return absl::UnavailableError("not ready");
  }
  const auto content = client.Get<VolumeSnapshotContent>("", *snapshot.status->bound_content);
  if (!content.ok()) return content.status();
  if (content->snapshot_namespace != snapshot.meta.name_space ||
      content->snapshot_name != snapshot.meta.name || content->snapshot_uid != snapshot.meta.uid) {
    return absl::FailedPreconditionError("its content belongs to another snapshot");
  }
  if (!content->status || !content->status->snapshot_handle) {
    return absl::UnavailableError("no handle yet");
  }
  return *content->status->snapshot_handle;
}

absl::Status Print(const std::string& wanted) {
  // [list]
  auto config = cbt::kube::LoadDefaultConfig();
  if (!config.ok()) return config.status();
  const std::string name_space = wanted.empty() ? config->name_space : wanted;
  auto client = Client::Create(*std::move(config), {.user_agent = "snapshots/1.0"});
  if (!client.ok()) return client.status();

  const auto list = (*client)->ListAll(cbt::kube::kVolumeSnapshots, name_space);
  if (!list.ok()) return list.status();
  for (const cbt::kube::Object& object : list->items) {
    const auto snapshot = VolumeSnapshot::Decode(object);
    if (!snapshot.ok()) return snapshot.status();
    const auto handle = HandleOf(**client, *snapshot);
    std::printf("%s %s\n", snapshot->meta.name.c_str(),
                handle.ok() ? handle->c_str() : handle.status().ToString().c_str());
  }
  // [/list]
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Print(argc > 1 ? argv[1] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "snapshots: %s\n", status.ToString().c_str());
  return 1;
}
