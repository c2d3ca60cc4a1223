// Chains: the change maps between neighbouring snapshots of a volume in a directory, and from them
// the delta between any two.
#ifndef CBT_C_CHAIN_H_
#define CBT_C_CHAIN_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"
#include "cbt/c/map.h"

#ifdef __cplusplus
extern "C" {
#endif

// A chain as it was when opened, plus the changes made through this handle. Functions that take a
// `const cbt_chain*` may overlap; the others need the handle alone. One process at a time can have
// a chain open for changes; in a child that it forks every call fails with FAILED_PRECONDITION.
typedef struct cbt_chain cbt_chain;

enum { CBT_READ = 0, CBT_CHANGE = 1 };

typedef struct cbt_chain_options {
  uint64_t struct_size;
  // What messages call the directory; NULL: its path.
  const char* name;
  // Not 0: changes don't wait for the disk.
  int32_t no_sync;
  int32_t reserved;  // 0
} cbt_chain_options;

// Creates a chain in `directory` (created if missing, but not its parents) whose first snapshot is
// `first_id`, of a volume of geometry->capacity bytes then. All maps have the granularity.
// `options` may be NULL.
// Errors: ALREADY_EXISTS, INVALID_ARGUMENT, those of files.
CBT_API cbt_code cbt_chain_create(const char* directory, const char* volume, const char* first_id,
                                  const cbt_geometry* geometry, const cbt_chain_options* options,
                                  cbt_chain** chain, cbt_error** error) CBT_NOTHROW;

// The same, with the time at which the first snapshot was taken: nanoseconds since 1970 (UTC), or
// INT64_MIN if it is not known.
CBT_API cbt_code cbt_chain_create_at(const char* directory, const char* volume,
                                     const char* first_id, const cbt_geometry* geometry,
                                     int64_t time, const cbt_chain_options* options,
                                     cbt_chain** chain, cbt_error** error) CBT_NOTHROW;

// Opens a chain to read (CBT_READ) or to change it (CBT_CHANGE).
// Errors: NOT_FOUND, DATA_LOSS for a damaged manifest, UNIMPLEMENTED for a newer version,
//         UNAVAILABLE if another process changes it.
CBT_API cbt_code cbt_chain_open(const char* directory, int32_t access,
                                const cbt_chain_options* options, cbt_chain** chain,
                                cbt_error** error) CBT_NOTHROW;

// The number of snapshots; 0 for NULL.
CBT_API uint64_t cbt_chain_count(const cbt_chain* chain) CBT_NOTHROW;

// The snapshot at `index`, oldest first. Its id ends with a NUL and is valid until the chain is
// changed or freed. `capacity` (bytes) may be NULL.
// Errors: OUT_OF_RANGE.
CBT_API cbt_code cbt_chain_snapshot_borrowed(const cbt_chain* chain, uint64_t index,
                                             const char** id, uint64_t* capacity,
                                             cbt_error** error) CBT_NOTHROW;

// When the snapshot at `index` was taken: nanoseconds since 1970 (UTC). *known is 0, and *time 0, for
// one that was added without a time.
// Errors: OUT_OF_RANGE.
CBT_API cbt_code cbt_chain_snapshot_time(const cbt_chain* chain, uint64_t index, int32_t* known,
                                         int64_t* time, cbt_error** error) CBT_NOTHROW;

// Adds a snapshot: `map` holds what changed since the newest one, and its names are the volume, the
// newest snapshot (base) and the new one (target).
// Errors: FAILED_PRECONDITION if the base is not the newest, ALREADY_EXISTS, INVALID_ARGUMENT,
//         those of files.
// Cost:   amortised O(log n) unions, and waiting for the disk.
CBT_API cbt_code cbt_chain_append(cbt_chain* chain, const cbt_map* map,
                                  cbt_error** error) CBT_NOTHROW;

// The same, with the time at which the new snapshot was taken, as in cbt_chain_create_at(). Times
// need not ascend.
CBT_API cbt_code cbt_chain_append_at(cbt_chain* chain, const cbt_map* map, int64_t time,
                                     cbt_error** error) CBT_NOTHROW;

// Removes a snapshot at any position but not the last one that is left.
// Errors: NOT_FOUND, FAILED_PRECONDITION, RESOURCE_EXHAUSTED, those of files.
CBT_API cbt_code cbt_chain_remove(cbt_chain* chain, const char* id, cbt_error** error) CBT_NOTHROW;

// The extents that changed from `base` to `target`, both in the chain, `base` not newer.
// Errors: NOT_FOUND, INVALID_ARGUMENT, ABORTED if another process has changed the chain (open it
//         again), DATA_LOSS from the cursor where a file is damaged.
CBT_API cbt_code cbt_chain_delta(const cbt_chain* chain, const char* base, const char* target,
                                 cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// Reads every file and compares it with the manifest.
// Errors: DATA_LOSS that names the first damaged or missing file.
CBT_API cbt_code cbt_chain_verify(const cbt_chain* chain, cbt_error** error) CBT_NOTHROW;

CBT_API void cbt_chain_free(cbt_chain* chain) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_CHAIN_H_
