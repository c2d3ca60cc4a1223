// Opens raw images.
#include <memory>
#include <utility>

#include "cbt/source/file_extents.h"
#include "cbt/source/image.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

ImageOptions ImageOptionsOf(const SourceOptions& options) {
  return {.block_size = options.block_size,
          .executor = options.executor,
          .skip_zeros = options.skip_zeros};
}

}  // namespace

absl::StatusOr<OpenedSource> OpenImageSource(SourceRequest& request) {
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request,
                      "an image alone does not show what changed: name the base and the target "
                      "(or the format, --from, if this is something else)");
  }
  absl::StatusOr<std::shared_ptr<const Image>> image = request.Image();
  if (!image.ok()) return image.status();
  return OfCursor(MakeImageAllocationCursor(*std::move(image), ImageOptionsOf(request.options())));
}

absl::StatusOr<OpenedSource> OpenImagePair(SourceRequest& base, SourceRequest& target) {
  absl::StatusOr<std::shared_ptr<const Image>> older = base.Image();
  if (!older.ok()) return older.status();
  absl::StatusOr<std::shared_ptr<const Image>> newer = target.Image();
  if (!newer.ok()) return newer.status();
  const SourceOptions& options = target.options();
  if (options.by_extents) {
    return OfCursor(MakeReflinkDeltaCursor(*std::move(older), *std::move(newer),
                                           {.images = ImageOptionsOf(options)}));
  }
  return OfCursor(
      MakeImageDeltaCursor(*std::move(older), *std::move(newer), ImageOptionsOf(options)));
}

}  // namespace cbt
