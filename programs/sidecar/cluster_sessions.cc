#include "programs/sidecar/cluster_sessions.h"

#include <openssl/sha.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "programs/cluster/object_name.h"
#include "programs/cluster/session_objects.h"

namespace cbt::kube::sidecar {
namespace {

using cluster::SnapshotSessionData;

constexpr char kByHash[] = "hash";
// The names of other objects are no tokens: they could be guessed.
constexpr size_t kShortestToken = 32;

// An attacker can't choose what a guess is compared with.
std::string HashOf(std::string_view token) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash);
  return std::string(reinterpret_cast<const char*>(hash), sizeof hash);
}

absl::StatusOr<rpc::Session> SessionOf(const absl::StatusOr<cluster::SnapshotSessionData>& data) {
  if (!data.ok()) return absl::UnavailableError("the session can't be read");
  if (data->expires <= std::chrono::system_clock::now()) {
    return absl::UnauthenticatedError("the session has expired");
  }
  return rpc::Session{.name_space = data->snapshot_namespace,
                      .snapshots = data->snapshots,
                      .expires = data->expires};
}

}  // namespace

ClusterSessions::ClusterSessions(Client& callers, std::string name_space,
                                 std::chrono::milliseconds timeout, ops::EventLog& log)
    : callers_(callers), name_space_(std::move(name_space)), timeout_(timeout), log_(log) {}

absl::StatusOr<std::unique_ptr<ClusterSessions>> ClusterSessions::Create(
    Client& watches, Client& callers, const std::string& name_space,
    std::chrono::milliseconds timeout, ops::EventLog& log) {
  if (!cluster::IsNamespaceName(name_space)) {
    return absl::InvalidArgumentError("session namespace: '" + name_space + "' is no namespace");
  }
  std::unique_ptr<ClusterSessions> made(new ClusterSessions(callers, name_space, timeout, log));
  CacheOptions options;
  options.name_space = name_space;
  options.indexes[kByHash] = [](const Object& object) {
    return std::vector<std::string>{HashOf(object.name())};
  };
  auto watch =
      cluster::FreshCache::Create(watches, cluster::kSnapshotSessionData, std::move(options));
  if (!watch.ok()) return watch.status();
  made->watch_ = *std::move(watch);
  return made;
}

ObjectPtr ClusterSessions::FindWatched(std::string_view token) const {
  return watch_
      ->With([token](const ObjectCache& cache) -> absl::StatusOr<ObjectPtr> {
        const std::vector<ObjectPtr> found = cache.ByIndex(kByHash, HashOf(token));
        return found.empty() ? nullptr : found.front();
      })
      .value_or(nullptr);
}

void ClusterSessions::FindFrom(const std::string& peer, const Secret& token,
                               rpc::Done<rpc::Session> done) {
  const std::string_view name = token.Reveal();
  // The API server could take other texts for something else than a name.
  if (name.size() < kShortestToken || !cluster::IsObjectName(name)) {
    return done(absl::UnauthenticatedError("this is no token"));
  }
  if (const ObjectPtr seen = FindWatched(name); seen != nullptr) {
    return done(SessionOf(cluster::SnapshotSessionData::Decode(*seen)));
  }
  const std::string_view parts[] = {name};
  std::optional<FairPlaces::Place> place = strangers_.Enter(cluster::KeyOf(parts), peer);
  if (!place.has_value()) {
    log_.Write(rpc::LogLevel::kWarning, "too many unknown tokens",
               {{.key = "address", .value = peer}});
    return done(absl::UnavailableError("too many unknown tokens"));
  }
  // Callbacks are copied.
  auto held = std::make_shared<FairPlaces::Place>(*std::move(place));
  GetOptions options;
  options.timeout = timeout_;
  callers_.GetAsync<cluster::SnapshotSessionData>(
      name_space_, name, options,
      [this, held = std::move(held),
       done = std::move(done)](const absl::StatusOr<cluster::SnapshotSessionData>& data) {
        held->Release();
        if (absl::IsNotFound(data.status())) {
          return done(absl::UnauthenticatedError("no such session"));
        }
        // Without the text: it may quote the name, which is the token.
        if (!data.ok()) {
          log_.Failed("session not read", absl::Status(data.status().code(), ""));
          return done(absl::UnavailableError("the session can't be read now"));
        }
        done(SessionOf(data));
      });
}

}  // namespace cbt::kube::sidecar
