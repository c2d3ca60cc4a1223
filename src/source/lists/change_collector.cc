#include "source/lists/change_collector.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "map/map_access.h"

namespace cbt {

absl::StatusOr<ChangeCollector> ChangeCollector::Create(uint64_t granularity) {
  absl::StatusOr<ChangeMapBuilder> builder = ChangeMapBuilder::Create({kMaxCapacity, granularity});
  if (!builder.ok()) return builder.status();
  return ChangeCollector(*std::move(builder));
}

absl::Status ChangeCollector::TooFar(uint64_t offset, uint64_t length) {
  return absl::OutOfRangeError(
      absl::StrCat("a range of ", length, " bytes at ", offset, " ends past the largest volume"));
}

absl::Status ChangeCollector::TooFarInUnits(uint64_t begin, uint64_t count, uint64_t unit) {
  return absl::OutOfRangeError(absl::StrCat("a range of ", count, " units at ", begin, " (of ",
                                            unit, " bytes) ends past the largest volume"));
}

absl::Status ChangeCollector::Flush() {
  const std::span<const Extent> ranges(waiting_.data(), count_);
  count_ = 0;
  for (const Extent& range : ranges) last_end_ = std::max(last_end_, range.end());
  return builder_.Add(ranges);
}

absl::Status ChangeCollector::Add(const ChangeMap& map) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  return ForEachBatch(*cursor, [this](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (absl::Status status = Add(batch[i].offset, batch[i].length); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<ChangeMap> ChangeCollector::Finish(uint64_t capacity, uint64_t limit,
                                                  uint64_t unit) {
  if (absl::Status status = Flush(); !status.ok()) return status;
  const uint64_t furthest = std::max(capacity, limit);
  if (furthest > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("a volume of ", furthest, " bytes is larger than supported"));
  }
  if (last_end_ > AlignUp(furthest, std::min(unit, kMaxGranularity))) {
    return absl::OutOfRangeError(
        absl::StrCat("a range ends at byte ", last_end_, ", past the volume's end at ", furthest));
  }
  absl::StatusOr<ChangeMap> map = builder_.Build();
  if (!map.ok()) return map.status();
  const VolumeGeometry geometry{capacity, map->view().granularity()};
  if (last_end_ <= AlignUp(capacity, geometry.granularity)) {
    return ChangeMapAccess::FromBytes(ChangeMapAccess::Owner(*map), (*map)->portable(), geometry);
  }
  return WithCapacity(*map, capacity);
}

absl::StatusOr<ChangeMap> ChangeCollector::Finish(const ImportOptions& options, uint64_t unit) {
  const uint64_t capacity = options.capacity.value_or(0);
  return Finish(capacity, options.base_capacity.value_or(capacity), unit);
}

absl::Status At(std::string_view label, std::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(AbslView(label), ": ", AbslView(where),
                                                  where.empty() ? "" : ": ", status.message()));
}

absl::Status CheckPurpose(std::string_view label, const ImportOptions& options, SourcePurpose only,
                          std::string_view what) {
  if (options.purpose.value_or(only) == only) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(label), ": ", AbslView(what),
                   only == SourcePurpose::kDelta ? " reports what changed, not what is allocated"
                                                 : " reports what is allocated, not what changed"));
}

absl::StatusOr<uint64_t> NeededCapacity(std::string_view label, const ImportOptions& options,
                                        std::string_view format) {
  if (options.capacity.has_value()) return *options.capacity;
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(label), ": ", AbslView(format),
                   " does not hold the volume's size: give it (--capacity)"));
}

}  // namespace cbt
