// Change maps: the set of changed blocks between two snapshots of a volume, roaring-compressed.
//
// A map is held in the portable 64-bit serialisation of the public RoaringFormatSpec
// (https://github.com/RoaringBitmap/RoaringFormatSpec), which other languages read as well: block
// indexes in groups ("containers") of 65536, each a sorted array, a bitset or a list of runs,
// whichever is smallest. That form is itself the data structure: it is read where it lies, in
// memory or mapped from a file, and everything here works on it container by container.
//
// Block k of a map stands for the bytes [k * granularity, (k + 1) * granularity), cut at the
// capacity.
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

namespace cbt {

class PortableIndex;

// The size of a volume and of its blocks, both in bytes (see CheckGeometry()).
struct VolumeGeometry {
  uint64_t capacity = 0;
  uint64_t granularity = 1;

  friend bool operator==(const VolumeGeometry&, const VolumeGeometry&) = default;
};

// What a map is about. Each name is UTF-8 of at most kMaxMapNameBytes bytes, empty where it is not
// known. A map without a base tells what is allocated in the target.
struct ChangeMapIdentity {
  std::string volume = {};
  std::string base = {};
  std::string target = {};

  friend bool operator==(const ChangeMapIdentity&, const ChangeMapIdentity&) = default;
};

inline constexpr size_t kMaxMapNameBytes = 4096;

// The most bytes that a map is built to (one with more is RESOURCE_EXHAUSTED: choose a coarser
// granularity); room for 2^31 blocks that lie apart, or 2^35 at random.
inline constexpr uint64_t kMaxMapBytes = uint64_t{1} << 32;

// What a map consists of.
struct ChangeMapStatistics {
  uint64_t blocks = 0;
  uint64_t bytes = 0;  // what the blocks hold of the volume: the last one may be partial
  uint64_t runs = 0;   // maximal runs of blocks, so extents
  uint64_t arrays = 0;
  uint64_t bitsets = 0;
  uint64_t run_containers = 0;
};

// A validated map in bytes that somebody else owns: they must outlive it and must not change. Cheap
// to copy; any number of threads may read one.
class ChangeMapView {
 public:
  // The empty map of an empty volume.
  ChangeMapView();

  // Takes portable 64-bit roaring bytes, any alignment, after validation in full: keys ascend,
  // cardinalities match, arrays strictly ascend, runs neither overlap nor touch, offsets and sizes
  // are exact, nothing trails, no block lies past the capacity.
  // Errors: INVALID_ARGUMENT for the geometry or a block outside of it, DATA_LOSS that names the
  //         byte offset and the reason for everything else. Allocates in proportion to the bytes.
  // Cost:   one pass.
  static absl::StatusOr<ChangeMapView> Create(std::span<const uint8_t> portable,
                                              const VolumeGeometry& geometry);

  uint64_t capacity() const noexcept { return geometry_.capacity; }
  uint64_t granularity() const noexcept { return geometry_.granularity; }
  const VolumeGeometry& geometry() const noexcept { return geometry_; }

  // The portable 64-bit serialisation that this is a view of.
  std::span<const uint8_t> portable() const noexcept;

  bool empty() const noexcept { return cardinality() == 0; }
  // How many blocks have changed. O(1).
  uint64_t cardinality() const noexcept;
  // How many bytes they hold. O(log containers).
  uint64_t changed_bytes() const noexcept;

  // True when block `block` (any number) has changed. O(log containers).
  bool Contains(uint64_t block) const noexcept;
  // True when every block of [begin, end) has. O(log containers + containers in the range).
  bool ContainsRange(uint64_t begin, uint64_t end) const noexcept;
  // How many changed blocks lie below `block`. O(containers in 2^32 blocks).
  uint64_t Rank(uint64_t block) const noexcept;
  // How many changed bytes lie below `offset` (bytes). As Rank().
  uint64_t ChangedBytesBelow(uint64_t offset) const noexcept;

  // One pass over the map.
  ChangeMapStatistics Statistics() const;

  // True when both hold the same blocks of volumes of the same geometry, however they are encoded.
  friend bool operator==(const ChangeMapView& a, const ChangeMapView& b) noexcept;

 private:
  friend class ChangeMapAccess;
  ChangeMapView(std::shared_ptr<const PortableIndex> index, const VolumeGeometry& geometry);

  std::shared_ptr<const PortableIndex> index_;
  VolumeGeometry geometry_;
};

// A map and the bytes that it stands on. Immutable but for assignment, cheap to copy: copies share
// the bytes, and so do the cursors over them. What libcbt builds is canonical: the same blocks of
// the same geometry give the same bytes.
class ChangeMap {
 public:
  // The empty map of an empty volume.
  ChangeMap() = default;

  // A map in which nothing, or everything, has changed. The latter costs O(containers).
  // Errors: INVALID_ARGUMENT for the geometry, RESOURCE_EXHAUSTED over kMaxMapBytes.
  static absl::StatusOr<ChangeMap> Empty(const VolumeGeometry& geometry);
  static absl::StatusOr<ChangeMap> Full(const VolumeGeometry& geometry);

  // What `cursor` has to say from its beginning, rounded outward to `granularity` (0: the
  // cursor's).
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED over kMaxMapBytes, INTERNAL for extents that go
  //         backwards, those of the cursor.
  static absl::StatusOr<ChangeMap> FromCursor(ExtentCursor& cursor, uint64_t granularity = 0);

  // The set bits of a dense bitmap, whole containers at a time.
  // Requires: bitmap.bit_count() == BlockCount(capacity, granularity).
  static absl::StatusOr<ChangeMap> FromBitmap(const BitmapView& bitmap,
                                              const VolumeGeometry& geometry);

  // A copy of portable roaring bytes, 64-bit (see ChangeMapView::Create()) or 32-bit.
  static absl::StatusOr<ChangeMap> FromPortable64(std::span<const uint8_t> bytes,
                                                  const VolumeGeometry& geometry);
  static absl::StatusOr<ChangeMap> FromPortable32(std::span<const uint8_t> bytes,
                                                  const VolumeGeometry& geometry);

  // The portable 32-bit serialisation: that of the blocks below 2^32.
  // Errors: OUT_OF_RANGE when there are others.
  absl::StatusOr<std::vector<uint8_t>> ToPortable32() const;

  // Valid as long as the map or a copy of it.
  const ChangeMapView& view() const noexcept { return view_; }
  operator const ChangeMapView&() const noexcept { return view_; }  // NOLINT(*-explicit-*)
  const ChangeMapView* operator->() const noexcept { return &view_; }

  const ChangeMapIdentity& identity() const noexcept { return identity_; }
  void set_identity(ChangeMapIdentity identity) { identity_ = std::move(identity); }

  // Each replaces the map by the result of the function of that name below and keeps the identity;
  // on an error the map stays as it was.
  absl::Status UniteWith(const ChangeMapView& other);
  absl::Status IntersectWith(const ChangeMapView& other);
  absl::Status Subtract(const ChangeMapView& other);
  absl::Status Toggle(const ChangeMapView& other);

  // Brings every container to its smallest kind, so that the map is canonical; true when it got
  // smaller. Maps that were built here are so already, imported ones need not be. One that
  // announces runs in a group of fewer than four containers and has none there grows, by at most 15
  // bytes for each such group.
  absl::StatusOr<bool> Optimize();

 private:
  friend class ChangeMapAccess;
  absl::Status Replace(absl::StatusOr<ChangeMap> result);

  std::shared_ptr<const void> storage_;
  ChangeMapView view_;
  ChangeMapIdentity identity_;
};

// Set algebra. The result has no identity.
//
// Maps of different granularities combine at the finest one, exactly, when it divides the others.
// Maps of different capacities: a union has the greatest one, and what another map can't speak of
// (from its capacity, rounded down to a block, on) counts as changed in it; the other operations
// refuse, see WithCapacity().
//
// Errors: INVALID_ARGUMENT for geometries that don't combine, RESOURCE_EXHAUSTED over kMaxMapBytes.
// Cost:   one pass over the maps; memory is the result and a container.
absl::StatusOr<ChangeMap> Union(const ChangeMapView& a, const ChangeMapView& b);
// Any number of maps, at least one, in one pass.
absl::StatusOr<ChangeMap> Union(std::span<const ChangeMapView> maps);
absl::StatusOr<ChangeMap> Intersection(const ChangeMapView& a, const ChangeMapView& b);
// What is in `a` and not in `b`: `b` must be certain, not rounded outward.
absl::StatusOr<ChangeMap> Difference(const ChangeMapView& a, const ChangeMapView& b);
absl::StatusOr<ChangeMap> SymmetricDifference(const ChangeMapView& a, const ChangeMapView& b);

// The map in blocks of `granularity` bytes: exact when that divides the map's, else every block
// that holds a changed byte.
absl::StatusOr<ChangeMap> WithGranularity(const ChangeMapView& map, uint64_t granularity);

// The map of a volume of `capacity` bytes: cut there, or, where the volume is larger, with all that
// the map can't speak of as changed.
absl::StatusOr<ChangeMap> WithCapacity(const ChangeMapView& map, uint64_t capacity);

// Collects changes in any order. After an error other than OUT_OF_RANGE, or an exception, it may
// not know any more what was added: if so, it builds no map from then on and repeats an error.
class ChangeMapBuilder {
 public:
  // Errors: INVALID_ARGUMENT for the geometry.
  static absl::StatusOr<ChangeMapBuilder> Create(const VolumeGeometry& geometry);
  ~ChangeMapBuilder();
  ChangeMapBuilder(const ChangeMapBuilder&) = delete;
  ChangeMapBuilder& operator=(const ChangeMapBuilder&) = delete;
  ChangeMapBuilder(ChangeMapBuilder&&) noexcept;
  ChangeMapBuilder& operator=(ChangeMapBuilder&&) noexcept;

  // Adds the blocks that hold a byte of `extent` (bytes; any order, may overlap what is there).
  // Errors: OUT_OF_RANGE when it reaches past the capacity; nothing is added then.
  //         RESOURCE_EXHAUSTED over kMaxMapBytes.
  // Cost:   amortised O(log n): extents are sorted 65536 at a time, and the maps they make united
  //         pairwise as their sizes double.
  absl::Status Add(Extent extent);

  // Adds each of `extents`, as above; after an error some of them may have been added.
  absl::Status Add(std::span<const Extent> extents);

  // Adds blocks [begin, end). As above.
  absl::Status AddBlocks(uint64_t begin, uint64_t end);

  // The map of everything that was added; the builder is empty then.
  // Errors: RESOURCE_EXHAUSTED over kMaxMapBytes; INTERNAL after an exception.
  absl::StatusOr<ChangeMap> Build();

 private:
  struct State;
  explicit ChangeMapBuilder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A cursor over the runs of a map, straight from its bytes; the second one needs the bytes of the
// view to outlive it. Seek() O(log containers) and, in a container of runs or of an array, O(log)
// of those; Next() decodes with SIMD and never fails.
std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMap& map);
std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMapView& map);

// A cursor over what lies in any of `maps` (one or more, of one geometry), without building the
// union: containers meet as the cursor gets there.
// Errors: INVALID_ARGUMENT when the geometries differ or there is no map.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeUnionCursor(std::span<const ChangeMap> maps);

}  // namespace cbt

#endif  // CBT_CHANGE_MAP_H_
