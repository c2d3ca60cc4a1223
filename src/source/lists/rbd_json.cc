// `rbd diff --format json`.
#include <optional>

#include "cbt/source/lists.h"
#include "source/lists/change_collector.h"
#include "source/lists/json_records.h"

namespace cbt {
namespace {

class RbdReader final : public JsonEvents {
 public:
  explicit RbdReader(ChangeCollector& changes) : changes_(changes) {}

 private:
  absl::Status Open(int depth, std::string_view, bool array) override {
    if (depth == 0) {
      if (!array || seen_) return absl::DataLossError(seen_ ? "a second list" : "not an array");
      seen_ = true;
    } else if (depth == 1) {
      if (array) return absl::DataLossError("an entry that is not an object");
      offset_.reset();
      length_.reset();
    }
    return absl::OkStatus();
  }

  // "exists" is ignored: a range that no longer exists was discarded, which is a change.
  absl::Status Value(int depth, std::string_view key, const JsonScalar& value) override {
    if (depth < 2) return absl::DataLossError("an entry that is not an object");
    if (depth > 2) return absl::OkStatus();
    if (key == "offset") return TakeNumber(key, value, offset_);
    if (key == "length") return TakeNumber(key, value, length_);
    return absl::OkStatus();
  }

  absl::Status Close(int depth, bool) override {
    if (depth != 1) return absl::OkStatus();
    if (!offset_.has_value() || !length_.has_value()) {
      return absl::DataLossError("an entry without offset or length");
    }
    return changes_.Add(*offset_, *length_);
  }

  ChangeCollector& changes_;
  bool seen_ = false;
  std::optional<uint64_t> offset_;
  std::optional<uint64_t> length_;
};

}  // namespace

absl::StatusOr<ChangeMap> ReadRbdDiffJson(ByteStream& stream, const ImportOptions& options) {
  const absl::StatusOr<uint64_t> capacity = NeededCapacity(stream.label(), options, "rbd diff");
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  RbdReader reader(*changes);
  if (absl::Status status = ReadJson(stream, reader); !status.ok()) return status;
  absl::StatusOr<ChangeMap> map = changes->Finish(options, 1);
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
