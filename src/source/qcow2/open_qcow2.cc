// Opens qcow2 images, and what is in them.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "cbt/source/image.h"
#include "cbt/source/qcow2.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

absl::StatusOr<std::shared_ptr<const Qcow2Image>> OpenQcow2Image(SourceRequest& request) {
  Qcow2Options options;
  if (absl::Status status = request.Choice("chain", "no", "yes", options.follow_backing);
      !status.ok()) {
    return status;
  }
  if (!request.Option("chain").has_value()) options.follow_backing = true;
  options.allow_writer = request.Option("in-use").has_value();
  if (absl::Status status =
          request.Choice("other-signatures", "refuse", "ignore", options.ignore_other_signatures);
      !status.ok()) {
    return status;
  }
  if (request.options().open) {
    options.open_backing =
        [open = request.options().open](
            const std::string& path,
            const std::string& label) -> absl::StatusOr<std::shared_ptr<const Image>> {
      const absl::StatusOr<int> descriptor = open(path);
      if (!descriptor.ok()) return descriptor.status();
      return Image::FromDescriptor(*descriptor, label);
    };
  }
  absl::StatusOr<std::shared_ptr<const Image>> file = request.Image();
  if (!file.ok()) return file.status();
  return Qcow2Image::FromImage(*std::move(file), DirectoryOf(request.address()), options);
}

absl::StatusOr<Qcow2State> StateOf(SourceRequest& request, std::string_view option) {
  absl::StatusOr<std::shared_ptr<const Qcow2Image>> image = OpenQcow2Image(request);
  if (!image.ok()) return image.status();
  return Qcow2State{*std::move(image), request.Option(option)};
}

}  // namespace

absl::StatusOr<OpenedSource> OpenQcow2Source(SourceRequest& request) {
  if (const auto bitmap = request.Option("bitmap"); bitmap.has_value()) {
    if (request.options().purpose == SourcePurpose::kAllocated) {
      return CannotTell(request, "a dirty bitmap reports what changed, not what is allocated");
    }
    // A bitmap has a fixed start and end; naming other states asks for more than it holds.
    for (const char* other : {"snapshot", "base-snapshot", "layer"}) {
      if (request.Option(other).has_value()) {
        return CannotTell(request, absl::StrCat("bitmap= or ", other, ", not both"));
      }
    }
    absl::StatusOr<std::shared_ptr<const Qcow2Image>> image = OpenQcow2Image(request);
    if (!image.ok()) return image.status();
    return OfCursor(MakeQcow2BitmapCursor(*image, *bitmap));
  }
  absl::StatusOr<Qcow2State> target = StateOf(request, "snapshot");
  if (!target.ok()) return target.status();
  const auto base = request.Option("base-snapshot");
  const bool layer = request.Option("layer").has_value();
  if (base.has_value() || layer) {
    if (request.options().purpose == SourcePurpose::kAllocated) {
      return CannotTell(request, "base-snapshot and layer are about what changed");
    }
    if (layer && base.has_value()) return CannotTell(request, "base-snapshot or layer, not both");
    return OfCursor(layer ? MakeQcow2LayerCursor(*target)
                          : MakeQcow2DeltaCursor({target->image, base}, *target));
  }
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request,
                      "since when? Name a second image, or with the format a bitmap=, a "
                      "base-snapshot=, or layer for what an overlay holds by itself");
  }
  return OfCursor(MakeQcow2AllocationCursor(*target));
}

// If the other side is a qcow2 image, a raw one is a state of it only as a file of its chain.
absl::StatusOr<OpenedSource> OpenQcow2Pair(SourceRequest& base, SourceRequest& target) {
  for (const char* option : {"bitmap", "layer"}) {
    if (target.Option(option).has_value()) {
      return CannotTell(target, absl::StrCat(option, " applies to one image, not to two"));
    }
  }
  absl::StatusOr<Qcow2State> older = StateOf(base, "base-snapshot");
  if (!older.ok()) return older.status();
  absl::StatusOr<Qcow2State> newer = StateOf(target, "snapshot");
  if (!newer.ok()) return newer.status();
  return OfCursor(MakeQcow2DeltaCursor(*older, *newer));
}

}  // namespace cbt
