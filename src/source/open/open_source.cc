// Opens an address as a cursor: chooses the function for the format, and its options.
#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "base/file_io.h"
#include "base/parse_number.h"
#include "cbt/change_map_file.h"
#include "cbt/source/btrfs_send.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/ext_filesystem.h"
#include "cbt/source/file_extents.h"
#include "cbt/source/image.h"
#include "cbt/source/lists.h"
#include "cbt/source/nbd.h"
#include "cbt/source/open.h"
#include "cbt/source/qcow2.h"
#include "cbt/transform.h"
#include "source/input/time_limit.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

using Format = SourceFormat;
using Cursor = absl::StatusOr<std::unique_ptr<ExtentCursor>>;

constexpr std::string_view kPartclone = "partclone-image";

absl::Status CannotTell(const SourceRequest& request, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(request.label(), ": ", AbslView(what)));
}

// `map` as a cursor in blocks of the requested size.
absl::StatusOr<OpenedSource> OfMap(const absl::StatusOr<ChangeMap>& map) {
  if (!map.ok()) return map.status();
  return OpenedSource{.cursor = MakeChangeMapCursor(*map), .identity = map->identity()};
}

absl::StatusOr<OpenedSource> OfCursor(Cursor cursor) {
  if (!cursor.ok()) return cursor.status();
  return OpenedSource{.cursor = *std::move(cursor)};
}

ImportOptions ImportOf(SourceRequest& request) {
  const SourceOptions& options = request.options();
  return {.purpose = options.purpose,
          .capacity = options.capacity,
          .base_capacity = options.base_capacity,
          .granularity = options.block_size};
}

// ---- maps and bitmaps

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
    return CannotTell(request, "roaring bytes don't hold the volume's size: give it (capacity)");
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = request.Map();
  if (!file.ok()) return file.status();
  const VolumeGeometry geometry = {*options.capacity, options.block_size};
  const absl::StatusOr<ChangeMap> map = request.format() == Format::kRoaring32
                                            ? ChangeMap::FromPortable32((*file)->bytes(), geometry)
                                            : ChangeMap::FromPortable64((*file)->bytes(), geometry);
  if (!map.ok()) {
    return absl::Status(map.status().code(),
                        absl::StrCat(request.label(), ": ", map.status().message()));
  }
  return OfMap(map);
}

// A partclone image holds the bitmap of what is allocated, after a magic number.
absl::Status CheckPartclone(const SourceRequest& request, std::string_view first) {
  if (request.options().purpose != SourcePurpose::kDelta || !first.starts_with(kPartclone)) {
    return absl::OkStatus();
  }
  return CannotTell(request, "a partclone image holds what is allocated, not what changed");
}

// Peeks at as many bytes as partclone's magic number has, or fewer at the end; decodes base64.
absl::StatusOr<std::string> FirstBytes(ByteStream& stream, bool base64) {
  std::string text(base64 ? ByteStream::kMaxPeek : kPartclone.size(), '\0');
  const absl::StatusOr<size_t> count =
      stream.Peek({reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (!count.ok()) return count.status();
  text.resize(*count);
  if (!base64) return text;
  std::erase_if(text, [](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); });
  constexpr size_t kEncoded = kPartclone.size() / 3 * 4;
  static_assert(kPartclone.size() % 3 == 0);
  if (text.size() < kEncoded && *count == ByteStream::kMaxPeek) {
    return absl::DataLossError(
        absl::StrCat(stream.label(), ": base64 that begins with white space only"));
  }
  std::string bytes;
  if (!absl::Base64Unescape(text.substr(0, kEncoded), &bytes)) {
    return absl::DataLossError(absl::StrCat(stream.label(), ": invalid base64"));
  }
  return bytes;
}

absl::StatusOr<OpenedSource> OpenBitmap(SourceRequest& request) {
  const SourceOptions& options = request.options();
  if (!options.capacity.has_value()) {
    return CannotTell(request,
                      "a dense bitmap does not hold the volume's size: give it (capacity)");
  }
  DenseBitmapLayout layout = {.granularity = options.block_size};
  uint64_t word = 1;
  absl::Status status = request.Number("granularity", kMaxGranularity, layout.granularity);
  if (status.ok()) status = request.Number("header", kMaxCapacity, layout.header_bytes);
  if (status.ok()) status = request.Number("first-bit", kMaxCapacity, layout.first_bit);
  if (status.ok()) status = request.Number("reversed-words", 8, word);
  bool msb = false;
  if (status.ok()) status = request.Choice("order", "lsb", "msb", msb);
  if (status.ok()) status = request.Choice("set", "changed", "same", layout.format.inverted);
  if (!status.ok()) return status;
  layout.format.reversed_word_bytes = static_cast<uint8_t>(word);
  if (msb) layout.format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
  const bool base64 = request.Option("base64").has_value();
  if (!base64 && !request.IsStandardInput()) {
    absl::StatusOr<std::shared_ptr<const Image>> file = request.Image();
    if (!file.ok()) return file.status();
    std::string first(kPartclone.size(), '\0');
    if ((*file)->size() >= first.size()) {
      absl::Status read = (*file)->Read(0, first.size(), reinterpret_cast<uint8_t*>(first.data()));
      if (!read.ok()) return read;
    }
    if (status = CheckPartclone(request, first); !status.ok()) return status;
    return OfCursor(MakeDenseBitmapCursor(*std::move(file), layout, *options.capacity));
  }
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<std::string> first = FirstBytes(**stream, base64);
  if (!first.ok()) return first.status();
  if (status = CheckPartclone(request, *first); !status.ok()) return status;
  return OfCursor(ReadDenseBitmap(**stream, base64, layout, *options.capacity));
}

// ---- images and what is in them

ImageOptions ImageOptionsOf(const SourceOptions& options) {
  return {.block_size = options.block_size,
          .executor = options.executor,
          .skip_zeros = options.skip_zeros};
}

absl::StatusOr<OpenedSource> OpenImage(SourceRequest& request) {
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request,
                      "an image alone does not show what changed: name the base and the target "
                      "(or the format, if this is something else)");
  }
  absl::StatusOr<std::shared_ptr<const Image>> image = request.Image();
  if (!image.ok()) return image.status();
  return OfCursor(MakeImageAllocationCursor(*std::move(image), ImageOptionsOf(request.options())));
}

absl::StatusOr<OpenedSource> OpenExt(SourceRequest& request) {
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request, "a file system reports what is allocated, not what changed");
  }
  ExtOptions options;
  if (const auto unclean = request.Option("unclean"); unclean.has_value()) {
    if (*unclean != "over-report") return CannotTell(request, "unclean: over-report or nothing");
    options.over_report_unclean = true;
  }
  absl::StatusOr<std::shared_ptr<const Image>> image = request.Image();
  if (!image.ok()) return image.status();
  return OfCursor(MakeExtAllocationCursor(*std::move(image), options));
}

absl::StatusOr<std::shared_ptr<const Qcow2Image>> OpenQcow2Image(SourceRequest& request) {
  Qcow2Options options;
  if (absl::Status status = request.Choice("chain", "no", "yes", options.follow_backing);
      !status.ok()) {
    return status;
  }
  if (!request.Option("chain").has_value()) options.follow_backing = true;
  options.allow_writer = request.Option("in-use").has_value();
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
  return Qcow2Image::FromImage(*std::move(file), FolderOf(request.address()), options);
}

absl::StatusOr<Qcow2State> StateOf(SourceRequest& request, std::string_view option) {
  absl::StatusOr<std::shared_ptr<const Qcow2Image>> image = OpenQcow2Image(request);
  if (!image.ok()) return image.status();
  return Qcow2State{*std::move(image), request.Option(option)};
}

absl::StatusOr<OpenedSource> OpenQcow2(SourceRequest& request) {
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

absl::StatusOr<OpenedSource> OpenNbd(SourceRequest& request) {
  NbdExportOptions where;
  where.export_name = request.Option("export");
  where.tls_certificates = request.Option("tls-certificates").value_or("");
  where.tls_psk_file = request.Option("tls-psk").value_or("");
  where.tls_username = request.Option("tls-username").value_or("");
  where.label = request.options().label;
  uint64_t seconds = 30;
  uint64_t depth = 0;
  absl::Status status = request.Number("timeout", 1'000'000, seconds);
  if (status.ok()) status = request.Number("depth", 1 << 20, depth);
  if (!status.ok()) return status;
  where.timeout = std::chrono::seconds(seconds);
  if (request.options().time_limit.has_value()) {
    where.timeout = std::min(where.timeout, *request.options().time_limit);
  }
  NbdOptions options;
  const auto bitmap = request.Option("bitmap");
  if (bitmap.has_value() && depth != 0) return CannotTell(request, "bitmap= or depth=, not both");
  const bool delta = bitmap.has_value() || depth != 0;
  if (request.options().purpose.value_or(delta ? SourcePurpose::kDelta
                                               : SourcePurpose::kAllocated) !=
      (delta ? SourcePurpose::kDelta : SourcePurpose::kAllocated)) {
    return CannotTell(request, delta ? "bitmap= and depth= are about what changed"
                                     : "since when? Give bitmap=NAME of a dirty bitmap, or "
                                       "depth=N for what N overlays hold by themselves");
  }
  if (bitmap.has_value()) options.context = "qemu:dirty-bitmap:" + *bitmap;
  if (depth != 0) {
    options.context = "qemu:allocation-depth";
    options.deepest_changed = static_cast<uint32_t>(depth);
  }
  absl::StatusOr<std::shared_ptr<const NbdExport>> opened =
      NbdExport::Open(request.address(), where);
  if (!opened.ok()) return opened.status();
  return OfCursor(MakeNbdCursor(*std::move(opened), options));
}

// ---- lists

template <typename Read, typename Options>
absl::StatusOr<OpenedSource> OpenList(SourceRequest& request, Read read, const Options& options) {
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  return OfMap(read(**stream, options));
}

absl::StatusOr<OpenedSource> OpenEra(SourceRequest& request) {
  EraOptions options = {.import = ImportOf(request)};
  const bool dump = request.format() == Format::kEraDump;
  const char* const key = dump ? "since-era" : "block-size";
  if (request.Option(key).has_value()) {
    uint64_t number = 0;
    absl::Status status = request.Number(key, kMaxCapacity, number);
    if (!status.ok()) return status;
    (dump ? options.since_era : options.block_size) = number;
  }
  return OpenList(request, dump ? ReadEraDump : ReadEraInvalidate, options);
}

absl::StatusOr<OpenedSource> OpenThinDump(SourceRequest& request) {
  ThinDumpOptions options = {.import = ImportOf(request)};
  if (request.Option("device").has_value()) {
    uint64_t device = 0;
    absl::Status status = request.Number("device", ~uint64_t{0}, device);
    if (!status.ok()) return status;
    options.device = device;
  }
  return OpenList(request, ReadThinDump, options);
}

absl::StatusOr<OpenedSource> OpenBtrfs(SourceRequest& request) {
  const BtrfsSendOptions options = {.path = request.Option("path").value_or(""),
                                    .base_path = request.Option("base-path").value_or(""),
                                    .granularity = request.options().block_size,
                                    .capacity = request.options().capacity,
                                    .single_name = request.Option("single-name").has_value(),
                                    .path_exists = request.Option("path-exists").has_value()};
  absl::StatusOr<OpenedSource> source = OpenList(request, ReadBtrfsSend, options);
  if (!source.ok()) return source;
  const bool delta = !source->identity.base.empty();
  const auto purpose = request.options().purpose;
  if (purpose.has_value() && (*purpose == SourcePurpose::kDelta) != delta) {
    return CannotTell(request, delta ? "an incremental stream reports what changed, not what is "
                                       "allocated"
                                     : "a full stream reports what is there, not what changed");
  }
  return source;
}

absl::StatusOr<OpenedSource> OpenFormat(SourceRequest& request) {
  switch (request.format()) {
    case Format::kImage:
      return OpenImage(request);
    case Format::kChangeMap:
      return OpenChangeMap(request);
    case Format::kRoaring64:
    case Format::kRoaring32:
      return OpenRoaring(request);
    case Format::kBitmap:
      return OpenBitmap(request);
    case Format::kQcow2:
      return OpenQcow2(request);
    case Format::kQemuMap:
      return OpenList(request, ReadQemuMap, ImportOf(request));
    case Format::kNbd:
      return OpenNbd(request);
    case Format::kRbdDiff:
      return OpenList(request, ReadRbdDiff,
                      RbdDiffOptions{.import = ImportOf(request),
                                     .base = request.Option("base").value_or(""),
                                     .target = request.Option("target").value_or("")});
    case Format::kRbdJson:
      return OpenList(request, ReadRbdDiffJson, ImportOf(request));
    case Format::kThinDelta:
      return OpenList(request, ReadThinDelta, ImportOf(request));
    case Format::kThinDump:
      return OpenThinDump(request);
    case Format::kEraInvalidate:
    case Format::kEraDump:
      return OpenEra(request);
    case Format::kBtrfsSend:
      return OpenBtrfs(request);
    case Format::kEbs:
      return OpenList(request, ReadEbsPages, ImportOf(request));
    case Format::kVmware:
      return OpenList(request, ReadVmwareAreas, ImportOf(request));
    case Format::kExt:
      return OpenExt(request);
  }
  return absl::InternalError("unknown source format");
}

// The source with its extents rounded outward and its time limited.
absl::StatusOr<OpenedSource> Shaped(absl::StatusOr<OpenedSource> source,
                                    const SourceRequest& request) {
  if (!source.ok()) return source;
  const SourceOptions& options = request.options();
  if (source->cursor->granularity() % options.block_size != 0) {
    Cursor aligned = AlignOutward(std::move(source->cursor), options.block_size);
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
               ? CannotTell(request, "comparing by extents needs two images")
               : absl::OkStatus();
  }
  if (!request.options().skip_zeros && !request.options().by_extents) return absl::OkStatus();
  return CannotTell(request, absl::StrCat("leaving out zeros and comparing by extents work on raw "
                                          "images, not on ",
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

absl::StatusOr<OpenedSource> OpenImages(SourceRequest& base, SourceRequest& target) {
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
  if (absl::Status status = older.Prepare(); !status.ok()) return status;
  if (absl::Status status = newer.Prepare(); !status.ok()) return status;
  for (const SourceRequest* side : {&older, &newer}) {
    if (absl::Status status = CheckImageOptions(*side, true); !status.ok()) return status;
  }
  if (options.base_capacity.has_value()) {
    return CannotTell(older, "has a size of its own (base-capacity)");
  }
  absl::StatusOr<OpenedSource> source;
  if (older.format() == Format::kImage && newer.format() == Format::kImage) {
    source = OpenImages(older, newer);
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
