// Opens an address as a cursor: chooses the opener of its format, and applies the common options.
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/open.h"
#include "cbt/transform.h"
#include "source/input/time_limit.h"
#include "source/open/openers.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

using Format = SourceFormat;

absl::StatusOr<OpenedSource> OpenFormat(SourceRequest& request) {
  switch (request.format()) {
    case Format::kImage:
      return OpenImageSource(request);
    case Format::kChangeMap:
    case Format::kRoaring64:
    case Format::kRoaring32:
      return OpenMapSource(request);
    case Format::kBitmap:
      return OpenBitmapSource(request);
    case Format::kPartclone:
      return OpenPartcloneSource(request);
    case Format::kQcow2:
      return OpenQcow2Source(request);
    case Format::kNbd:
      return OpenNbdSource(request);
    case Format::kBtrfsSend:
      return OpenBtrfsSource(request);
    case Format::kExt:
      return OpenExtSource(request);
    case Format::kQemuMap:
    case Format::kRbdDiff:
    case Format::kRbdJson:
    case Format::kThinDelta:
    case Format::kThinDump:
    case Format::kEraInvalidate:
    case Format::kEraDump:
    case Format::kEbs:
    case Format::kVmware:
    case Format::kNdjson:
    case Format::kJson:
    case Format::kCsv:
      return OpenListSource(request);
  }
  return absl::InternalError("unknown source format");
}

// The source with its extents rounded outward and its time limited.
absl::StatusOr<OpenedSource> Shaped(absl::StatusOr<OpenedSource> source,
                                    const SourceRequest& request) {
  if (!source.ok()) return source;
  const SourceOptions& options = request.options();
  if (!request.own_block_size() && source->cursor->granularity() % options.block_size != 0) {
    absl::StatusOr<std::unique_ptr<ExtentCursor>> aligned =
        AlignOutward(std::move(source->cursor), options.block_size);
    if (!aligned.ok()) return aligned.status();
    source->cursor = *std::move(aligned);
  }
  if (options.time_limit.has_value()) {
    source->cursor = LimitTime(std::move(source->cursor), *options.time_limit, request.label());
  }
  return source;
}

// The given capacity must match a source that knows its own.
absl::Status CheckCapacity(SourceRequest& request, const OpenedSource& source) {
  const uint64_t capacity = source.cursor->capacity();
  if (request.options().capacity.value_or(capacity) == capacity) return absl::OkStatus();
  return CannotTell(request, absl::StrCat("the volume has ", capacity, " bytes, not ",
                                          *request.options().capacity));
}

// Refuses options that only images support, rather than ignoring them.
absl::Status CheckImageOptions(const SourceRequest& request, bool pair) {
  if (request.format() == Format::kImage) {
    return request.options().by_extents && !pair
               ? CannotTell(request, "--by-extents needs two images")
               : absl::OkStatus();
  }
  if (!request.options().skip_zeros && !request.options().by_extents) return absl::OkStatus();
  return CannotTell(request, absl::StrCat("--skip-zeros and --by-extents are for raw images, not ",
                                          InfoOf(request.format()).what));
}

absl::StatusOr<OpenedSource> OpenRequest(SourceRequest& request) {
  if (absl::Status status = CheckImageOptions(request, false); !status.ok()) return status;
  absl::StatusOr<OpenedSource> source = OpenFormat(request);
  if (!source.ok()) return source;
  if (absl::Status status = CheckCapacity(request, *source); !status.ok()) return status;
  source->format = request.format();
  return Shaped(std::move(source), request);
}

// Free blocks of a file system hold arbitrary bytes, and a clone's blocks may come from its parent:
// what two states have allocated does not show where they differ, not even rounded outward.
absl::Status NoDelta(const SourceRequest& base, const SourceRequest& target) {
  return absl::FailedPreconditionError(absl::StrCat(
      base.label(), " (", InfoOf(base.format()).name, ") and ", target.label(), " (",
      InfoOf(target.format()).name,
      "): a delta needs two raw images or two qcow2 images; what other sources have "
      "allocated does not show what changed: compare the images' bytes (--from image), or name one "
      "source that reports what changed"));
}

}  // namespace

absl::Status CannotTell(const SourceRequest& request, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(request.label(), ": ", AbslView(why)));
}

absl::StatusOr<OpenedSource> OfMap(const absl::StatusOr<ChangeMap>& map) {
  if (!map.ok()) return map.status();
  return OpenedSource{.cursor = MakeChangeMapCursor(*map), .identity = map->identity()};
}

absl::StatusOr<OpenedSource> OfCursor(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
  if (!cursor.ok()) return cursor.status();
  return OpenedSource{.cursor = *std::move(cursor)};
}

ImportOptions ImportOf(const SourceRequest& request) {
  const SourceOptions& options = request.options();
  return {.purpose = options.purpose,
          .capacity = options.capacity,
          .base_capacity = options.base_capacity,
          .granularity = options.block_size};
}

absl::StatusOr<OpenedSource> OpenSource(const std::string& address, const SourceOptions& options) {
  SourceRequest request(address, options);
  if (absl::Status status = request.Prepare(); !status.ok()) return status;
  return OpenRequest(request);
}

absl::StatusOr<OpenedSource> OpenDelta(const std::string& base, const std::string& target,
                                       const SourceOptions& options) {
  // Each side has its own size.
  SourceOptions of_target = options;
  of_target.base_capacity.reset();
  SourceOptions of_base = of_target;
  of_base.capacity.reset();
  of_base.label.clear();
  SourceRequest older(base, of_base);
  SourceRequest newer(target, of_target);
  older.RefusePipes();
  newer.RefusePipes();
  if (absl::Status status = older.Prepare(); !status.ok()) return status;
  if (absl::Status status = newer.Prepare(); !status.ok()) return status;
  for (const SourceRequest* side : {&older, &newer}) {
    if (absl::Status status = CheckImageOptions(*side, true); !status.ok()) return status;
  }
  if (options.base_capacity.has_value()) {
    return CannotTell(older, "has a size of its own (--base-capacity)");
  }
  absl::StatusOr<OpenedSource> source;
  if (older.format() == Format::kImage && newer.format() == Format::kImage) {
    source = OpenImagePair(older, newer);
  } else if (older.format() == Format::kQcow2 && newer.format() == Format::kQcow2) {
    source = OpenQcow2Pair(older, newer);
  } else {
    return NoDelta(older, newer);
  }
  if (!source.ok()) return source;
  if (absl::Status status = CheckCapacity(newer, *source); !status.ok()) return status;
  source->format = newer.format();
  return Shaped(std::move(source), newer);
}

}  // namespace cbt
