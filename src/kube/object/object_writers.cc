// The writers of Object.
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/text.h"
#include "base/wipe.h"
#include "cbt/kube/object.h"
#include "kube/object/json.h"
#include "kube/object/list_index.h"
#include "kube/object/object_access.h"

namespace cbt::kube {
namespace {

using json::Value;
using Keys = std::span<const std::string_view>;

Value MakeStrings(const std::vector<std::string>& values) {
  Value list(rapidjson::kArrayType);
  list.Reserve(static_cast<rapidjson::SizeType>(values.size()), json::Allocator());
  for (const std::string& value : values) list.PushBack(json::MakeString(value), json::Allocator());
  return list;
}

void AddMember(Value& object, std::string_view key, Value&& value) {
  Value name = json::MakeString(key);
  object.AddMember(name, value, json::Allocator());
}

Value* FindMutable(Value& object, std::string_view key) noexcept {
  for (auto& member : json::Members(object)) {
    if (json::View(member.name) == key) return &member.value;
  }
  return nullptr;
}

// The value at `keys`, made where it is missing; null for an element that a list does not have.
Value* Ensure(Value& root, Keys keys) {
  Value* at = &root;
  for (const std::string_view key : keys) {
    if (at->IsArray()) {
      const std::optional<rapidjson::SizeType> index = IndexOf(key, *at);
      if (!index) return nullptr;
      at = &(*at)[*index];
      continue;
    }
    if (!at->IsObject()) at->SetObject();
    Value* member = FindMutable(*at, key);
    if (member == nullptr) {
      AddMember(*at, key, Value());
      member = FindMutable(*at, key);
    }
    at = member;
  }
  return at;
}

}  // namespace

json::Value* ObjectAccess::Place(Object& object, const Path& path) {
  if (path.keys().empty()) return nullptr;
  return Ensure(MutableRoot(object), path.keys());
}

void Object::SetString(const Path& path, std::string_view value) {
  if (Value* const place = ObjectAccess::Place(*this, path)) *place = json::MakeString(value);
}

void Object::SetInt(const Path& path, int64_t value) {
  if (Value* const place = ObjectAccess::Place(*this, path)) place->SetInt64(value);
}

void Object::SetBool(const Path& path, bool value) {
  if (Value* const place = ObjectAccess::Place(*this, path)) place->SetBool(value);
}

void Object::SetStrings(const Path& path, const std::vector<std::string>& values) {
  if (Value* const place = ObjectAccess::Place(*this, path)) *place = MakeStrings(values);
}

void Object::SetStringMap(const Path& path, const std::map<std::string, std::string>& values) {
  Value* const place = ObjectAccess::Place(*this, path);
  if (place == nullptr) return;
  place->SetObject();
  for (const auto& [key, value] : values) AddMember(*place, key, json::MakeString(value));
}

void Object::SetStringsMap(const Path& path,
                           const std::map<std::string, std::vector<std::string>>& values) {
  Value* const place = ObjectAccess::Place(*this, path);
  if (place == nullptr) return;
  place->SetObject();
  for (const auto& [key, texts] : values) AddMember(*place, key, MakeStrings(texts));
}

void Object::SetBytes(const Path& path, std::string_view bytes) {
  std::string text = absl::Base64Escape(AbslView(bytes));
  const Wiper wiper(text);
  SetString(path, text);
}

void Object::SetChild(const Path& path, const Object& value) {
  // Copied first: `value` may be this object.
  Value copy = json::Copy(ObjectAccess::Root(value));
  if (Value* const place = ObjectAccess::Place(*this, path)) *place = copy;
}

void Object::SetChildren(const Path& path, const std::vector<Object>& values) {
  Value list(rapidjson::kArrayType);
  for (const Object& value : values) {
    list.PushBack(json::Copy(ObjectAccess::Root(value)), json::Allocator());
  }
  if (Value* const place = ObjectAccess::Place(*this, path)) *place = list;
}

void Object::Remove(const Path& path) {
  const std::span<const std::string_view> keys = path.keys();
  if (keys.empty() || document_ == nullptr) return;
  Value* at = &ObjectAccess::MutableRoot(*this);
  for (const std::string_view key : keys.first(keys.size() - 1)) {
    if (at->IsArray()) {
      const std::optional<rapidjson::SizeType> index = IndexOf(key, *at);
      if (!index) return;
      at = &(*at)[*index];
    } else if (at->IsObject()) {
      at = FindMutable(*at, key);
      if (at == nullptr) return;
    } else {
      return;
    }
  }
  if (at->IsArray()) {
    if (const std::optional<rapidjson::SizeType> index = IndexOf(keys.back(), *at)) {
      at->Erase(at->Begin() + *index);
    }
  } else if (at->IsObject()) {
    const auto members = json::Members(*at);
    for (size_t i = 0; i < members.size(); ++i) {
      if (json::View(members[i].name) != keys.back()) continue;
      // Keeps the order of the others.
      at->EraseMember(at->MemberBegin() + static_cast<std::ptrdiff_t>(i));
      return;
    }
  }
}

void Object::SetMeta(const ObjectMeta& meta) {
  const auto set = [this](std::string_view key, const std::string& value) {
    if (!value.empty()) SetString({"metadata", key}, value);
  };
  set("name", meta.name);
  set("namespace", meta.name_space);
  set("generateName", meta.generate_name);
  set("uid", meta.uid);
  set("resourceVersion", meta.resource_version);
  if (!meta.labels.empty()) SetStringMap({"metadata", "labels"}, meta.labels);
  if (!meta.annotations.empty()) SetStringMap({"metadata", "annotations"}, meta.annotations);
  if (!meta.finalizers.empty()) SetStrings({"metadata", "finalizers"}, meta.finalizers);
}

}  // namespace cbt::kube
