#include "programs/revisions/sessions/sweeper.h"

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/kube/status.h"

namespace cbt::kube::sessions {
namespace {

bool Names(const cluster::SnapshotSessionRequest& request, const Object& data) {
  return request.status.state == cluster::kReady && request.status.token == data.name();
}

bool IsFinal(const cluster::SnapshotSessionRequest& request) {
  return request.status.state == cluster::kReady || request.status.state == cluster::kFailed;
}

}  // namespace

void Sweeper::Sweep() {
  const Time now = std::chrono::time_point_cast<Time::duration>(std::chrono::system_clock::now());
  // Data first: the session is over even if the request can't be deleted.
  for (const ObjectPtr& object : data_.All()) SweepData(*object, now);
  for (const ObjectPtr& object : requests_.All()) SweepRequest(*object, now);
}

void Sweeper::SweepRequest(const Object& object, Time now) {
  if (object.being_deleted()) return;
  const absl::StatusOr<cluster::SnapshotSessionRequest> request =
      cluster::SnapshotSessionRequest::Decode(object);
  if (!request.ok()) return log_.Failed("request not understood", request.status());
  const std::string key = absl::StrCat(request->meta.name_space, "/", request->meta.name);
  if (request->status.expires.has_value() && *request->status.expires <= now) {
    if (!Delete(cluster::kSnapshotSessionRequests, object)) return;
    ++counters_.requests_removed;
    return log_.Write(rpc::LogLevel::kInfo, "expired request removed",
                      {{.key = "request", .value = key}});
  }
  if (!IsFinal(*request)) pending_(key);
}

void Sweeper::SweepData(const Object& object, Time now) {
  if (object.being_deleted()) return;
  const absl::StatusOr<cluster::SnapshotSessionData> data =
      cluster::SnapshotSessionData::Decode(object);
  if (!data.ok()) return log_.Failed("session data not understood", data.status());
  if (data->expires > now) {
    const absl::StatusOr<bool> orphan = IsOrphan(object, *data);
    if (!orphan.ok()) return log_.Failed("request of session data not read", orphan.status());
    if (!*orphan) return;
  }
  if (Delete(cluster::kSnapshotSessionData, object)) ++counters_.data_removed;
}

absl::StatusOr<bool> Sweeper::IsOrphan(const Object& object,
                                       const cluster::SnapshotSessionData& data) {
  const std::optional<std::string_view> uid = object.label(cluster::kRequestLabel);
  const std::optional<std::string_view> name = object.annotation(cluster::kRequestNameAnnotation);
  if (!uid.has_value() || !name.has_value()) return false;
  const ObjectPtr seen = requests_.Find(data.snapshot_namespace, *name);
  if (seen != nullptr && seen->uid() == *uid) {
    const absl::StatusOr<cluster::SnapshotSessionRequest> request =
        cluster::SnapshotSessionRequest::Decode(*seen);
    if (request.ok() && (!IsFinal(*request) || Names(*request, object))) return false;
  }
  const absl::StatusOr<cluster::SnapshotSessionRequest> request =
      client_.Get<cluster::SnapshotSessionRequest>(data.snapshot_namespace, *name);
  if (absl::IsNotFound(request.status())) return true;
  if (!request.ok()) return request.status();
  if (request->meta.uid != *uid) return true;
  return IsFinal(*request) && !Names(*request, object);
}

bool Sweeper::Delete(const Resource& resource, const Object& object) {
  if (!may_act_()) return false;
  DeleteOptions options;
  options.uid = std::string(object.uid());
  const absl::Status deleted =
      client_.Delete(resource, object.name_space(), object.name(), options);
  if (deleted.ok()) return true;
  // Gone already, or another one by now.
  if (absl::IsNotFound(deleted) || IsConflict(deleted)) return false;
  // Without the text: it may quote the name of data, which is the token.
  log_.Failed("object not removed", absl::Status(deleted.code(), ReasonOf(deleted)),
              {{.key = "kind", .value = std::string(resource.kind)}});
  return false;
}

}  // namespace cbt::kube::sessions
