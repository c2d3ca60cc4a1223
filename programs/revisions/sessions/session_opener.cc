#include "programs/revisions/sessions/session_opener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/status.h"
#include "cbt/rpc/access.h"
#include "programs/revisions/sessions/driver_lookup.h"

namespace cbt::kube::sessions {
namespace {

Time Now() {
  return std::chrono::time_point_cast<Time::duration>(std::chrono::system_clock::now());
}

absl::Status NotActive() { return absl::UnavailableError("this process may not act any more"); }

// Without the text: it may quote the data's name, which is the token.
absl::Status WithoutText(const absl::Status& error, const char* what) {
  return {error.code(), absl::StrCat("session data: ", what, " failed")};
}

}  // namespace

absl::Status SessionOpener::Open(const std::string& key) {
  if (!may_act_()) return absl::OkStatus();
  const size_t slash = key.find('/');
  absl::StatusOr<Object> object =
      client_.Get(cluster::kSnapshotSessionRequests, key.substr(0, slash), key.substr(slash + 1));
  if (absl::IsNotFound(object.status())) return absl::OkStatus();
  if (!object.ok()) return object.status();
  absl::StatusOr<cluster::SnapshotSessionRequest> request =
      cluster::SnapshotSessionRequest::Decode(*object);
  if (!request.ok()) return request.status();
  if (object->being_deleted() || request->status.state == cluster::kReady ||
      request->status.state == cluster::kFailed) {
    return absl::OkStatus();
  }
  // Data is made for what is Pending only.
  const bool may_have_data = request->status.expires.has_value();
  if (absl::Status marked = MarkPending(*request, *object); !marked.ok()) return marked;
  // It is for the sweeper: a session must not be younger than its end.
  if (*request->status.expires <= Now()) return absl::OkStatus();

  const auto driver = FindDriver(client_, request->meta.name_space, request->snapshots);
  if (!driver.ok()) return driver.status();
  if (!driver->refusal.empty()) return Fail(*request, *object, driver->refusal);
  const auto configuration = FindConfiguration(client_, driver->value);
  if (!configuration.ok()) return configuration.status();
  if (!configuration->refusal.empty()) return Fail(*request, *object, configuration->refusal);

  absl::StatusOr<std::string> token = std::string();
  if (may_have_data) token = FindData(*request, configuration->value.driver_namespace);
  if (token.ok() && token->empty()) {
    token = MakeData(*request, configuration->value.driver_namespace);
  }
  if (!token.ok()) return token.status();
  request->status.state = cluster::kReady;
  request->status.token = *std::move(token);
  request->status.url = configuration->value.address;
  request->status.ca = configuration->value.ca;
  if (absl::Status stored = Store(*request, *object); !stored.ok()) return stored;
  ++counters_.sessions_ready;
  log_.Write(rpc::LogLevel::kInfo, "session opened",
             {{.key = "request", .value = key}, {.key = "driver", .value = driver->value}});
  return absl::OkStatus();
}

absl::Status SessionOpener::MarkPending(cluster::SnapshotSessionRequest& request, Object& object) {
  if (request.status.state == cluster::kPending && request.status.expires.has_value()) {
    return absl::OkStatus();
  }
  request.status.state = cluster::kPending;
  // As it will be read back: of whole seconds.
  request.status.expires = std::chrono::floor<std::chrono::seconds>(Now()) + session_time_;
  return Store(request, object);
}

absl::Status SessionOpener::Fail(cluster::SnapshotSessionRequest& request, Object& object,
                                 const std::string& why) {
  request.status.state = cluster::kFailed;
  request.status.error = why;
  if (absl::Status stored = Store(request, object); !stored.ok()) return stored;
  ++counters_.sessions_failed;
  log_.Write(
      rpc::LogLevel::kInfo, "session failed",
      {{.key = "request", .value = absl::StrCat(request.meta.name_space, "/", request.meta.name)},
       {.key = "text", .value = why}});
  return absl::OkStatus();
}

absl::Status SessionOpener::Store(const cluster::SnapshotSessionRequest& request, Object& object) {
  if (!may_act_()) return NotActive();
  request.WriteStatus(object);
  WriteOptions options;
  options.subresource = "status";
  absl::StatusOr<Object> stored =
      client_.Update(cluster::kSnapshotSessionRequests, object, options);
  // Without the text: it may quote the status.
  if (!stored.ok()) return {stored.status().code(), "the request's status was not stored"};
  object = *std::move(stored);
  return absl::OkStatus();
}

absl::StatusOr<std::string> SessionOpener::FindData(const cluster::SnapshotSessionRequest& request,
                                                    const std::string& driver_namespace) {
  ListOptions options;
  options.label_selector = absl::StrCat(AbslView(cluster::kRequestLabel), "=", request.meta.uid);
  const absl::StatusOr<ObjectList> list =
      client_.ListAll(cluster::kSnapshotSessionData, driver_namespace, options);
  if (!list.ok()) return WithoutText(list.status(), "list");
  for (const Object& object : list->items) {
    if (!object.being_deleted()) return std::string(object.name());
  }
  return std::string();
}

absl::StatusOr<std::string> SessionOpener::MakeData(const cluster::SnapshotSessionRequest& request,
                                                    const std::string& driver_namespace) {
  if (!may_act_()) return NotActive();
  cluster::SnapshotSessionData data;
  data.meta.name = std::string(rpc::RandomToken().Reveal());
  data.meta.name_space = driver_namespace;
  data.meta.labels[std::string(cluster::kRequestLabel)] = request.meta.uid;
  data.meta.annotations[std::string(cluster::kRequestNameAnnotation)] = request.meta.name;
  data.snapshot_namespace = request.meta.name_space;
  data.snapshots = request.snapshots;
  data.expires = *request.status.expires;
  const auto made = client_.Create(cluster::kSnapshotSessionData, data.Encode());
  // One that may have arrived is found in the next try, by its label.
  if (!made.ok()) return WithoutText(made.status(), "create");
  return data.meta.name;
}

}  // namespace cbt::kube::sessions
