// Change maps to and from CRoaring's bitmaps. Headers only; component cbt::roaring, which links
// CRoaring. For CRoaring 0.2.66, whose names are global, and for 1 to 4, whose names are in
// namespace roaring.
//
// snippet: tests/consumer/snippets/roaring.cc#both-ways
//   absl::Status BothWays(const Roaring64Map& bitmap) {
//     auto map = cbt::FromRoaring(bitmap, {.capacity = 64_GiB, .granularity = 4_KiB});
//     if (!map.ok()) return map.status();
//     return cbt::ToRoaring<Roaring64Map>(*map).status();
//   }
//
// What is converted are the portable bytes: one pass to write and one to read and check them, and
// memory for one copy beside the result. Values are block numbers: value v stands for the bytes
// from v * granularity on.
//
// Types: roaring_bitmap_t and Roaring, which hold blocks below 2^32; Roaring64Map; and
// roaring64_bitmap_t where CRoaring has it (from 3). C bitmaps come in owners, see RoaringOwner.
#ifndef CBT_BRIDGE_ROARING_H_
#define CBT_BRIDGE_ROARING_H_

#include <roaring/roaring.h>

#include <roaring/roaring.hh>
#include <roaring/roaring64map.hh>

#if __has_include(<roaring/roaring64.h>)
#include <roaring/roaring64.h>
#define CBT_HAS_ROARING64 1
#endif

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"

// Newer versions have their names in these, older ones have no such namespaces.
namespace roaring {
namespace api {}
}  // namespace roaring

namespace cbt {
namespace roaring_names {

using namespace ::roaring;       // NOLINT(google-build-using-namespace)
using namespace ::roaring::api;  // NOLINT(google-build-using-namespace)

using Bitmap32 = roaring_bitmap_t;
using Class32 = Roaring;
using Class64 = Roaring64Map;

inline size_t SizeOf(const Bitmap32& bitmap) {
  return roaring_bitmap_portable_size_in_bytes(&bitmap);
}
inline size_t Write(const Bitmap32& bitmap, char* bytes) {
  return roaring_bitmap_portable_serialize(&bitmap, bytes);
}
inline uint64_t Cardinality(const Bitmap32& bitmap) {
  return roaring_bitmap_get_cardinality(&bitmap);
}
inline void ToArray(const Bitmap32& bitmap, uint32_t* values) {
  roaring_bitmap_to_uint32_array(&bitmap, values);
}
inline void Free(Bitmap32* bitmap) { roaring_bitmap_free(bitmap); }
inline Bitmap32* Read32(const char* bytes, size_t size) {
  return roaring_bitmap_portable_deserialize_safe(bytes, size);
}

#ifdef CBT_HAS_ROARING64
using Bitmap64 = roaring64_bitmap_t;

inline size_t SizeOf(const Bitmap64& bitmap) {
  return roaring64_bitmap_portable_size_in_bytes(&bitmap);
}
inline size_t Write(const Bitmap64& bitmap, char* bytes) {
  return roaring64_bitmap_portable_serialize(&bitmap, bytes);
}
inline uint64_t Cardinality(const Bitmap64& bitmap) {
  return roaring64_bitmap_get_cardinality(&bitmap);
}
inline void ToArray(const Bitmap64& bitmap, uint64_t* values) {
  roaring64_bitmap_to_uint64_array(&bitmap, values);
}
inline void Free(Bitmap64* bitmap) { roaring64_bitmap_free(bitmap); }
inline Bitmap64* Read64(const char* bytes, size_t size) {
  return roaring64_bitmap_portable_deserialize_safe(bytes, size);
}
#endif

}  // namespace roaring_names

namespace internal {

struct FreeRoaring {
  template <typename Bitmap>
  void operator()(Bitmap* bitmap) const {
    roaring_names::Free(bitmap);
  }
};

template <typename T>
inline constexpr bool kIsRoaringClass =
    std::is_same_v<T, roaring_names::Class32> || std::is_same_v<T, roaring_names::Class64>;

template <typename T>
inline constexpr bool kIsRoaring32 =
    std::is_same_v<T, roaring_names::Bitmap32> || std::is_same_v<T, roaring_names::Class32>;

template <typename T>
std::vector<uint8_t> PortableBytes(const T& bitmap) {
  std::vector<uint8_t> bytes;
  size_t written = 0;
  if constexpr (kIsRoaringClass<T>) {
    bytes.resize(bitmap.getSizeInBytes());
    written = bitmap.write(reinterpret_cast<char*>(bytes.data()));
  } else {
    bytes.resize(roaring_names::SizeOf(bitmap));
    written = roaring_names::Write(bitmap, reinterpret_cast<char*>(bytes.data()));
  }
  bytes.resize(written);
  return bytes;
}

// Null if CRoaring does not accept the bytes or has no memory.
template <typename T>
std::unique_ptr<T, FreeRoaring> ReadRoaring(const char* bytes, size_t size) {
#ifdef CBT_HAS_ROARING64
  if constexpr (std::is_same_v<T, roaring_names::Bitmap64>) {
    return std::unique_ptr<T, FreeRoaring>(roaring_names::Read64(bytes, size));
  } else  // NOLINT(readability-else-after-return)
#endif
  {
    static_assert(std::is_same_v<T, roaring_names::Bitmap32>, "not a bitmap of CRoaring");
    return std::unique_ptr<T, FreeRoaring>(roaring_names::Read32(bytes, size));
  }
}

inline absl::Status RoaringRefuses() {
  return absl::ResourceExhaustedError("CRoaring could not read the map's bytes: no memory?");
}

}  // namespace internal

// Owns a roaring_bitmap_t or a roaring64_bitmap_t.
template <typename Bitmap>
using RoaringOwner = std::unique_ptr<Bitmap, internal::FreeRoaring>;

// The map of the blocks in `bitmap`, of any of the types above. Validated like any bytes that come
// from outside (see ChangeMapView::Create()).
// Errors: INVALID_ARGUMENT for the geometry or a block outside it, DATA_LOSS for a bitmap that is
//         damaged in memory. Throws std::bad_alloc.
template <typename Bitmap>
absl::StatusOr<ChangeMap> FromRoaring(const Bitmap& bitmap, const VolumeGeometry& geometry) {
  const std::vector<uint8_t> bytes = internal::PortableBytes(bitmap);
  return internal::kIsRoaring32<Bitmap> ? ChangeMap::FromPortable32(bytes, geometry)
                                        : ChangeMap::FromPortable64(bytes, geometry);
}

// The blocks of `map`: a Roaring or Roaring64Map, or the owner of a C bitmap. CRoaring checks the
// bytes again while it reads them; that every block has arrived is checked by their number.
// Errors: OUT_OF_RANGE if a type of 32 bits can't hold the blocks, RESOURCE_EXHAUSTED if CRoaring
//         has no memory. Throws std::bad_alloc.
template <typename Bitmap>
auto ToRoaring(const ChangeMap& map) -> absl::StatusOr<
    std::conditional_t<internal::kIsRoaringClass<Bitmap>, Bitmap, RoaringOwner<Bitmap>>> {
  std::vector<uint8_t> copy;
  std::span<const uint8_t> bytes = map->portable();
  if constexpr (internal::kIsRoaring32<Bitmap>) {
    absl::StatusOr<std::vector<uint8_t>> portable = map.ToPortable32();
    if (!portable.ok()) return portable.status();
    copy = *std::move(portable);
    bytes = copy;
  }
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  if constexpr (internal::kIsRoaringClass<Bitmap>) {
    try {
      Bitmap bitmap = Bitmap::readSafe(text, bytes.size());
      if (bitmap.cardinality() != map->cardinality()) return internal::RoaringRefuses();
      return bitmap;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      return internal::RoaringRefuses();
    }
  } else {
    RoaringOwner<Bitmap> bitmap = internal::ReadRoaring<Bitmap>(text, bytes.size());
    if (bitmap == nullptr || roaring_names::Cardinality(*bitmap) != map->cardinality()) {
      return internal::RoaringRefuses();
    }
    return bitmap;
  }
}

}  // namespace cbt

#endif  // CBT_BRIDGE_ROARING_H_
