#include "kube/sidecar/audience.h"

#include <chrono>
#include <string_view>
#include <utility>

namespace cbt::kube::sidecar {
namespace {

absl::StatusOr<std::string> AudienceOf(const absl::StatusOr<SnapshotMetadataService>& service) {
  if (!service.ok()) return service.status();
  // Without an audience the API server would accept tokens that are meant for itself.
  if (service->audience.empty()) return absl::UnavailableError("the audience is empty");
  return service->audience;
}

}  // namespace

std::string PublishedAudience(const std::string& configured, const std::string& driver) {
  return configured.empty() ? driver : configured;
}

Audience::Audience(std::string fixed, bool publishes, const Driver& driver, Objects& watched,
                   Objects& live, ops::EventLog& log)
    : fixed_(std::move(fixed)),
      publishes_(publishes),
      driver_(driver),
      watched_(watched),
      live_(live),
      log_(log),
      kept_({.yes_time = std::chrono::seconds(1),
             .no_time = std::chrono::milliseconds(0),
             .max_entries = 1}) {}

void Audience::Get(Found<std::string> done) {
  if (!fixed_.empty()) return done(fixed_);
  const std::string name = driver_.name();
  if (name.empty()) return done(absl::UnavailableError("the driver has not said its name"));
  if (publishes_) return done(PublishedAudience(fixed_, name));
  watched_.GetService(name, [this, name, done = std::move(done)](
                                const absl::StatusOr<SnapshotMetadataService>& seen) {
    if (absl::StatusOr<std::string> audience = AudienceOf(seen); audience.ok()) {
      return done(std::move(audience));
    }
    const std::string_view parts[] = {name};
    kept_.Ask(KeyOf(parts), done, [this, name](AnswerCache<std::string>::Done answer) {
      live_.GetService(name, [this, name, answer = std::move(answer)](
                                 const absl::StatusOr<SnapshotMetadataService>& service) {
        const absl::StatusOr<std::string> audience = AudienceOf(service);
        if (audience.ok()) return answer(audience);
        log_.Write(rpc::LogLevel::kError, "no audience",
                   {{.key = "snapshotmetadataservice", .value = name},
                    {.key = "code", .value = absl::StatusCodeToString(service.status().code())}});
        answer(absl::UnavailableError("the audience is not known"));
      });
    });
  });
}

}  // namespace cbt::kube::sidecar
