#include "programs/revisions/aggregated/discovery_controller.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/kube/status.h"

namespace cbt::kube::aggregated {
namespace {

constexpr std::chrono::seconds kTimeout{5};
constexpr size_t kThreads = 4;
constexpr WorkQueueOptions kRetries = {.first_retry = std::chrono::milliseconds(200),
                                       .max_retry = std::chrono::seconds(30)};

Reachability Unreachable(const char* reason, const absl::Status& error) {
  return {.reachable = false, .reason = reason, .message = std::string(error.message())};
}

}  // namespace

DiscoveryController::DiscoveryController(Client& client, Upstream& upstream,
                                         std::function<ObjectPtr(const std::string&)> find,
                                         std::function<bool()> may_act, ops::EventLog& log)
    : client_(client),
      upstream_(upstream),
      find_(std::move(find)),
      may_act_(std::move(may_act)),
      log_(log),
      queue_(kRetries) {}

void DiscoveryController::Start() {
  workers_ = std::make_unique<Workers>(
      queue_, kThreads, [this](const std::string& name) { return Reconcile(name); },
      [this](const std::string& name, const absl::Status& error) {
        log_.Failed("condition not written", error, {{.key = "discovery", .value = name}});
      });
}

Reachability DiscoveryController::Ask(const Object& object) {
  const absl::StatusOr<DriverDiscovery> service = DriverDiscovery::Decode(object);
  if (!service.ok()) return Unreachable("Invalid", service.status());
  const absl::Status status = upstream_.Check(*service, kTimeout);
  if (status.ok()) {
    return {.reachable = true, .reason = "Answers", .message = "the service is ready"};
  }
  if (absl::IsUnauthenticated(status)) return Unreachable("Refused", status);
  return Unreachable(HttpCodeOf(status) != 0 ? "NotReady" : "NoAnswer", status);
}

absl::Status DiscoveryController::Reconcile(const std::string& name) {
  const ObjectPtr seen = find_(name);
  if (seen == nullptr || seen->being_deleted() || !may_act_()) return absl::OkStatus();
  Object object = *seen;
  const Reachability is = Ask(object);
  const Time now = std::chrono::time_point_cast<Time::duration>(std::chrono::system_clock::now());
  if (!SetReachability(object, is, now) || !may_act_()) return absl::OkStatus();
  WriteOptions options;
  options.subresource = "status";
  options.field_manager = "cbt-aggregated-api";
  const absl::Status written = client_.Update(kDriverDiscoveries, object, options).status();
  // Gone, or changed since it was seen: what has changed is looked at soon.
  if (absl::IsNotFound(written) || IsConflict(written)) return absl::OkStatus();
  if (!written.ok()) return written;
  log_.Write(rpc::LogLevel::kInfo, is.reachable ? "driver reachable" : "driver not reachable",
             {{.key = "discovery", .value = name},
              {.key = "reason", .value = is.reason},
              {.key = "message", .value = is.message}});
  return absl::OkStatus();
}

}  // namespace cbt::kube::aggregated
