#include "programs/cbt/commands/map_input.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "cbt/change_map_file.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/image.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "source/open/source_request.h"

namespace cbt::cli {
namespace {

// The format of a file. A map is expected, so unrecognized content is roaring bytes.
absl::StatusOr<SourceFormat> FormatOf(std::span<const uint8_t> bytes) {
  absl::StatusOr<SourceFormat> format =
      DetectSourceFormat(bytes.first(std::min(bytes.size(), ByteStream::kMaxPeek)));
  if (!format.ok() || *format != SourceFormat::kImage) return format;
  if (bytes.size() >= 4) {
    uint32_t cookie = 0;
    std::memcpy(&cookie, bytes.data(), sizeof(cookie));
    if (cookie == 12346 || (cookie & 0xffff) == 12347) return SourceFormat::kRoaring32;
  }
  return SourceFormat::kRoaring64;
}

// A guest controls the content of its volume, which may look like an empty map. It controls neither
// the size, which is whole sectors, nor the name. Lists are checked where they are read.
bool MayBeAVolume(std::span<const uint8_t> bytes, SourceFormat format, const std::string& path) {
  constexpr size_t kSectorBytes = 512;
  const bool is_map = format == SourceFormat::kChangeMap || format == SourceFormat::kRoaring32 ||
                      format == SourceFormat::kRoaring64;
  return is_map && bytes.size() % kSectorBytes == 0 && !HasNameOf(format, path);
}

// Bits alone, which say neither what they mean nor of which snapshots.
bool IsPlainSet(SourceFormat format, const MapInput& input) {
  return format == SourceFormat::kRoaring32 || format == SourceFormat::kRoaring64 ||
         (format == SourceFormat::kBitmap && input.source.spec.options.empty());
}

bool IsAddress(const std::string& path) {
  return path == "-" || path.find("://") != std::string::npos;
}

// The map at the given capacity, or at the end of its last block.
absl::StatusOr<ChangeMap> FromRoaring(std::span<const uint8_t> bytes, SourceFormat format,
                                      const MapInput& input) {
  VolumeGeometry geometry{input.source.capacity.value_or(kMaxCapacity),
                          input.block_size.value_or(kDefaultBlockSize)};
  absl::StatusOr<ChangeMap> map = format == SourceFormat::kRoaring32
                                      ? ChangeMap::FromPortable32(bytes, geometry)
                                      : ChangeMap::FromPortable64(bytes, geometry);
  if (!map.ok() || input.source.capacity.has_value()) return map;
  // The volume may end inside the last block; the bytes don't say where.
  uint64_t end = 0;
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(*map);
  absl::Status status = ForEachBatch(*cursor, [&end](const ExtentBatch& batch) {
    if (!batch.empty()) end = batch.back().end();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return WithCapacity(*map, end);
}

// What roaring bytes don't hold, and nothing else says.
absl::Status CheckGiven(const MapInput& input) {
  if (input.may_assume) return absl::OkStatus();
  if (!input.source.capacity.has_value()) {
    return absl::InvalidArgumentError(
        "the bytes don't hold the volume's size: give it (--capacity)");
  }
  if (!input.block_size.has_value()) {
    return absl::InvalidArgumentError(
        "the bytes don't hold the size of their blocks: give it (--block-size)");
  }
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> FromDense(std::span<const uint8_t> bytes, const MapInput& input) {
  if (!input.source.capacity.has_value()) {
    return absl::InvalidArgumentError("a dense bitmap needs --capacity");
  }
  if (!input.block_size.has_value()) {
    return absl::InvalidArgumentError("a dense bitmap needs --block-size");
  }
  const uint64_t granularity = *input.block_size;
  const uint64_t bits = BlockCount(*input.source.capacity, granularity);
  absl::StatusOr<BitmapView> view = BitmapView::Create(bytes, 0, bits);
  if (!view.ok()) return view.status();
  if (bytes.size() != (bits + 7) / 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", bytes.size(), " bytes, ", bits, " blocks take ", (bits + 7) / 8));
  }
  return ChangeMap::FromBitmap(*view, {*input.source.capacity, granularity});
}

// Any other source, read to its end.
absl::StatusOr<AnyMap> FromSource(const std::string& path, const MapInput& input) {
  InputFiles files({path});
  SourceOptions options = {.spec = WithBlockSize(input.source.spec, input.block_size),
                           .purpose = input.purpose,
                           .capacity = input.source.capacity,
                           .base_capacity = input.source.base_capacity,
                           .block_size = input.block_size.value_or(0),
                           .open = files.Opener()};
  absl::StatusOr<OpenedSource> source = OpenSource(path, options);
  if (!source.ok()) return source.status();
  const SourceFormatInfo& info = InfoOf(source->format);
  const bool has_names = !source->identity.base.empty() || !source->identity.target.empty();
  // A map without a base says what is allocated; of a list, names say which it is.
  const bool is_map = source->format == SourceFormat::kChangeMap;
  const bool is_set = IsPlainSet(source->format, input);
  if (!is_map && !is_set && info.allocated && info.delta && !input.purpose.has_value() &&
      !has_names) {
    return UsageError(path, std::string(info.name) +
                                " can mean what is allocated or what changed: say which (--as)");
  }
  // A source that knows bytes or sectors has no blocks that a map could have.
  const uint64_t own = source->cursor->granularity();
  const bool usable = IsPowerOfTwo(own) && own >= kMinImageBlockSize;
  absl::StatusOr<ChangeMap> map = ChangeMap::FromCursor(
      *source->cursor, input.block_size.value_or(usable ? own : kDefaultBlockSize));
  if (!map.ok()) return map.status();
  if (!is_map) NoteFormat(input.source.spec, *source);
  const bool delta = !source->identity.base.empty() || !info.allocated;
  map->set_identity(source->identity);
  std::optional<SourcePurpose> what = input.purpose;
  if (!what.has_value() && !is_set) {
    what = delta ? SourcePurpose::kDelta : SourcePurpose::kAllocated;
  }
  return AnyMap{*std::move(map), what, std::move(files)};
}

}  // namespace

void AddMapInput(CLI::App& subcommand, MapInput& input) {
  AddSourceInput(subcommand, input.source, true);
  AddChoiceOption<SourcePurpose>(
      subcommand, "--as", input.purpose,
      {{"allocated", SourcePurpose::kAllocated}, {"delta", SourcePurpose::kDelta}},
      "How to read a list that could be either: allocated or delta")
      ->type_name("WHAT");
  AddBlockSizeOption(subcommand, input.block_size);
  ShowOtherDefault(subcommand, "--block-size", "that of the input, or 4096 where it has none");
}

absl::StatusOr<ChangeMapIdentity> AnyMap::Named(const MapNames& names) const {
  const bool based = !names.base.value_or(map.identity().base).empty();
  if (!what.has_value() && !based) {
    return UsageError("--as",
                      "the input does not say whether this is what is allocated, or what changed "
                      "(--as delta and --base-name)");
  }
  return names.Over(map.identity(),
                    what.value_or(based ? SourcePurpose::kDelta : SourcePurpose::kAllocated));
}

absl::StatusOr<AnyMap> ReadAnyMap(const std::string& path, const MapInput& input) {
  if (IsAddress(path)) return FromSource(path, input);
  // A pipe can be read only once: leave it to the reader of lists.
  if (struct stat stat; ::stat(path.c_str(), &stat) == 0 && S_ISFIFO(stat.st_mode)) {
    return FromSource(path, input);
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = (*file)->bytes();
  absl::StatusOr<SourceFormat> format = SourceFormat::kRoaring64;
  if (input.source.spec.format.has_value()) {
    format = *input.source.spec.format;
  } else {
    format = FormatOf(bytes);
  }
  if (!format.ok()) return UsageError(path, MessageOf(format.status()) + " (--from)");
  // Unrecognised content may be roaring bytes, but so may anything.
  if (!input.source.spec.format.has_value() && *format == SourceFormat::kRoaring64) {
    const absl::StatusOr<ChangeMap> guess = FromRoaring(bytes, *format, input);
    if (!guess.ok()) {
      return UsageError(path,
                        "is not a map, nor a list that is known by its content: name the "
                        "format (--from, such as --from image for the bytes of a volume); "
                        "as roaring64: " +
                            MessageOf(guess.status()));
    }
  }
  if (!input.source.spec.format.has_value() && MayBeAVolume(bytes, *format, path)) {
    const std::string name = InfoOf(*format).name;
    return UsageError(path, "looks like " + std::string(InfoOf(*format).what) +
                                ", but could be a raw volume with that content: name the "
                                "format (--from " +
                                name + ")");
  }
  absl::StatusOr<ChangeMap> map;
  if (*format == SourceFormat::kChangeMap) {
    map = ReadChangeMap(path);
    if (!map.ok()) return map.status();
    const SourcePurpose what =
        map->identity().base.empty() ? SourcePurpose::kAllocated : SourcePurpose::kDelta;
    if (input.purpose.value_or(what) != what) {
      return UsageError(path, what == SourcePurpose::kDelta
                                  ? "has a base: it says what changed (--as)"
                                  : "has no base: it says what is allocated (--as)");
    }
    return AnyMap{*std::move(map), what, InputFiles({path})};
  }
  if (!IsPlainSet(*format, input) || !input.source.spec.options.empty()) {
    return FromSource(path, input);
  }
  const bool dense = *format == SourceFormat::kBitmap;
  const absl::Status given = dense ? absl::OkStatus() : CheckGiven(input);
  if (!given.ok()) {
    map = given;
  } else {
    map = dense ? FromDense(bytes, input) : FromRoaring(bytes, *format, input);
  }
  if (map.ok()) {
    const bool known = input.source.capacity.has_value() && input.block_size.has_value();
    return AnyMap{*std::move(map), input.purpose, InputFiles({path}), !known};
  }
  return absl::Status(map.status().code(), absl::StrCat(path, ": as ", InfoOf(*format).name, ": ",
                                                        map.status().message()));
}

}  // namespace cbt::cli
