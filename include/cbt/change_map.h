// Change maps: the set of changed blocks between two snapshots of a volume, roaring-compressed.
//
// A map is stored in the portable 64-bit serialisation of the public RoaringFormatSpec
// (https://github.com/RoaringBitmap/RoaringFormatSpec), which other languages can read: block
// indexes in groups ("containers") of 65536, each a sorted array, a bitset or a list of runs,
// whichever is smallest. The serialised form is the data structure: it is read in place, in memory
// or mapped from a file, and every operation works on it container by container.
//
// Block k of a map is the bytes [k * granularity, (k + 1) * granularity), cut at the capacity.
#ifndef CBT_CHANGE_MAP_H_
#define CBT_CHANGE_MAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/bitmap.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/lifetime.h"

namespace cbt {

class PortableIndex;

// What a map describes. Each name is UTF-8 of at most kMaxMapNameBytes bytes, empty if unknown. A
// map without a base lists what is allocated in the target.
struct ChangeMapIdentity {
  std::string volume = {};
  std::string base = {};
  std::string target = {};

  friend bool operator==(const ChangeMapIdentity&, const ChangeMapIdentity&) = default;
};

inline constexpr size_t kMaxMapNameBytes = 4096;

// The maximum size of a map in bytes; building a larger one fails with RESOURCE_EXHAUSTED (choose a
// coarser granularity). Enough for 2^31 isolated blocks, or for a volume of 2^35 blocks with random
// changes.
inline constexpr uint64_t kMaxMapBytes = uint64_t{1} << 32;

// The contents of a map.
struct ChangeMapStatistics {
  uint64_t blocks = 0;
  uint64_t bytes = 0;  // volume bytes in these blocks: the last one may be partial
  uint64_t runs = 0;   // maximal runs of blocks; a cursor returns one extent for each
  uint64_t arrays = 0;
  uint64_t bitsets = 0;
  uint64_t run_containers = 0;
};

// A validated map in portable bytes. The view of a ChangeMap keeps the map's bytes; one that
// Create() makes borrows the caller's, which must outlive it and everything made from it, and must
// not change. Cheap to copy; any number of threads may read it.
class ChangeMapView {
 public:
  // The empty map of an empty volume.
  ChangeMapView();

  // Views portable 64-bit roaring bytes of any alignment, after full validation: keys ascend,
  // cardinalities match, arrays strictly ascend, runs neither overlap nor touch, offsets and sizes
  // are exact, nothing trails, and no block lies past the capacity.
  // Errors: INVALID_ARGUMENT for the geometry or a block outside it; for everything else DATA_LOSS,
  //         naming the byte offset and the reason.
  // Cost:   one pass; allocates in proportion to the bytes.
  static absl::StatusOr<ChangeMapView> Create(std::span<const uint8_t> portable,
                                              const VolumeGeometry& geometry);
  // A view of a temporary would dangle: ChangeMap::KeepPortable64() keeps it.
  template <TemporaryBytes Bytes>
  static absl::StatusOr<ChangeMapView> Create(Bytes&& portable,
                                              const VolumeGeometry& geometry) = delete;

  uint64_t capacity() const noexcept { return geometry_.capacity; }
  uint64_t granularity() const noexcept { return geometry_.granularity; }
  const VolumeGeometry& geometry() const noexcept { return geometry_; }

  // The portable 64-bit serialisation; valid as long as the view or a copy of it.
  std::span<const uint8_t> portable() const noexcept CBT_LIFETIME_BOUND;

  bool empty() const noexcept { return cardinality() == 0; }
  // The number of changed blocks. O(1).
  uint64_t cardinality() const noexcept;
  // The number of bytes in them. O(log containers).
  uint64_t changed_bytes() const noexcept;

  // True if block `block` (any value) has changed. O(log containers).
  bool Contains(uint64_t block) const noexcept;
  // True if every block of [begin, end) has changed. O(log containers + containers in the range).
  bool ContainsRange(uint64_t begin, uint64_t end) const noexcept;
  // The number of changed blocks below `block`. O(containers in 2^32 blocks).
  uint64_t Rank(uint64_t block) const noexcept;
  // The number of changed bytes below `offset` (bytes). Cost as Rank().
  uint64_t ChangedBytesBelow(uint64_t offset) const noexcept;

  // One pass over the map.
  ChangeMapStatistics Statistics() const;

  // True if both have the same geometry and the same blocks, however they are encoded.
  friend bool operator==(const ChangeMapView& a, const ChangeMapView& b) noexcept;

 private:
  friend class ChangeMapAccess;
  ChangeMapView(std::shared_ptr<const PortableIndex> index, const VolumeGeometry& geometry);

  std::shared_ptr<const PortableIndex> index_;
  VolumeGeometry geometry_;
};

// A map that owns its bytes. The bytes never change: functions that modify the map replace them.
// Cheap to copy: copies, and the cursors over them, share the bytes. Maps that libcbt builds are
// canonical: equal blocks of equal geometry give equal bytes.
class ChangeMap {
 public:
  // The empty map of an empty volume.
  ChangeMap() = default;

  // A map in which nothing, or everything, has changed. Full() costs O(containers).
  // Errors: INVALID_ARGUMENT for the geometry, RESOURCE_EXHAUSTED over kMaxMapBytes.
  static absl::StatusOr<ChangeMap> Empty(const VolumeGeometry& geometry);
  static absl::StatusOr<ChangeMap> Full(const VolumeGeometry& geometry);

  // Everything that `cursor` reports from offset 0, rounded outward to `granularity` (0: the
  // cursor's).
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED over kMaxMapBytes, INTERNAL for extents that go
  //         backwards, the cursor's errors.
  static absl::StatusOr<ChangeMap> FromCursor(ExtentCursor& cursor, uint64_t granularity = 0);

  // The set bits of a dense bitmap, converted a container at a time.
  // Requires: bitmap.bit_count() == BlockCount(geometry).
  static absl::StatusOr<ChangeMap> FromBitmap(const BitmapView& bitmap,
                                              const VolumeGeometry& geometry);

  // A copy of portable roaring bytes, 64-bit (see ChangeMapView::Create()) or 32-bit.
  static absl::StatusOr<ChangeMap> FromPortable64(std::span<const uint8_t> bytes,
                                                  const VolumeGeometry& geometry);
  static absl::StatusOr<ChangeMap> FromPortable32(std::span<const uint8_t> bytes,
                                                  const VolumeGeometry& geometry);

  // The map in portable 64-bit bytes that it keeps, without a copy: a vector that is moved in, or a
  // mapping with its owner. They must not change. Errors and cost as ChangeMapView::Create().
  static absl::StatusOr<ChangeMap> KeepPortable64(SharedBytes bytes,
                                                  const VolumeGeometry& geometry);

  // The portable 32-bit serialisation, which holds blocks below 2^32 only.
  // Errors: OUT_OF_RANGE if the map has others.
  absl::StatusOr<std::vector<uint8_t>> ToPortable32() const;

  // The map's view, valid as long as this object; a copy of it keeps the bytes by itself.
  const ChangeMapView& view() const& noexcept CBT_LIFETIME_BOUND { return view_; }
  ChangeMapView view() && noexcept { return std::move(view_); }
  operator const ChangeMapView&() const noexcept CBT_LIFETIME_BOUND {  // NOLINT(*-explicit-*)
    return view_;
  }
  const ChangeMapView* operator->() const noexcept CBT_LIFETIME_BOUND { return &view_; }

  const ChangeMapIdentity& identity() const noexcept { return identity_; }
  void set_identity(ChangeMapIdentity identity) { identity_ = std::move(identity); }

  // Each replaces the map with the result of the corresponding function below and keeps the
  // identity. On an error the map is unchanged.
  absl::Status UniteWith(const ChangeMapView& other);
  absl::Status IntersectWith(const ChangeMapView& other);
  absl::Status Subtract(const ChangeMapView& other);
  absl::Status Toggle(const ChangeMapView& other);

  // Converts every container to its smallest kind, which makes the map canonical; true if it got
  // smaller. Maps built here are canonical already, imported ones may not be. An imported map can
  // grow: a group of fewer than four containers that is marked as having runs and has none takes up
  // to 15 bytes more.
  absl::StatusOr<bool> Optimize();

 private:
  friend class ChangeMapAccess;
  absl::Status Replace(absl::StatusOr<ChangeMap> result);

  ChangeMapView view_;
  ChangeMapIdentity identity_;
};

// Set algebra. The result has no identity.
//
// Maps of different granularities combine exactly at the finest one, which must divide the others.
// Of maps of different capacities, a union has the largest capacity, and a smaller map counts as
// changed from its own capacity on (rounded down to a block). The other operations require equal
// capacities, see WithCapacity().
//
// Errors: INVALID_ARGUMENT for geometries that don't combine, RESOURCE_EXHAUSTED over kMaxMapBytes.
// Cost:   one pass over the maps; memory is the result and one container.
absl::StatusOr<ChangeMap> Union(const ChangeMapView& a, const ChangeMapView& b);
// Any number of maps, at least one, in one pass.
absl::StatusOr<ChangeMap> Union(std::span<const ChangeMap> maps);
absl::StatusOr<ChangeMap> Union(std::span<const ChangeMapView> maps);
absl::StatusOr<ChangeMap> Intersection(const ChangeMapView& a, const ChangeMapView& b);
// What is in `a` and not in `b`: `b` must be exact, not rounded outward.
absl::StatusOr<ChangeMap> Difference(const ChangeMapView& a, const ChangeMapView& b);
absl::StatusOr<ChangeMap> SymmetricDifference(const ChangeMapView& a, const ChangeMapView& b);

// The map in blocks of `granularity` bytes: exact if that divides the map's, otherwise every block
// that holds a changed byte.
absl::StatusOr<ChangeMap> WithGranularity(const ChangeMapView& map, uint64_t granularity);

// The map for a volume of `capacity` bytes: cut there or, if the volume is larger, with everything
// from the map's capacity on (rounded down to a block) as changed.
absl::StatusOr<ChangeMap> WithCapacity(const ChangeMapView& map, uint64_t capacity);

// Collects changes in any order. After an error other than OUT_OF_RANGE, or an exception, it may
// have lost changes; if so, it never builds a map and returns an error from then on.
class ChangeMapBuilder {
 public:
  // Errors: INVALID_ARGUMENT for the geometry.
  static absl::StatusOr<ChangeMapBuilder> Create(const VolumeGeometry& geometry);
  ~ChangeMapBuilder();
  ChangeMapBuilder(const ChangeMapBuilder&) = delete;
  ChangeMapBuilder& operator=(const ChangeMapBuilder&) = delete;
  ChangeMapBuilder(ChangeMapBuilder&&) noexcept;
  ChangeMapBuilder& operator=(ChangeMapBuilder&&) noexcept;

  // Adds the blocks that hold a byte of `extent` (bytes; any order, may overlap earlier extents).
  // Errors: OUT_OF_RANGE if it extends past the capacity (nothing is added), RESOURCE_EXHAUSTED
  //         over kMaxMapBytes.
  // Cost:   amortised O(log n): extents are sorted 65536 at a time, and the resulting maps are
  //         united pairwise as their sizes double.
  absl::Status Add(Extent extent);

  // Adds each of `extents`. After an error some of them may have been added.
  absl::Status Add(std::span<const Extent> extents);

  // Adds blocks [begin, end). Errors and cost as Add().
  absl::Status AddBlocks(uint64_t begin, uint64_t end);

  // The map of everything that was added. Leaves the builder empty.
  // Errors: RESOURCE_EXHAUSTED over kMaxMapBytes; INTERNAL after an exception.
  absl::StatusOr<ChangeMap> Build();

 private:
  struct State;
  explicit ChangeMapBuilder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A cursor over the runs of a map, read directly from its bytes, which it keeps. Seek() is O(log
// containers) plus a binary search in an array or run container; Next() decodes with SIMD and never
// fails.
std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMap& map);

// The same for a view; bytes that the view borrows must outlive the cursor.
std::unique_ptr<ExtentCursor> MakeBorrowedChangeMapCursor(const ChangeMapView& map);
std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMapView& map) = delete;

// A cursor over what lies in any of `maps` (one or more, of one geometry), without building the
// union: containers are united as the cursor reaches them.
// Errors: INVALID_ARGUMENT if the geometries differ or there is no map.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeUnionCursor(std::span<const ChangeMap> maps);

// The same for views; bytes that they borrow must outlive the cursor.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedUnionCursor(
    std::span<const ChangeMapView> maps);

}  // namespace cbt

#endif  // CBT_CHANGE_MAP_H_
