#include "kube/watch/object_store.h"

#include <mutex>
#include <utility>

namespace cbt::kube {
namespace {

ObjectKeyView ViewOf(const Object& object) { return {object.name_space(), object.name()}; }

std::vector<ObjectPtr> ListOf(const ObjectMap<ObjectPtr>& objects) {
  std::vector<ObjectPtr> list;
  list.reserve(objects.size());
  for (const auto& [key, object] : objects) list.push_back(object);
  return list;
}

}  // namespace

ObjectKey KeyOf(const Object& object) {
  return {std::string(object.name_space()), std::string(object.name())};
}

ObjectStore::ObjectStore(std::map<std::string, IndexFunction> indexes) {
  for (auto& [name, function] : indexes) {
    names_.emplace(name, indexes_.size());
    indexes_.push_back({.function = std::move(function), .objects = {}});
  }
}

ObjectPtr ObjectStore::Find(std::string_view name_space, std::string_view name) const {
  std::shared_lock lock(mutex_);
  const auto at = objects_.find(ObjectKeyView{name_space, name});
  return at == objects_.end() ? nullptr : at->second;
}

std::vector<ObjectPtr> ObjectStore::All() const {
  std::shared_lock lock(mutex_);
  return ListOf(objects_);
}

std::vector<ObjectPtr> ObjectStore::ByIndex(std::string_view index, std::string_view value) const {
  const auto number = names_.find(index);
  if (number == names_.end()) return {};
  std::shared_lock lock(mutex_);
  const auto& entries = indexes_[number->second].objects;
  const auto at = entries.find(value);
  if (at == entries.end()) return {};
  return ListOf(at->second);
}

size_t ObjectStore::size() const {
  std::shared_lock lock(mutex_);
  return objects_.size();
}

ObjectStore::Values ObjectStore::ValuesOf(const Object& object) const {
  Values values;
  values.reserve(indexes_.size());
  for (const Index& index : indexes_) values.push_back(index.function(object));
  return values;
}

void ObjectStore::EraseEntries(ObjectKeyView key, const Values& values) noexcept {
  for (size_t i = 0; i < indexes_.size(); ++i) {
    for (const std::string& value : values[i]) {
      const auto at = indexes_[i].objects.find(value);
      if (at == indexes_[i].objects.end()) continue;
      if (const auto one = at->second.find(key); one != at->second.end()) at->second.erase(one);
    }
  }
}

void ObjectStore::DropEmpty(const Values& values) noexcept {
  for (size_t i = 0; i < indexes_.size(); ++i) {
    for (const std::string& value : values[i]) {
      const auto at = indexes_[i].objects.find(value);
      if (at != indexes_[i].objects.end() && at->second.empty()) indexes_[i].objects.erase(at);
    }
  }
}

ObjectPtr ObjectStore::Put(const ObjectPtr& object) {
  // What may fail comes first: nodes are made in maps of their own, and moved over later.
  Values values = ValuesOf(*object);
  ObjectMap<ObjectPtr> node;
  node.emplace(KeyOf(*object), object);
  ObjectMap<Values> values_node;
  values_node.emplace(KeyOf(*object), values);
  std::vector<ObjectMap<ObjectPtr>> entries;
  for (const std::vector<std::string>& of_index : values) {
    for (size_t i = 0; i < of_index.size(); ++i) {
      entries.emplace_back().emplace(KeyOf(*object), object);
    }
  }
  std::vector<ObjectMap<ObjectPtr>*> places;
  places.reserve(entries.size());

  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < indexes_.size(); ++i) {
    for (const std::string& value : values[i]) places.push_back(&indexes_[i].objects[value]);
  }
  // From here on nothing allocates. The old state's texts stay alive until the end.
  const ObjectKeyView key = ViewOf(*object);
  const auto old_values = values_.find(key);
  if (old_values != values_.end()) EraseEntries(key, old_values->second);
  for (size_t i = 0; i < places.size(); ++i) places[i]->merge(entries[i]);
  ObjectPtr before;
  if (old_values != values_.end()) {
    old_values->second.swap(values);
    DropEmpty(values);
    before = std::exchange(objects_.find(key)->second, object);
  } else {
    objects_.merge(node);
    values_.merge(values_node);
  }
  return before;
}

ObjectPtr ObjectStore::Remove(std::string_view name_space, std::string_view name) {
  const ObjectKeyView key{name_space, name};
  std::unique_lock lock(mutex_);
  const auto at = objects_.find(key);
  if (at == objects_.end()) return nullptr;
  // Held until the end: `key` may be of its own texts.
  ObjectPtr removed = at->second;
  const auto values = values_.find(key);
  EraseEntries(key, values->second);
  DropEmpty(values->second);
  values_.erase(values);
  objects_.erase(at);
  return removed;
}

ObjectMap<ObjectPtr> ObjectStore::Replace(ObjectMap<ObjectPtr> objects) {
  ObjectMap<Values> values;
  std::vector<std::map<std::string, ObjectMap<ObjectPtr>, std::less<>>> entries(indexes_.size());
  for (const auto& [key, object] : objects) {
    Values of_object = ValuesOf(*object);
    for (size_t i = 0; i < indexes_.size(); ++i) {
      for (const std::string& value : of_object[i]) entries[i][value].emplace(key, object);
    }
    values.emplace(key, std::move(of_object));
  }
  {
    std::unique_lock lock(mutex_);
    objects_.swap(objects);
    values_.swap(values);
    for (size_t i = 0; i < indexes_.size(); ++i) indexes_[i].objects.swap(entries[i]);
  }
  return objects;
}

}  // namespace cbt::kube
