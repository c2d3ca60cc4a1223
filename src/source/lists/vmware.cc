#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cbt/source/lists.h"
#include "source/lists/change_collector.h"
#include "source/lists/json_records.h"

namespace cbt {
namespace {

class VmwareReader final : public JsonPages {
 public:
  explicit VmwareReader(ChangeCollector& changes) : changes_(changes) {}

  uint64_t covered() const noexcept { return covered_; }

 private:
  absl::Status OnPage() override {
    start_.reset();
    length_.reset();
    areas_ = {};
    areas_seen_ = in_areas_ = false;
    return absl::OkStatus();
  }

  absl::Status OnOpen(int depth, std::string_view key, bool array) override {
    if (depth == 1) {
      in_areas_ = key == "changedArea";
      if (!in_areas_) return absl::OkStatus();
      if (!array) return absl::DataLossError("changedArea is not an array");
      return SeeAreas();
    }
    if (in_areas_ && depth == 2) {
      if (array) return absl::DataLossError("an area that is not an object");
      area_start_.reset();
      area_length_.reset();
    }
    return absl::OkStatus();
  }

  absl::Status OnValue(int depth, std::string_view key, const JsonScalar& value) override {
    if (depth == 1) {
      if (key == "startOffset") return TakeNumber(key, value, start_, true);
      if (key == "length") return TakeNumber(key, value, length_, true);
      if (key != "changedArea") return absl::OkStatus();
      if (value.kind != JsonScalar::Kind::kNull)
        return absl::DataLossError("changedArea is not an array");
      return SeeAreas();
    }
    if (!in_areas_) return absl::OkStatus();
    if (depth == 2) return absl::DataLossError("an area that is not an object");
    if (depth == 3 && key == "start") return TakeNumber(key, value, area_start_, true);
    if (depth == 3 && key == "length") return TakeNumber(key, value, area_length_, true);
    return absl::OkStatus();
  }

  absl::Status OnClose(int depth, bool) override {
    if (depth == 1) in_areas_ = false;
    if (!in_areas_ || depth != 2) return absl::OkStatus();
    if (!area_start_.has_value() || !area_length_.has_value()) {
      return absl::DataLossError("an area without start or length");
    }
    const Extent area{*area_start_, *area_length_};
    // Add() checks that it ends within the largest capacity.
    if (absl::Status status = changes_.Add(area.offset, area.length); !status.ok()) return status;
    if (area.length == 0) return absl::OkStatus();
    // The range of the response may come after its areas: kept as one range around them.
    const uint64_t end = std::max(areas_.end(), area.end());
    areas_.offset = areas_.length == 0 ? area.offset : std::min(areas_.offset, area.offset);
    areas_.length = end - areas_.offset;
    return absl::OkStatus();
  }

  absl::Status OnPageEnd() override {
    if (!start_.has_value() || !length_.has_value()) {
      return absl::DataLossError("a response without startOffset or length");
    }
    // An empty list means no changes; a missing one means nothing.
    if (!areas_seen_) return absl::DataLossError("a response without changedArea");
    if (*start_ != covered_) {
      return absl::DataLossError(absl::StrCat("a response from byte ", *start_,
                                              ", but the previous ones end at ", covered_));
    }
    if (*length_ > kMaxCapacity - covered_) {
      return absl::OutOfRangeError(absl::StrCat("a response about ", *length_, " bytes"));
    }
    covered_ += *length_;
    if (areas_.length > 0 && (areas_.offset < *start_ || areas_.end() > covered_)) {
      return absl::DataLossError("an area outside of its response's range");
    }
    return absl::OkStatus();
  }

  absl::Status SeeAreas() {
    if (areas_seen_) return absl::DataLossError("changedArea twice");
    areas_seen_ = true;
    return absl::OkStatus();
  }

  ChangeCollector& changes_;
  bool areas_seen_ = false;
  bool in_areas_ = false;
  std::optional<uint64_t> start_;
  std::optional<uint64_t> length_;
  std::optional<uint64_t> area_start_;
  std::optional<uint64_t> area_length_;
  Extent areas_;
  uint64_t covered_ = 0;
};

}  // namespace

absl::StatusOr<ChangeMap> ReadVmwareAreas(ByteStream& stream, const ImportOptions& options) {
  const absl::StatusOr<uint64_t> capacity =
      NeededCapacity(stream.label(), options, "QueryChangedDiskAreas");
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  VmwareReader reader(*changes);
  if (absl::Status status = ReadJson(stream, reader); !status.ok()) return status;
  // The query may cover the old size of a disk that was larger.
  const uint64_t most = std::max(*capacity, options.base_capacity.value_or(*capacity));
  if (reader.covered() < *capacity || reader.covered() > most) {
    return absl::DataLossError(absl::StrCat(stream.label(), ": the responses end at byte ",
                                            reader.covered(), ", the volume at ", *capacity));
  }
  absl::StatusOr<ChangeMap> map = changes->Finish(options, 1);
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
