// Reads many fields of an object and reports the first that is wrong.
#ifndef CBT_KUBE_OBJECT_FIELD_READER_H_
#define CBT_KUBE_OBJECT_FIELD_READER_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube {

class FieldReader {
 public:
  explicit FieldReader(const Object& object) : object_(object) {}

  bool ok() const noexcept { return status_.ok(); }
  const absl::Status& status() const noexcept { return status_; }

  // What a reader of `object` returned. Leaves `to` as it is after an error.
  template <typename Value>
  void Read(absl::StatusOr<Value> from, Value& to) {
    if (from.ok()) {
      to = *std::move(from);
    } else {
      status_.Update(from.status());
    }
  }
  // The same where absent means that `to` stays as it is.
  template <typename Value>
  void Read(absl::StatusOr<std::optional<Value>> from, Value& to) {
    if (!from.ok()) {
      status_.Update(from.status());
    } else if (from->has_value()) {
      to = *std::move(*from);
    }
  }

  // A text that may be absent, and is then empty.
  void Text(const Path& path, std::string& to) { Read(object_.OptionalString(path), to); }

 private:
  const Object& object_;
  absl::Status status_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_FIELD_READER_H_
