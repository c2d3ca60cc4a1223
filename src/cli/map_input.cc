#include "cli/map_input.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/change_map_file.h"
#include "cli/numbers.h"
#include "cli/status.h"
#include "cli/stream_options.h"
#include "map/container.h"
#include "map/file_io.h"

namespace cbt::cli {
namespace {

constexpr std::pair<const char*, MapFormat> kFormats[] = {{"cbm", MapFormat::kCbm},
                                                          {"roaring64", MapFormat::kRoaring64},
                                                          {"roaring32", MapFormat::kRoaring32},
                                                          {"bitmap", MapFormat::kBitmap}};

// What a file looks like. Dense bitmaps look like anything and have to be named.
MapFormat FormatOf(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() >= 8 && bytes[0] == 0x89 && bytes[1] == 'C') return MapFormat::kCbm;
  if (bytes.size() >= 4) {
    const uint32_t cookie = LoadU32(bytes.data());
    if (cookie == 12346 || (cookie & 0xffff) == 12347) return MapFormat::kRoaring32;
  }
  return MapFormat::kRoaring64;
}

// The map at the largest capacity, cut to what was given or to the end of its last block.
absl::StatusOr<ChangeMap> FromRoaring(std::span<const uint8_t> bytes, MapFormat format,
                                      const MapInput& input) {
  VolumeGeometry geometry{input.capacity.value_or(kMaxCapacity),
                          input.block_size.value_or(kDefaultBlockSize)};
  absl::StatusOr<ChangeMap> map = format == MapFormat::kRoaring32
                                      ? ChangeMap::FromPortable32(bytes, geometry)
                                      : ChangeMap::FromPortable64(bytes, geometry);
  if (!map.ok() || input.capacity.has_value()) return map;
  // The last block may be of a volume that ends inside it; nobody says where.
  uint64_t end = 0;
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(*map);
  absl::Status status = ForEachBatch(*cursor, [&end](const ExtentBatch& batch) {
    if (!batch.empty()) end = batch.back().end();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return WithCapacity(*map, end);
}

absl::StatusOr<ChangeMap> FromDense(std::span<const uint8_t> bytes, const MapInput& input) {
  const uint64_t granularity = input.block_size.value_or(kDefaultBlockSize);
  if (!input.capacity.has_value()) {
    return absl::InvalidArgumentError("a dense bitmap needs --capacity");
  }
  const uint64_t bits = BlockCount(*input.capacity, granularity);
  absl::StatusOr<BitmapView> view = BitmapView::Create(bytes, 0, bits);
  if (!view.ok()) return view.status();
  if (bytes.size() != (bits + 7) / 8) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", bytes.size(), " bytes, ", bits, " blocks take ", (bits + 7) / 8));
  }
  return ChangeMap::FromBitmap(*view, {*input.capacity, granularity});
}

}  // namespace

const char* MapFormatName(MapFormat format) noexcept {
  for (const auto& [name, value] : kFormats) {
    if (value == format) return name;
  }
  return "unknown";
}

void AddMapInput(CLI::App& subcommand, MapInput& input) {
  subcommand
      .add_option_function<std::string>(
          "--from",
          [&input](const std::string& text) {
            for (const auto& [name, format] : kFormats) {
              if (text == name) input.format = format;
            }
            if (!input.format.has_value()) {
              throw CLI::ValidationError(
                  "--from", "'" + text + "': not one of cbm, roaring64, roaring32, bitmap");
            }
          },
          "cbm, roaring64, roaring32 or bitmap; all but the last are known by their content")
      ->type_name("FORMAT");
  subcommand
      .add_option_function<std::string>(
          "--capacity",
          [&input](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, kMaxCapacity);
            if (!value.ok()) throw CLI::ValidationError("--capacity", MessageOf(value.status()));
            input.capacity = *value;
          },
          "Size of the volume in bytes, for inputs that don't say it")
      ->type_name("N");
  AddBlockSizeOption(subcommand, input.block_size);
}

absl::StatusOr<ChangeMap> ReadAnyMap(const std::string& path, const MapInput& input) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = (*file)->bytes();
  const MapFormat format = input.format.value_or(FormatOf(bytes));
  if (format == MapFormat::kCbm) return ReadChangeMap(path);
  absl::StatusOr<ChangeMap> map =
      format == MapFormat::kBitmap ? FromDense(bytes, input) : FromRoaring(bytes, format, input);
  if (map.ok()) return map;
  return absl::Status(map.status().code(), absl::StrCat(path, ": as ", MapFormatName(format), ": ",
                                                        map.status().message()));
}

}  // namespace cbt::cli
