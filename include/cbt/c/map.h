// Change maps: the set of changed blocks between two snapshots, roaring-compressed, in memory and
// as .cbm files (docs/reference/format.md).
#ifndef CBT_C_MAP_H_
#define CBT_C_MAP_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Constant, but for cbt_map_set_identity(): any number of threads may read one map.
typedef struct cbt_map cbt_map;

// What a map holds. Blocks and bytes are those that changed.
typedef struct cbt_map_info {
  uint64_t struct_size;
  cbt_geometry geometry;
  uint64_t blocks;
  uint64_t bytes;           // the last block may be partial
  uint64_t runs;            // of neighbouring blocks; a cursor returns one extent for each
  uint64_t portable_bytes;  // size of the roaring serialisation
} cbt_map_info;

// --- Making maps

// Collects changes in any order; calls on one builder must not overlap.
typedef struct cbt_map_builder cbt_map_builder;

CBT_API cbt_code cbt_map_builder_new(const cbt_geometry* geometry, cbt_map_builder** builder,
                                     cbt_error** error) CBT_NOTHROW;

// Adds the blocks that hold a byte of the `count` extents, in any order. After any failure but
// OUT_OF_RANGE the builder makes no map any more.
// Errors: OUT_OF_RANGE past the capacity (some extents may have been added), RESOURCE_EXHAUSTED for
//         a map over 4 GiB.
// Cost:   amortised O(log n) for each extent.
CBT_API cbt_code cbt_map_builder_add(cbt_map_builder* builder, const uint64_t* offsets,
                                     const uint64_t* lengths, uint64_t count,
                                     cbt_error** error) CBT_NOTHROW;

// The map of everything that was added. Leaves the builder empty.
CBT_API cbt_code cbt_map_builder_build(cbt_map_builder* builder, cbt_map** map,
                                       cbt_error** error) CBT_NOTHROW;

CBT_API void cbt_map_builder_free(cbt_map_builder* builder) CBT_NOTHROW;

// Everything that `cursor` reports from 0 on, rounded outward to `granularity` bytes (0: the
// cursor's). The cursor stays the caller's, and is then at its end. After a failure it is nowhere:
// reading it fails with FAILED_PRECONDITION until cbt_cursor_seek() succeeds.
// Errors: those of the cursor, RESOURCE_EXHAUSTED for a map over 4 GiB.
CBT_API cbt_code cbt_map_from_cursor(cbt_cursor* cursor, uint64_t granularity, cbt_map** map,
                                     cbt_error** error) CBT_NOTHROW;

// A map in the portable serialisation of roaring bitmaps with 64 or 32 `bits`. One of 64 bits is
// not copied: the map keeps the bytes.
// Errors: DATA_LOSS with the place, INVALID_ARGUMENT for a block past the capacity.
// Cost:   one pass.
CBT_API cbt_code cbt_map_from_portable(const cbt_bytes* portable, int32_t bits,
                                       const cbt_geometry* geometry, cbt_map** map,
                                       cbt_error** error) CBT_NOTHROW;

// --- Reading maps

// Fills the members that info->struct_size covers. Cost: one pass over the map.
CBT_API cbt_code cbt_map_get_info(const cbt_map* map, cbt_map_info* info,
                                  cbt_error** error) CBT_NOTHROW;

// Not 0: block `block` has changed. O(log n).
CBT_API int32_t cbt_map_contains(const cbt_map* map, uint64_t block) CBT_NOTHROW;

// The extents of the map, which the cursor keeps.
CBT_API cbt_code cbt_cursor_from_map(const cbt_map* map, cbt_cursor** cursor,
                                     cbt_error** error) CBT_NOTHROW;

// The portable serialisation with 64 `bits`, shared with the map without a copy, or with 32.
// Errors: OUT_OF_RANGE for blocks from 2^32 on, with 32.
CBT_API cbt_code cbt_map_to_portable(const cbt_map* map, int32_t bits, cbt_bytes** portable,
                                     cbt_error** error) CBT_NOTHROW;

// The names of volume, base and target ("" if unknown); valid until the map is changed or freed.
enum { CBT_NAME_VOLUME = 0, CBT_NAME_BASE = 1, CBT_NAME_TARGET = 2 };
CBT_API const char* cbt_map_name_borrowed(const cbt_map* map, int32_t which) CBT_NOTHROW;

// Copies the names (NUL-terminated, at most 4096 bytes each when stored). No other call on the map
// may run meanwhile.
CBT_API cbt_code cbt_map_set_identity(cbt_map* map, const char* volume, const char* base,
                                      const char* target, cbt_error** error) CBT_NOTHROW;

// --- Algebra: a new map, without names, from maps that stay the caller's

// Maps of different granularity combine exactly at the finest one, which must divide the others. Of
// different capacities, a union has the largest, and a smaller map counts as changed from its own
// end on; the others need equal ones.
// Errors: INVALID_ARGUMENT for geometries that don't combine, RESOURCE_EXHAUSTED.
// Cost:   one pass.
CBT_API cbt_code cbt_map_union(const cbt_map* const* maps, uint64_t count, cbt_map** map,
                               cbt_error** error) CBT_NOTHROW;
CBT_API cbt_code cbt_map_intersection(const cbt_map* a, const cbt_map* b, cbt_map** map,
                                      cbt_error** error) CBT_NOTHROW;
// What is in `a` and not in `b`, which must be exact.
CBT_API cbt_code cbt_map_difference(const cbt_map* a, const cbt_map* b, cbt_map** map,
                                    cbt_error** error) CBT_NOTHROW;
CBT_API cbt_code cbt_map_symmetric_difference(const cbt_map* a, const cbt_map* b, cbt_map** map,
                                              cbt_error** error) CBT_NOTHROW;

// The map in blocks of `granularity` bytes, rounded outward; for a volume of `capacity` bytes, cut
// or with everything past the map's end as changed.
CBT_API cbt_code cbt_map_with_geometry(const cbt_map* map, const cbt_geometry* geometry,
                                       cbt_map** result, cbt_error** error) CBT_NOTHROW;

// Not 0: the same geometry and the same blocks. Names don't count.
CBT_API int32_t cbt_map_equal(const cbt_map* a, const cbt_map* b) CBT_NOTHROW;

// --- Files

// Writes the map to `path`, replacing a file: after any failure or crash the path is as it was, or
// the complete new file. `no_sync` (not 0): does not wait for the disk.
// Errors: NOT_FOUND and PERMISSION_DENIED for the directory, FAILED_PRECONDITION for a path that is
//         no file, RESOURCE_EXHAUSTED for a full disk, INVALID_ARGUMENT for the names, UNAVAILABLE.
CBT_API cbt_code cbt_map_save(const cbt_map* map, const char* path, int32_t no_sync,
                              cbt_error** error) CBT_NOTHROW;

// Maps a file into memory and checks all of it. While the map exists the file must not be modified
// in place (cbt_map_save() replaces it, and is safe).
// Errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE, INVALID_ARGUMENT if it is no change map,
//         DATA_LOSS with the place if it is damaged, UNIMPLEMENTED for a newer version.
CBT_API cbt_code cbt_map_load(const char* path, cbt_map** map, cbt_error** error) CBT_NOTHROW;

// The bytes of a file, from and to memory. Errors as above.
CBT_API cbt_code cbt_map_encode(const cbt_map* map, cbt_bytes** file,
                                cbt_error** error) CBT_NOTHROW;
CBT_API cbt_code cbt_map_decode(const void* file, uint64_t size, cbt_map** map,
                                cbt_error** error) CBT_NOTHROW;

CBT_API void cbt_map_free(cbt_map* map) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_MAP_H_
