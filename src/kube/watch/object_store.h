// The objects of a cache, and their indexes.
#ifndef CBT_KUBE_WATCH_OBJECT_STORE_H_
#define CBT_KUBE_WATCH_OBJECT_STORE_H_

#include <cstddef>
#include <functional>
#include <map>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/kube/watch.h"

namespace cbt::kube {

// The name of an object among those of its type.
struct ObjectKey {
  std::string name_space;
  std::string name;
};
struct ObjectKeyView {
  std::string_view name_space;
  std::string_view name;
};

struct ObjectKeyLess {
  using is_transparent = void;
  static ObjectKeyView View(const ObjectKey& key) { return {key.name_space, key.name}; }
  static ObjectKeyView View(const ObjectKeyView& key) { return key; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    const ObjectKeyView x = View(a);
    const ObjectKeyView y = View(b);
    const int order = x.name_space.compare(y.name_space);
    return order != 0 ? order < 0 : x.name < y.name;
  }
};

template <typename Value>
using ObjectMap = std::map<ObjectKey, Value, ObjectKeyLess>;

// Thread-safe. If a function throws, an index function for example, the store is as before.
class ObjectStore {
 public:
  explicit ObjectStore(std::map<std::string, IndexFunction> indexes);

  ObjectPtr Find(std::string_view name_space, std::string_view name) const;
  std::vector<ObjectPtr> All() const;
  std::vector<ObjectPtr> ByIndex(std::string_view index, std::string_view value) const;
  size_t size() const;

  // Puts an object in the place of the one that has its name. Returns that one, or null.
  ObjectPtr Put(const ObjectPtr& object);
  // Returns what was removed, or null.
  ObjectPtr Remove(std::string_view name_space, std::string_view name);
  // Puts other objects in the place of all: readers see all of them or none. Returns the old ones.
  ObjectMap<ObjectPtr> Replace(ObjectMap<ObjectPtr> objects);

 private:
  // One for each index: from a value to the objects that have it.
  struct Index {
    IndexFunction function;
    std::map<std::string, ObjectMap<ObjectPtr>, std::less<>> objects;
  };
  using Values = std::vector<std::vector<std::string>>;  // of one object, by index

  Values ValuesOf(const Object& object) const;
  // Takes the object out of the indexes, and then the values that no object has any more.
  void EraseEntries(ObjectKeyView key, const Values& values) noexcept;
  void DropEmpty(const Values& values) noexcept;

  mutable std::shared_mutex mutex_;
  std::map<std::string, size_t, std::less<>> names_;  // of indexes; constant
  std::vector<Index> indexes_;                        // functions are constant
  ObjectMap<ObjectPtr> objects_;
  ObjectMap<Values> values_;  // of the same keys
};

ObjectKey KeyOf(const Object& object);

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_OBJECT_STORE_H_
