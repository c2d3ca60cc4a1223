#include "repository/snapshot.h"

#include <algorithm>

#include "absl/status/status.h"
#include "base/json_builder.h"
#include "repository/host.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

void AddTexts(JsonBuilder& json, const char* name, const std::vector<std::string>& texts) {
  json.Key(name).BeginArray();
  for (const std::string& text : texts) json.Value(text);
  json.EndArray();
}

}  // namespace

std::optional<std::string> Snapshot::Tag(std::string_view name) const {
  for (const std::string& tag : tags) {
    if (tag.size() > name.size() && tag.starts_with(name) && tag[name.size()] == '=') {
      return tag.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

bool Snapshot::HasTag(std::string_view tag) const {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

absl::StatusOr<Snapshot> DecodeSnapshot(std::string_view json) {
  std::string text(json);
  rapidjson::Document object;
  if (absl::Status parsed = ParseObject(text, object); !parsed.ok()) return parsed;
  Snapshot snapshot;
  const std::optional<Id> tree = Id::Parse(TextOf(object, "tree"));
  const std::optional<absl::Time> time = ParseTimeText(TextOf(object, "time"));
  if (!tree.has_value() || !time.has_value()) {
    return absl::DataLossError("is a snapshot without a tree or a time");
  }
  snapshot.tree = *tree;
  snapshot.time = *time;
  snapshot.parent = Id::Parse(TextOf(object, "parent"));
  snapshot.paths = TextsOf(object, "paths");
  snapshot.tags = TextsOf(object, "tags");
  snapshot.host = TextOf(object, "hostname");
  snapshot.user = TextOf(object, "username");
  snapshot.program = TextOf(object, "program_version");
  return snapshot;
}

std::string EncodeSnapshot(const Snapshot& snapshot) {
  JsonBuilder json;
  json.BeginObject().Field("time", TimeText(snapshot.time));
  if (snapshot.parent.has_value()) json.Field("parent", snapshot.parent->Hex());
  json.Field("tree", snapshot.tree.Hex());
  AddTexts(json, "paths", snapshot.paths);
  json.Field("hostname", snapshot.host).Field("username", snapshot.user);
  AddTexts(json, "tags", snapshot.tags);
  if (!snapshot.program.empty()) json.Field("program_version", snapshot.program);
  return json.EndObject().Take();
}

}  // namespace cbt::repository
