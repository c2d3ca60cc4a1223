#include "programs/sidecar/audience.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/text.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "cbt/kube/object.h"
#include "programs/cluster/published_object.h"
#include "programs/cluster/snapshot_lookup.h"

namespace cbt::kube::sidecar {
namespace {

absl::StatusOr<std::string> AudienceOf(const absl::StatusOr<SnapshotMetadataService>& service) {
  if (!service.ok()) return service.status();
  // Without an audience the API server would accept tokens that are meant for itself.
  if (service->audience.empty()) return absl::UnavailableError("the audience is empty");
  return service->audience;
}

// The text of one part of a JSON web token; empty for anything else.
std::string PartOf(std::string_view part) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(AbslView(part), &bytes)) return {};
  return bytes;
}

}  // namespace

std::vector<std::string> AudiencesOf(std::string_view token) {
  const size_t first = token.find('.');
  const size_t second = first == std::string_view::npos ? first : token.find('.', first + 1);
  if (second == std::string_view::npos) return {};
  const absl::StatusOr<Object> claims =
      Object::Parse(PartOf(token.substr(first + 1, second - first - 1)));
  if (!claims.ok()) return {};
  if (absl::StatusOr<std::vector<std::string>> several = claims->Strings({"aud"}); several.ok()) {
    return *std::move(several);
  }
  const absl::StatusOr<std::string> one = claims->String({"aud"});
  if (!one.ok()) return {};
  return {*one};
}

std::vector<std::string> OwnAudiences(const Config& cluster, ops::EventLog& log) {
  if (cluster.token_file.empty()) return AudiencesOf(cluster.token.Reveal());
  absl::StatusOr<std::string> token = ReadSmallFile(cluster.token_file);
  if (!token.ok()) {
    log.Failed("own token not read", token.status(),
               {{.key = "means",
                 .value = "whether the audience is that of the API server itself is not checked"}});
    return {};
  }
  const Wiper wiper(*token);
  return AudiencesOf(*token);
}

Audience::Audience(std::string fixed, bool publishes, const cluster::Driver& driver,
                   cluster::Objects& watched, cluster::Objects& live,
                   std::vector<std::string> api_server, ops::EventLog& log)
    : fixed_(std::move(fixed)),
      publishes_(publishes),
      driver_(driver),
      watched_(watched),
      live_(live),
      api_server_(std::move(api_server)),
      log_(log),
      kept_({.yes_time = std::chrono::seconds(1),
             .no_time = std::chrono::milliseconds(0),
             .max_entries = 1,
             .unknown_time = std::chrono::seconds(1)}) {}

void Audience::Get(cluster::Found<std::string> done) {
  Find([this, done = std::move(done)](absl::StatusOr<std::string> audience) {
    if (audience.ok()) Judge(*audience);
    done(std::move(audience));
  });
}

void Audience::Judge(const std::string& audience) {
  {
    const std::lock_guard lock(mutex_);
    if (judged_ == audience) return;
    judged_ = audience;
  }
  if (std::find(api_server_.begin(), api_server_.end(), audience) == api_server_.end()) return;
  log_.Write(rpc::LogLevel::kWarning, "the audience is that of the API server itself",
             {{.key = "audience", .value = audience},
              {.key = "means",
               .value = "the token of every pod is accepted here, and one that is "
                        "sent here opens the API server"}});
}

void Audience::Find(cluster::Found<std::string> done) {
  if (!fixed_.empty()) return done(fixed_);
  const std::string name = driver_.name();
  if (name.empty()) return done(absl::UnavailableError("the driver has not said its name"));
  if (publishes_) return done(cluster::PublishedAudience(fixed_, name));
  const auto find = [name](cluster::Objects& objects, const cluster::Found<std::string>& found) {
    objects.GetService(name, [found](const absl::StatusOr<SnapshotMetadataService>& service) {
      found(AudienceOf(service));
    });
  };
  const auto keep = [this, name](const cluster::Found<std::string>& found,
                                 const cluster::AskLive<std::string>& ask) {
    const std::string_view parts[] = {name};
    kept_.Ask(cluster::KeyOf(parts), found,
              [this, name, ask](cluster::AnswerCache<std::string>::Done answer) {
                ask([this, name,
                     answer = std::move(answer)](const absl::StatusOr<std::string>& audience) {
                  if (audience.ok()) return answer(audience);
                  log_.Write(rpc::LogLevel::kError, "no audience",
                             {{.key = "snapshotmetadataservice", .value = name},
                              {.key = "code",
                               .value = absl::StatusCodeToString(audience.status().code())}});
                  answer(absl::UnavailableError("the audience is not known"));
                });
              });
  };
  cluster::FindWatchedOrLive<std::string>(watched_, live_, find, std::move(done), keep);
}

}  // namespace cbt::kube::sidecar
