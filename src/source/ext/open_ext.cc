// Opens images of ext2, ext3 and ext4 file systems.
#include <memory>
#include <utility>

#include "cbt/source/ext_filesystem.h"
#include "cbt/source/image.h"
#include "source/open/openers.h"

namespace cbt {

absl::StatusOr<OpenedSource> OpenExtSource(SourceRequest& request) {
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request, "a file system reports what is allocated, not what changed");
  }
  ExtOptions options;
  options.stop = request.options().stop;
  if (const auto unclean = request.Option("unclean"); unclean.has_value()) {
    if (*unclean != "over-report") return CannotTell(request, "unclean: over-report or nothing");
    options.over_report_unclean = true;
  }
  if (absl::Status status =
          request.Choice("other-signatures", "refuse", "ignore", options.ignore_other_signatures);
      !status.ok()) {
    return status;
  }
  absl::StatusOr<std::shared_ptr<const Image>> image = request.Image();
  if (!image.ok()) return image.status();
  return OfCursor(MakeExtAllocationCursor(*std::move(image), options));
}

}  // namespace cbt
