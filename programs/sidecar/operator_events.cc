#include "programs/sidecar/operator_events.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::sidecar {
namespace {

struct Mention {
  std::string_view event;  // of the log
  std::string_view reason;
  // Only records whose field has this value; empty: all.
  std::string_view key = {};
  std::string_view value = {};
};

constexpr Mention kMentions[] = {
    {"plugin not ready", "PluginNotReady"},
    {"plugin failed", "PluginFailed"},
    {"service not published", "NotPublished"},
    {"objects not watched", "ObjectsNotWatched"},
    {"no audience", "NoAudience"},
    {"the audience is that of the API server itself", "AudienceOfApiServer"},
    {"TokenReview failed", "CallersNotReviewed"},
    {"SubjectAccessReview failed", "CallersNotReviewed"},
    {"secrets can't be read", "SecretNotRead"},
    {"server", "ClientCaNotUsable", "what", "client_ca_unusable"},
};

std::string_view Value(std::span<const rpc::LogField> fields, std::string_view key) {
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [key](const rpc::LogField& one) { return one.key == key; });
  return field == fields.end() ? std::string_view() : std::string_view(field->value);
}

const Mention* FindMention(std::string_view event, std::span<const rpc::LogField> fields) {
  const auto* const found =
      std::find_if(std::begin(kMentions), std::end(kMentions), [&](const Mention& mention) {
        return mention.event == event &&
               (mention.key.empty() || Value(fields, mention.key) == mention.value);
      });
  return found == std::end(kMentions) ? nullptr : found;
}

// The same words for the same trouble, or each repetition would be an Event of its own: without the
// names of what a client has asked for, and the text that differs for each stream. The log has them.
std::string TextOf(std::string_view event, std::span<const rpc::LogField> fields) {
  constexpr std::string_view kLeftOut[] = {"error",     "omitted",  "unlogged",
                                           "namespace", "snapshot", "class"};
  std::string text(event);
  for (const rpc::LogField& field : fields) {
    if (std::find(std::begin(kLeftOut), std::end(kLeftOut), field.key) != std::end(kLeftOut) ||
        (event == "plugin failed" && field.key == "text")) {
      continue;
    }
    absl::StrAppend(&text, ", ", AbslView(field.key), ": ", AbslView(field.value));
  }
  return text;
}

}  // namespace

void OperatorEvents::Start(Client& client, const cluster::Driver& driver,
                           cluster::Objects& watched) {
  const std::unique_lock lock(mutex_);
  events_.emplace(client, "cbt-sidecar", log_);
  driver_ = &driver;
  watched_ = &watched;
  started_ = true;
}

void OperatorEvents::Stop() {
  const std::unique_lock lock(mutex_);
  started_ = false;
}

bool OperatorEvents::Wants(rpc::LogLevel level) const noexcept {
  return level >= rpc::LogLevel::kWarning || (next_ != nullptr && next_->Wants(level));
}

void OperatorEvents::Write(rpc::LogLevel level, std::string_view event,
                           std::span<const rpc::LogField> fields) noexcept {
  if (next_ != nullptr && next_->Wants(level)) next_->Write(level, event, fields);
  try {
    Send(event, fields);
  } catch (const std::bad_alloc&) {
    return;  // the log has it
  }
}

cluster::Subject OperatorEvents::Service() const {
  cluster::Subject subject = {.resource = kSnapshotMetadataServices, .name = driver_->name()};
  // Without the object's UID, `kubectl get events` shows it.
  if (subject.name.empty()) return subject;
  watched_->GetService(subject.name, [&](const absl::StatusOr<SnapshotMetadataService>& service) {
    if (service.ok()) subject.uid = service->meta.uid;
  });
  return subject;
}

void OperatorEvents::Send(std::string_view event, std::span<const rpc::LogField> fields) {
  const Mention* const mention = FindMention(event, fields);
  if (mention == nullptr) return;
  const std::shared_lock lock(mutex_);
  if (!started_) return;
  cluster::Subject subject;
  const std::string class_name(Value(fields, "class"));
  if (!class_name.empty()) {
    subject = {.resource = kVolumeSnapshotClasses, .name = class_name};
    watched_->GetClass(class_name, [&](const absl::StatusOr<VolumeSnapshotClass>& one) {
      if (one.ok()) subject.uid = one->meta.uid;
    });
  } else {
    subject = Service();
  }
  if (subject.name.empty()) return;  // the plugin has never said its name
  events_->Warn(subject, mention->reason, TextOf(event, fields));
}

}  // namespace cbt::kube::sidecar
