#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "c/handles.h"
#include "cbt/change_map_file.h"

struct cbt_map_builder : cbt::c::Exclusive {
  explicit cbt_map_builder(cbt::ChangeMapBuilder made)
      : Exclusive(&kKind<cbt_map_builder>), builder(std::move(made)) {}
  cbt::ChangeMapBuilder builder;
};

namespace cbt::c {
namespace {

// For results that are a map.
template <typename Make>
cbt_code MakeMap(cbt_map** map, cbt_error** error, const Make& make) noexcept {
  return AtBorder(error, [&]() -> absl::Status {
    if (map == nullptr) return IsNull("map");
    *map = nullptr;
    return Return(make(), map);
  });
}

template <typename Make>
cbt_code CombineMaps(const cbt_map* a, const cbt_map* b, cbt_map** map, cbt_error** error,
                     const Make& make) noexcept {
  return MakeMap(map, error, [&]() -> absl::StatusOr<ChangeMap> {
    if (absl::Status status = Check(a, "a"); !status.ok()) return status;
    if (absl::Status status = Check(b, "b"); !status.ok()) return status;
    return make(a->map.view(), b->map.view());
  });
}

absl::Status CheckBits(int32_t bits) {
  if (bits == 32 || bits == 64) return absl::OkStatus();
  return absl::InvalidArgumentError("bits: expected 32 or 64");
}

const std::string* NameOf(const ChangeMapIdentity& identity, int32_t which) {
  switch (which) {
    case CBT_NAME_VOLUME:
      return &identity.volume;
    case CBT_NAME_BASE:
      return &identity.base;
    case CBT_NAME_TARGET:
      return &identity.target;
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status Return(absl::StatusOr<ChangeMap> made, cbt_map** map) {
  if (!made.ok()) return made.status();
  *map = new cbt_map(*std::move(made));
  return absl::OkStatus();
}

}  // namespace cbt::c

cbt_code cbt_map_builder_new(const cbt_geometry* geometry, cbt_map_builder** builder,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (builder == nullptr) return cbt::c::IsNull("builder");
    *builder = nullptr;
    if (geometry == nullptr) return cbt::c::IsNull("geometry");
    absl::StatusOr<cbt::ChangeMapBuilder> made = cbt::ChangeMapBuilder::Create(
        {.capacity = geometry->capacity, .granularity = geometry->granularity});
    if (!made.ok()) return made.status();
    *builder = new cbt_map_builder(*std::move(made));
    return absl::OkStatus();
  });
}

cbt_code cbt_map_builder_add(cbt_map_builder* builder, const uint64_t* offsets,
                             const uint64_t* lengths, uint64_t count, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(builder, "builder"); !status.ok()) return status;
    if (count != 0 && (offsets == nullptr || lengths == nullptr)) {
      return cbt::c::IsNull("offsets and lengths");
    }
    const cbt::c::Exclusive::Use use(*builder);
    if (!use) return cbt::c::IsBusy("builder");
    for (uint64_t i = 0; i < count; ++i) {
      if (absl::Status status = builder->builder.Add(cbt::Extent{offsets[i], lengths[i]});
          !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  });
}

cbt_code cbt_map_builder_build(cbt_map_builder* builder, cbt_map** map,
                               cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (absl::Status status = cbt::c::Check(builder, "builder"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*builder);
    if (!use) return cbt::c::IsBusy("builder");
    return builder->builder.Build();
  });
}

void cbt_map_builder_free(cbt_map_builder* builder) noexcept { cbt::c::Free(builder); }

cbt_code cbt_map_from_cursor(cbt_cursor* cursor, uint64_t granularity, cbt_map** map,
                             cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*cursor);
    if (!use) return cbt::c::IsBusy("cursor");
    if (cursor->batch.has_value()) cursor->batch->clear();
    cursor->taken = 0;
    cursor->complete = false;
    // Until it is at its end: something may throw.
    cursor->adrift = true;
    absl::StatusOr<cbt::ChangeMap> made = cbt::ChangeMap::FromCursor(*cursor->cursor, granularity);
    cursor->complete = made.ok();
    cursor->adrift = !made.ok();
    return made;
  });
}

cbt_code cbt_map_from_portable(const cbt_bytes* portable, int32_t bits,
                               const cbt_geometry* geometry, cbt_map** map,
                               cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (absl::Status status = cbt::c::Check(portable, "portable"); !status.ok()) return status;
    if (absl::Status status = cbt::c::CheckBits(bits); !status.ok()) return status;
    if (geometry == nullptr) return cbt::c::IsNull("geometry");
    const cbt::VolumeGeometry volume = {.capacity = geometry->capacity,
                                        .granularity = geometry->granularity};
    if (bits == 32) return cbt::ChangeMap::FromPortable32(portable->bytes.bytes(), volume);
    return cbt::ChangeMap::KeepPortable64(portable->bytes, volume);
  });
}

cbt_code cbt_map_get_info(const cbt_map* map, cbt_map_info* info, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    if (info == nullptr) return cbt::c::IsNull("info");
    const cbt::ChangeMapStatistics found = map->map->Statistics();
    const cbt_map_info result = {
        .struct_size = 0,
        .geometry = {.capacity = map->map->capacity(), .granularity = map->map->granularity()},
        .blocks = found.blocks,
        .bytes = found.bytes,
        .runs = found.runs,
        .portable_bytes = map->map->portable().size()};
    return cbt::c::WriteResult(result, "info", info);
  });
}

int32_t cbt_map_contains(const cbt_map* map, uint64_t block) noexcept {
  return cbt::c::Usable(map) && map->map->Contains(block) ? 1 : 0;
}

cbt_code cbt_cursor_from_map(const cbt_map* map, cbt_cursor** cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    return cbt::c::Return(cbt::MakeChangeMapCursor(map->map), cursor);
  });
}

cbt_code cbt_map_to_portable(const cbt_map* map, int32_t bits, cbt_bytes** portable,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (portable == nullptr) return cbt::c::IsNull("portable");
    *portable = nullptr;
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    if (absl::Status status = cbt::c::CheckBits(bits); !status.ok()) return status;
    if (bits == 32) {
      absl::StatusOr<std::vector<uint8_t>> bytes = map->map.ToPortable32();
      if (!bytes.ok()) return bytes.status();
      *portable = new cbt_bytes(*std::move(bytes));
      return absl::OkStatus();
    }
    // A copy of the view keeps the bytes.
    const auto view = std::make_shared<const cbt::ChangeMapView>(map->map.view());
    *portable = new cbt_bytes(cbt::SharedBytes(view, view->portable()));
    return absl::OkStatus();
  });
}

const char* cbt_map_name_borrowed(const cbt_map* map, int32_t which) noexcept {
  if (!cbt::c::Usable(map)) return "";
  const std::string* const name = cbt::c::NameOf(map->map.identity(), which);
  return name == nullptr ? "" : name->c_str();
}

cbt_code cbt_map_set_identity(cbt_map* map, const char* volume, const char* base,
                              const char* target, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    map->map.set_identity({.volume = cbt::c::Text(volume),
                           .base = cbt::c::Text(base),
                           .target = cbt::c::Text(target)});
    return absl::OkStatus();
  });
}

cbt_code cbt_map_union(const cbt_map* const* maps, uint64_t count, cbt_map** map,
                       cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (maps == nullptr) return cbt::c::IsNull("maps");
    std::vector<cbt::ChangeMapView> views;
    for (uint64_t i = 0; i < count; ++i) {
      if (absl::Status status = cbt::c::Check(maps[i], "maps"); !status.ok()) return status;
      views.push_back(maps[i]->map.view());
    }
    return cbt::Union(std::span<const cbt::ChangeMapView>(views));
  });
}

cbt_code cbt_map_intersection(const cbt_map* a, const cbt_map* b, cbt_map** map,
                              cbt_error** error) noexcept {
  return cbt::c::CombineMaps(a, b, map, error, cbt::Intersection);
}

cbt_code cbt_map_difference(const cbt_map* a, const cbt_map* b, cbt_map** map,
                            cbt_error** error) noexcept {
  return cbt::c::CombineMaps(a, b, map, error, cbt::Difference);
}

cbt_code cbt_map_symmetric_difference(const cbt_map* a, const cbt_map* b, cbt_map** map,
                                      cbt_error** error) noexcept {
  return cbt::c::CombineMaps(a, b, map, error, cbt::SymmetricDifference);
}

cbt_code cbt_map_with_geometry(const cbt_map* map, const cbt_geometry* geometry, cbt_map** result,
                               cbt_error** error) noexcept {
  return cbt::c::MakeMap(result, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    if (geometry == nullptr) return cbt::c::IsNull("geometry");
    // At the map's own granularity first: a larger block would hide where the volume ended.
    absl::StatusOr<cbt::ChangeMap> sized = cbt::WithCapacity(map->map, geometry->capacity);
    if (!sized.ok()) return sized;
    return cbt::WithGranularity(*sized, geometry->granularity);
  });
}

int32_t cbt_map_equal(const cbt_map* a, const cbt_map* b) noexcept {
  return cbt::c::Usable(a) && cbt::c::Usable(b) && a->map.view() == b->map.view() ? 1 : 0;
}

cbt_code cbt_map_save(const cbt_map* map, const char* path, int32_t no_sync,
                      cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    if (path == nullptr) return cbt::c::IsNull("path");
    return cbt::WriteChangeMap(map->map, path, {.sync = no_sync == 0}).status();
  });
}

cbt_code cbt_map_load(const char* path, cbt_map** map, cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (path == nullptr) return cbt::c::IsNull("path");
    return cbt::ReadChangeMap(path);
  });
}

cbt_code cbt_map_encode(const cbt_map* map, cbt_bytes** file, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (file == nullptr) return cbt::c::IsNull("file");
    *file = nullptr;
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    absl::StatusOr<std::vector<uint8_t>> bytes = cbt::EncodeChangeMap(map->map);
    if (!bytes.ok()) return bytes.status();
    *file = new cbt_bytes(*std::move(bytes));
    return absl::OkStatus();
  });
}

cbt_code cbt_map_decode(const void* file, uint64_t size, cbt_map** map,
                        cbt_error** error) noexcept {
  return cbt::c::MakeMap(map, error, [&]() -> absl::StatusOr<cbt::ChangeMap> {
    if (file == nullptr && size != 0) return cbt::c::IsNull("file");
    return cbt::DecodeChangeMap({static_cast<const uint8_t*>(file), static_cast<size_t>(size)},
                                "the change map");
  });
}

void cbt_map_free(cbt_map* map) noexcept { cbt::c::Free(map); }
