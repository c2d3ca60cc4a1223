// Opens change maps, and sets in portable roaring bytes.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "cbt/change_map_file.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

absl::StatusOr<OpenedSource> OpenChangeMap(SourceRequest& request) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = request.Map();
  if (!file.ok()) return file.status();
  absl::StatusOr<ChangeMap> map = DecodeChangeMap((*file)->bytes(), request.label());
  if (!map.ok()) return map.status();
  const bool delta = !map->identity().base.empty();
  const auto purpose = request.options().purpose;
  if (purpose.has_value() && (*purpose == SourcePurpose::kDelta) != delta) {
    return CannotTell(request, delta ? "the map reports what changed, not what is allocated"
                                     : "the map has no base: it reports what is allocated");
  }
  if (request.options().capacity.value_or((*map)->capacity()) != (*map)->capacity()) {
    return CannotTell(request,
                      absl::StrCat("the map is of a volume of ", (*map)->capacity(), " bytes"));
  }
  return OfMap(map);
}

absl::StatusOr<OpenedSource> OpenRoaring(SourceRequest& request) {
  const SourceOptions& options = request.options();
  if (!options.capacity.has_value()) {
    return CannotTell(request, "roaring bytes don't hold the volume's size: give it (--capacity)");
  }
  // Any other size would put the blocks where nothing has changed.
  uint64_t block_size = 0;
  absl::Status status = request.Number("block-size", kMaxGranularity, block_size);
  if (!status.ok()) return status;
  if (block_size == 0) {
    return CannotTell(request,
                      absl::StrCat("roaring bytes don't hold the size of their blocks: give it (",
                                   InfoOf(request.format()).name, ":block-size=N)"));
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = request.Map();
  if (!file.ok()) return file.status();
  const VolumeGeometry geometry = {*options.capacity, block_size};
  const absl::StatusOr<ChangeMap> map = request.format() == SourceFormat::kRoaring32
                                            ? ChangeMap::FromPortable32((*file)->bytes(), geometry)
                                            : ChangeMap::FromPortable64((*file)->bytes(), geometry);
  if (!map.ok()) {
    return absl::Status(map.status().code(),
                        absl::StrCat(request.label(), ": ", map.status().message()));
  }
  return OfMap(map);
}

}  // namespace

absl::StatusOr<OpenedSource> OpenMapSource(SourceRequest& request) {
  return request.format() == SourceFormat::kChangeMap ? OpenChangeMap(request)
                                                      : OpenRoaring(request);
}

}  // namespace cbt
