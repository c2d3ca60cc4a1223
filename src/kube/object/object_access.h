// The JSON value inside an Object, for this room.
#ifndef CBT_KUBE_OBJECT_OBJECT_ACCESS_H_
#define CBT_KUBE_OBJECT_OBJECT_ACCESS_H_

#include <string_view>

#include "absl/status/status.h"
#include "cbt/kube/object.h"
#include "kube/object/json.h"

namespace cbt::kube {

class ObjectAccess {
 public:
  static const json::Value& Root(const Object& object) noexcept;
  // Takes `value`, which must be a JSON object.
  static Object Make(json::Value&& value);
  static json::Value& MutableRoot(Object& object);
  // Where a writer writes: made where it is missing; null if there is no such place.
  static json::Value* Place(Object& object, const Path& path);
};

// Whether apiVersion, kind and the fields of metadata that Object has functions for have the right
// types, where they are present. Errors: INVALID_ARGUMENT with the field's path.
absl::Status CheckMetadata(const json::Value& object);

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_OBJECT_ACCESS_H_
