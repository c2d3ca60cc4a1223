#include "cbt/kube/object.h"

#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/wipe.h"
#include "kube/object/field_reader.h"
#include "kube/object/json.h"
#include "kube/object/list_index.h"
#include "kube/object/object_access.h"

namespace cbt::kube {

struct Object::Document {
  json::Value root{rapidjson::kObjectType};
};

namespace {

using json::Value;

const Value& EmptyObject() noexcept {
  static const Value empty(rapidjson::kObjectType);
  return empty;
}

std::string Render(std::span<const std::string_view> keys) {
  std::string text;
  for (const std::string_view key : keys) {
    const bool plain = !key.empty() && key.find_first_not_of(
                                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "_") == std::string_view::npos;
    if (!plain) {
      absl::StrAppend(&text, "[", AbslView(key), "]");
    } else {
      absl::StrAppend(&text, text.empty() ? "" : ".", AbslView(key));
    }
  }
  return text;
}

absl::Status WrongType(std::span<const std::string_view> keys, std::string_view expected,
                       const Value& found) {
  return absl::InvalidArgumentError(absl::StrCat(Render(keys), ": expected ", AbslView(expected),
                                                 ", found ", AbslView(json::TypeName(found))));
}

absl::Status Missing(const Path& path) {
  return absl::InvalidArgumentError(path.ToString() + ": is missing");
}

// The value at `path`; null if it is absent or null.
absl::StatusOr<const Value*> Resolve(const Value& root, const Path& path) {
  const std::span<const std::string_view> keys = path.keys();
  const Value* at = &root;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (at->IsArray() && IsNumber(keys[i])) {
      const std::optional<rapidjson::SizeType> index = IndexOf(keys[i], *at);
      if (!index) return nullptr;
      at = &(*at)[*index];
      if (at->IsNull()) return nullptr;
      continue;
    }
    if (!at->IsObject()) return WrongType(keys.first(i), "an object", *at);
    at = json::Find(*at, keys[i]);
    if (at == nullptr) return nullptr;
  }
  return at;
}

// Reads `found` with `read(value, keys)` unless it is absent.
template <typename Result, typename Read>
absl::StatusOr<std::optional<Result>> ReadOptional(const Value& root, const Path& path, Read read) {
  absl::StatusOr<const Value*> found = Resolve(root, path);
  if (!found.ok()) return found.status();
  if (*found == nullptr) return std::optional<Result>();
  absl::StatusOr<Result> value = read(**found, path.keys());
  if (!value.ok()) return value.status();
  return std::optional<Result>(*std::move(value));
}

// The same with an empty value for what is absent.
template <typename Result, typename Read>
absl::StatusOr<Result> ReadOrEmpty(const Value& root, const Path& path, Read read) {
  absl::StatusOr<std::optional<Result>> value = ReadOptional<Result>(root, path, read);
  if (!value.ok()) return value.status();
  return value->has_value() ? std::move(**value) : Result();
}

using Keys = std::span<const std::string_view>;

absl::StatusOr<std::string> ReadString(const Value& value, Keys keys) {
  if (!value.IsString()) return WrongType(keys, "a string", value);
  return std::string(json::View(value));
}

absl::StatusOr<int64_t> ReadInt(const Value& value, Keys keys) {
  if (value.IsInt64()) return value.GetInt64();
  if (!value.IsNumber()) return WrongType(keys, "an integer", value);
  return absl::InvalidArgumentError(
      absl::StrCat(Render(keys), ": expected an integer of 64 bits, found another number"));
}

absl::StatusOr<bool> ReadBool(const Value& value, Keys keys) {
  if (!value.IsBool()) return WrongType(keys, "a boolean", value);
  return value.GetBool();
}

absl::StatusOr<Time> ReadTime(const Value& value, Keys keys) {
  if (!value.IsString()) return WrongType(keys, "a time", value);
  absl::StatusOr<Time> time = ParseTime(json::View(value));
  if (!time.ok()) {
    return absl::InvalidArgumentError(Render(keys) + ": expected a time in the form of RFC 3339");
  }
  return time;
}

absl::StatusOr<std::vector<std::string>> ReadStrings(const Value& value, Keys keys) {
  if (!value.IsArray()) return WrongType(keys, "a list of strings", value);
  std::vector<std::string> texts;
  texts.reserve(value.Size());
  for (const Value& element : value.GetArray()) {
    if (!element.IsString()) return WrongType(keys, "a list of strings, of which one is", element);
    texts.emplace_back(json::View(element));
  }
  return texts;
}

absl::StatusOr<std::string> ReadBytes(const Value& value, Keys keys) {
  if (!value.IsString()) return WrongType(keys, "base64", value);
  std::string bytes;
  if (!absl::Base64Unescape(AbslView(json::View(value)), &bytes)) {
    return absl::InvalidArgumentError(Render(keys) + ": expected base64");
  }
  return bytes;
}

// Calls `use(key, value)` for the members that are not null.
template <typename Use>
absl::Status ForEachMember(const Value& value, Keys keys, std::string_view expected, Use use) {
  if (!value.IsObject()) return WrongType(keys, expected, value);
  for (const auto& member : value.GetObject()) {
    if (member.value.IsNull()) continue;
    const std::string_view key = json::View(member.name);
    std::vector<std::string_view> longer(keys.begin(), keys.end());
    longer.push_back(key);
    if (absl::Status status = use(key, member.value, Keys(longer)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A map whose values are read by `read`.
template <typename Element>
auto MapReader(absl::StatusOr<Element> (*read)(const Value&, Keys)) {
  return [read](const Value& value, Keys keys) -> absl::StatusOr<std::map<std::string, Element>> {
    std::map<std::string, Element> map;
    const absl::Status status = ForEachMember(
        value, keys, "a map", [&](std::string_view key, const Value& member, Keys where) {
          absl::StatusOr<Element> element = read(member, where);
          if (element.ok()) map.insert_or_assign(std::string(key), *std::move(element));
          return element.status();
        });
    if (!status.ok()) return status;
    return map;
  };
}

std::string_view TextOf(const Value& root, std::initializer_list<std::string_view> keys) noexcept {
  const Value* at = &root;
  for (const std::string_view key : keys) {
    at = json::Find(*at, key);
    if (at == nullptr) return {};
  }
  return at->IsString() ? json::View(*at) : std::string_view();
}

std::optional<std::string_view> EntryOf(const Value& root, std::string_view map,
                                        std::string_view key) noexcept {
  const Value* at = json::Find(root, "metadata");
  if (at != nullptr) at = json::Find(*at, map);
  if (at != nullptr) at = json::Find(*at, key);
  if (at == nullptr || !at->IsString()) return std::nullopt;
  return json::View(*at);
}

}  // namespace

std::string Path::ToString() const { return Render(keys_); }

const json::Value& ObjectAccess::Root(const Object& object) noexcept {
  return object.document_ == nullptr ? EmptyObject() : object.document_->root;
}

Object ObjectAccess::Make(json::Value&& value) {
  Object object;
  object.document_ = std::make_unique<Object::Document>();
  object.document_->root = value;  // moves, as RapidJSON's assignments do
  return object;
}

json::Value& ObjectAccess::MutableRoot(Object& object) {
  if (object.document_ == nullptr) object.document_ = std::make_unique<Object::Document>();
  return object.document_->root;
}

absl::Status CheckMetadata(const json::Value& object) {
  const auto check_text = [](const Value& parent, std::string_view parent_name,
                             std::string_view key) {
    const Value* const found = json::Find(parent, key);
    if (found == nullptr || found->IsString()) return absl::OkStatus();
    const std::string_view keys[] = {parent_name, key};
    return WrongType(Keys(keys).subspan(parent_name.empty() ? 1 : 0), "a string", *found);
  };
  for (const std::string_view key : {"apiVersion", "kind"}) {
    if (absl::Status status = check_text(object, "", key); !status.ok()) return status;
  }
  const Value* const metadata = json::Find(object, "metadata");
  if (metadata == nullptr) return absl::OkStatus();
  const std::string_view metadata_key[] = {"metadata"};
  if (!metadata->IsObject()) return WrongType(metadata_key, "an object", *metadata);
  for (const std::string_view key :
       {"name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "creationTimestamp"}) {
    if (absl::Status status = check_text(*metadata, "metadata", key); !status.ok()) return status;
  }
  for (const std::string_view key : {"labels", "annotations"}) {
    const Value* const map = json::Find(*metadata, key);
    if (map == nullptr) continue;
    const std::string_view keys[] = {"metadata", key};
    absl::Status status = ForEachMember(
        *map, keys, "a map", [](std::string_view /*name*/, const Value& value, Keys where) {
          return value.IsString() ? absl::OkStatus() : WrongType(where, "a string", value);
        });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

namespace {

absl::StatusOr<Object> ParseObject(std::string_view json, size_t max_values) {
  Value value;
  if (absl::Status status = json::Parse(json, Object::kMaxDepth, value, max_values); !status.ok()) {
    return status;
  }
  if (!value.IsObject()) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON: expected an object, found ", AbslView(json::TypeName(value))));
  }
  return ObjectAccess::Make(std::move(value));
}

}  // namespace

Object::Object() = default;

Object::Object(std::string_view api_version, std::string_view kind, std::string_view name_space,
               std::string_view name)
    : document_(std::make_unique<Document>()) {
  if (!api_version.empty()) SetString({"apiVersion"}, api_version);
  if (!kind.empty()) SetString({"kind"}, kind);
  if (!name_space.empty()) SetString({"metadata", "namespace"}, name_space);
  if (!name.empty()) SetString({"metadata", "name"}, name);
}

Object::~Object() = default;
Object::Object(Object&& other) noexcept = default;
Object& Object::operator=(Object&& other) noexcept = default;

Object::Object(const Object& other) { *this = other; }

Object& Object::operator=(const Object& other) {
  if (this == &other) return *this;
  if (other.document_ == nullptr) {
    document_ = nullptr;
    return *this;
  }
  auto copy = std::make_unique<Document>();
  copy->root = json::Copy(other.document_->root);
  document_ = std::move(copy);
  return *this;
}

absl::StatusOr<Object> Object::Parse(std::string_view json) {
  return ParseObject(json, std::numeric_limits<size_t>::max());
}

absl::StatusOr<Object> Object::ParseRequest(std::string_view json) {
  return ParseObject(json, kMaxRequestValues);
}

std::string Object::ToJson() const { return json::ToText(ObjectAccess::Root(*this)); }

bool operator==(const Object& a, const Object& b) {
  return ObjectAccess::Root(a) == ObjectAccess::Root(b);
}

bool Object::Has(const Path& path) const {
  const absl::StatusOr<const Value*> found = Resolve(ObjectAccess::Root(*this), path);
  return found.ok() && *found != nullptr;
}

absl::StatusOr<std::optional<std::string>> Object::OptionalString(const Path& path) const {
  return ReadOptional<std::string>(ObjectAccess::Root(*this), path, ReadString);
}

absl::StatusOr<std::string> Object::String(const Path& path) const {
  absl::StatusOr<std::optional<std::string>> value = OptionalString(path);
  if (!value.ok()) return value.status();
  if (!value->has_value()) return Missing(path);
  return std::move(**value);
}

absl::StatusOr<std::optional<int64_t>> Object::OptionalInt(const Path& path) const {
  return ReadOptional<int64_t>(ObjectAccess::Root(*this), path, ReadInt);
}

absl::StatusOr<int64_t> Object::Int(const Path& path) const {
  const absl::StatusOr<std::optional<int64_t>> value = OptionalInt(path);
  if (!value.ok()) return value.status();
  if (!value->has_value()) return Missing(path);
  return **value;
}

absl::StatusOr<bool> Object::Bool(const Path& path) const {
  return ReadOrEmpty<bool>(ObjectAccess::Root(*this), path, ReadBool);
}

absl::StatusOr<std::optional<bool>> Object::OptionalBool(const Path& path) const {
  return ReadOptional<bool>(ObjectAccess::Root(*this), path, ReadBool);
}

absl::StatusOr<std::optional<Time>> Object::OptionalTime(const Path& path) const {
  return ReadOptional<Time>(ObjectAccess::Root(*this), path, ReadTime);
}

absl::StatusOr<std::vector<std::string>> Object::Strings(const Path& path) const {
  return ReadOrEmpty<std::vector<std::string>>(ObjectAccess::Root(*this), path, ReadStrings);
}

absl::StatusOr<std::map<std::string, std::string>> Object::StringMap(const Path& path) const {
  return ReadOrEmpty<std::map<std::string, std::string>>(ObjectAccess::Root(*this), path,
                                                         MapReader<std::string>(ReadString));
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> Object::StringsMap(
    const Path& path) const {
  return ReadOrEmpty<std::map<std::string, std::vector<std::string>>>(
      ObjectAccess::Root(*this), path, MapReader<std::vector<std::string>>(ReadStrings));
}

absl::StatusOr<std::string> Object::Bytes(const Path& path) const {
  return ReadOrEmpty<std::string>(ObjectAccess::Root(*this), path, ReadBytes);
}

absl::StatusOr<Secret> Object::SecretString(const Path& path) const {
  return ReadOrEmpty<Secret>(ObjectAccess::Root(*this), path,
                             [](const Value& value, Keys keys) -> absl::StatusOr<Secret> {
                               if (!value.IsString()) return WrongType(keys, "a string", value);
                               return Secret(json::View(value));
                             });
}

absl::StatusOr<Secrets> Object::SecretMap(const Path& path) const {
  return ReadOrEmpty<Secrets>(ObjectAccess::Root(*this), path,
                              [](const Value& value, Keys keys) -> absl::StatusOr<Secrets> {
                                Secrets secrets;
                                const absl::Status status = ForEachMember(
                                    value, keys, "a map",
                                    [&](std::string_view key, const Value& member, Keys where) {
                                      absl::StatusOr<std::string> bytes = ReadBytes(member, where);
                                      if (!bytes.ok()) return bytes.status();
                                      const Wiper wiper(*bytes);
                                      secrets.Set(std::string(key), *bytes);
                                      return absl::OkStatus();
                                    });
                                if (!status.ok()) return status;
                                return secrets;
                              });
}

absl::StatusOr<Object> Object::Child(const Path& path) const {
  return ReadOrEmpty<Object>(ObjectAccess::Root(*this), path,
                             [](const Value& value, Keys keys) -> absl::StatusOr<Object> {
                               if (!value.IsObject()) return WrongType(keys, "an object", value);
                               return ObjectAccess::Make(json::Copy(value));
                             });
}

absl::StatusOr<std::vector<std::string>> Object::FieldNames(const Path& path) const {
  using Names = std::vector<std::string>;
  return ReadOrEmpty<Names>(ObjectAccess::Root(*this), path,
                            [](const Value& value, Keys keys) -> absl::StatusOr<Names> {
                              if (!value.IsObject()) return WrongType(keys, "an object", value);
                              Names names;
                              for (const auto& member : json::Members(value)) {
                                names.emplace_back(json::View(member.name));
                              }
                              return names;
                            });
}

absl::StatusOr<std::vector<Object>> Object::Children(const Path& path) const {
  return ReadOrEmpty<std::vector<Object>>(
      ObjectAccess::Root(*this), path,
      [](const Value& value, Keys keys) -> absl::StatusOr<std::vector<Object>> {
        if (!value.IsArray()) return WrongType(keys, "a list of objects", value);
        std::vector<Object> objects;
        objects.reserve(value.Size());
        for (const Value& element : value.GetArray()) {
          if (!element.IsObject()) {
            return WrongType(keys, "a list of objects, of which one is", element);
          }
          objects.push_back(ObjectAccess::Make(json::Copy(element)));
        }
        return objects;
      });
}

std::string_view Object::api_version() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"apiVersion"});
}
std::string_view Object::kind() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"kind"});
}
std::string_view Object::name() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"metadata", "name"});
}
std::string_view Object::name_space() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"metadata", "namespace"});
}
std::string_view Object::uid() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"metadata", "uid"});
}
std::string_view Object::resource_version() const noexcept {
  return TextOf(ObjectAccess::Root(*this), {"metadata", "resourceVersion"});
}
std::optional<std::string_view> Object::label(std::string_view key) const noexcept {
  return EntryOf(ObjectAccess::Root(*this), "labels", key);
}
std::optional<std::string_view> Object::annotation(std::string_view key) const noexcept {
  return EntryOf(ObjectAccess::Root(*this), "annotations", key);
}
bool Object::being_deleted() const noexcept {
  return !TextOf(ObjectAccess::Root(*this), {"metadata", "deletionTimestamp"}).empty();
}

absl::StatusOr<ObjectMeta> Object::Meta() const {
  FieldReader reader(*this);
  ObjectMeta meta;
  reader.Text({"metadata", "name"}, meta.name);
  reader.Text({"metadata", "namespace"}, meta.name_space);
  reader.Text({"metadata", "generateName"}, meta.generate_name);
  reader.Text({"metadata", "uid"}, meta.uid);
  reader.Text({"metadata", "resourceVersion"}, meta.resource_version);
  reader.Read(OptionalInt({"metadata", "generation"}), meta.generation);
  reader.Read(OptionalTime({"metadata", "creationTimestamp"}), meta.creation_timestamp);
  reader.Read(OptionalTime({"metadata", "deletionTimestamp"}), meta.deletion_timestamp);
  reader.Read(StringMap({"metadata", "labels"}), meta.labels);
  reader.Read(StringMap({"metadata", "annotations"}), meta.annotations);
  reader.Read(Strings({"metadata", "finalizers"}), meta.finalizers);
  if (!reader.ok()) return reader.status();
  return meta;
}

}  // namespace cbt::kube
