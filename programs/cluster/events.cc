#include "programs/cluster/events.h"

#include <algorithm>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace cbt::kube::cluster {
namespace {

// What the API server takes of a note.
constexpr size_t kMaxText = 1000;
// Events about objects without a namespace are kept there, as everywhere in Kubernetes.
constexpr char kDefaultNamespace[] = "default";

std::string Now() {
  return FormatTime(std::chrono::time_point_cast<Time::duration>(std::chrono::system_clock::now()));
}

std::string Shortened(std::string_view text) {
  std::string one(text.substr(0, kMaxText));
  while (!IsUtf8(one)) one.pop_back();
  return one;
}

}  // namespace

Subject SubjectOf(const Resource& resource, const ObjectMeta& meta) {
  return {.resource = resource, .name_space = meta.name_space, .name = meta.name, .uid = meta.uid};
}

bool Events::IsDue(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (sent_.size() >= kMaxRemembered) {
    std::erase_if(sent_, [&](const auto& one) { return now - one.second >= kAgain; });
    if (sent_.size() >= kMaxRemembered) sent_.clear();
  }
  const auto [at, is_new] = sent_.try_emplace(name, now);
  if (!is_new && now - at->second < kAgain) return false;
  at->second = now;
  return true;
}

void Events::Send(const Subject& subject, std::string_view type, std::string_view reason,
                  std::string_view text) {
  const std::string words = Shortened(text);
  // The same words have the same name, also after a restart.
  const size_t digest = std::hash<std::string>()(
      absl::StrCat(subject.uid, "/", AbslView(reason), "/", component_, "/", words));
  const std::string name = absl::StrFormat("%s.%016x", subject.name.substr(0, 230), digest);
  if (!IsDue(name)) return;
  const std::string name_space =
      subject.name_space.empty() ? kDefaultNamespace : subject.name_space;
  const std::string now = Now();
  Object event("v1", "Event", name_space, name);
  event.SetString({"involvedObject", "apiVersion"}, subject.resource.ApiVersion());
  event.SetString({"involvedObject", "kind"}, subject.resource.kind);
  event.SetString({"involvedObject", "namespace"}, subject.name_space);
  event.SetString({"involvedObject", "name"}, subject.name);
  event.SetString({"involvedObject", "uid"}, subject.uid);
  event.SetString({"type"}, type);
  event.SetString({"reason"}, reason);
  event.SetString({"message"}, words);
  event.SetString({"source", "component"}, component_);
  event.SetString({"firstTimestamp"}, now);
  event.SetString({"lastTimestamp"}, now);
  event.SetInt({"count"}, 1);
  client_.CreateAsync(kEvents, event, {},
                      [this, name_space, name, now](const absl::StatusOr<Object>& made) {
                        if (absl::IsAlreadyExists(made.status())) {
                          client_.PatchAsync(kEvents, name_space, name, PatchType::kMerge,
                                             absl::StrCat(R"({"lastTimestamp":")", now, R"("})"),
                                             {}, [](const absl::StatusOr<Object>&) {});
                        } else if (!made.ok()) {
                          log_.Failed("event not sent", made.status());
                        }
                      });
}

}  // namespace cbt::kube::cluster
