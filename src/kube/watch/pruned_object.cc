#include "kube/watch/pruned_object.h"

#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/object/json.h"
#include "kube/object/object_access.h"

namespace cbt::kube {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// What every reader, and the cache itself, may ask an object for.
const std::vector<Path>& AlwaysKept() {
  static const std::vector<Path> paths = {{"apiVersion"},
                                          {"kind"},
                                          {"metadata", "name"},
                                          {"metadata", "namespace"},
                                          {"metadata", "uid"},
                                          {"metadata", "resourceVersion"},
                                          {"metadata", "generation"},
                                          {"metadata", "deletionTimestamp"}};
  return paths;
}

// A value of a wrong type on the way is kept in the place of the field: its readers report it.
void CopyField(const json::Value& from, const Path& path, Object& to) {
  const std::span<const std::string_view> keys = path.keys();
  const json::Value* at = &from;
  size_t depth = 0;
  while (depth < keys.size() && at->IsObject()) {
    at = json::Find(*at, keys[depth]);
    if (at == nullptr) return;
    ++depth;
  }
  json::Value copy = json::Copy(*at);
  if (json::Value* const place = ObjectAccess::Place(to, Path(keys.first(depth)));
      place != nullptr) {
    place->Swap(copy);
  }
}

}  // namespace

bool Prune(const CacheOptions& options, Object& object) {
  if (!options.fields.empty()) {
    Object kept;
    const json::Value& root = ObjectAccess::Root(object);
    for (const Path& path : AlwaysKept()) CopyField(root, path, kept);
    for (const Path& path : options.fields) CopyField(root, path, kept);
    object = std::move(kept);
  } else if (!options.keep_managed_fields) {
    object.Remove({"metadata", "managedFields"});
  }
  return options.max_kept_bytes == kNoLimit || object.ToJson().size() <= options.max_kept_bytes;
}

size_t KeptBytes(const CacheOptions& options, const Object& object) {
  return options.max_bytes == kNoLimit ? 0 : object.ToJson().size();
}

}  // namespace cbt::kube
