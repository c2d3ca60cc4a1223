// Live tracking, for plugins that own the write path: which blocks were written since a snapshot.
//
// snippet: tests/consumer/snippets/c.c#tracker
//   // Writes count in both epochs from here on; then the storage takes the snapshot.
//   if (cbt_tracker_open_epoch(tracker, "tuesday", &error) != CBT_OK) return failed(error);
//   // What changed from Monday to Tuesday.
//   if (cbt_tracker_close_epoch(tracker, &map, &error) != CBT_OK) return failed(error);
//   if (cbt_map_save(map, "tuesday.cbm", 0, &error) != CBT_OK) return failed(error);
//   // The tracker may forget it.
//   if (cbt_tracker_acknowledge(tracker, map, &error) != CBT_OK) return failed(error);
//
// With a directory the tracker survives the process; after a crash it reports more, never less.
#ifndef CBT_C_TRACKER_H_
#define CBT_C_TRACKER_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"
#include "cbt/c/map.h"

#ifdef __cplusplus
extern "C" {
#endif

// Any number of threads may use one tracker. It belongs to the process that created it: in a forked
// child every call fails with FAILED_PRECONDITION and changes nothing.
typedef struct cbt_tracker cbt_tracker;

typedef struct cbt_tracker_options {
  uint64_t struct_size;
  cbt_geometry geometry;
  // The volume, and the snapshot at which the first epoch begins.
  const char* volume;
  const char* base;
  // The tracker's own directory; NULL: in memory only.
  const char* directory;
  // The unit (bytes) in which the log records what may be dirty, a multiple of the granularity; 0:
  // 64 MiB.
  uint64_t region_bytes;
} cbt_tracker_options;

// A tracker in which nothing has changed since options->base.
// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ALREADY_EXISTS if the directory has a tracker,
//         UNAVAILABLE if another has it open, those of files.
// Memory: two bits of virtual memory for each block.
CBT_API cbt_code cbt_tracker_create(const cbt_tracker_options* options, cbt_tracker** tracker,
                                    cbt_error** error) CBT_NOTHROW;

// The tracker that was left in options->directory, closed or not. Look at its epochs then:
//   one, open                      continue
//   two, both open                 the process ended around a snapshot: if it was taken close the
//                                  epoch, otherwise cancel it
//   two, the first one closed      close the epoch to get its map again, store it, acknowledge it
// Call it only after writes of the old process have ended.
// Errors: NOT_FOUND, FAILED_PRECONDITION for another volume or geometry, UNAVAILABLE if another has
//         it open, DATA_LOSS if the changes can't be known: take a full backup.
CBT_API cbt_code cbt_tracker_recover(const cbt_tracker_options* options, cbt_tracker** tracker,
                                     cbt_error** error) CBT_NOTHROW;

// A write in flight. Its members are the library's.
typedef struct cbt_write {
  uint64_t opaque[2];
} cbt_write;

// Announces a write of `length` bytes at `offset`, before it is issued. After a failure it must not
// be issued. End it with cbt_write_end() when its data is in the storage, before the tracker is
// freed. On failure *write is zeros, which need no end.
// Errors: OUT_OF_RANGE past the capacity, those of the log, repeated until a checkpoint succeeds.
// Cost:   lock-free, tens of nanoseconds; the first write to a region since the last checkpoint
//         waits for the log.
CBT_API cbt_code cbt_tracker_begin(cbt_tracker* tracker, uint64_t offset, uint64_t length,
                                   cbt_write* write, cbt_error** error) CBT_NOTHROW;

// Ends a write and sets it to zeros; does nothing for zeros.
CBT_API void cbt_write_end(cbt_write* write) CBT_NOTHROW;

// As cbt_tracker_begin(), without an end, for `count` writes. For callers that keep writes and
// snapshots apart: none may be in flight between opening and closing an epoch. After a failure some
// are recorded, and none may be issued.
CBT_API cbt_code cbt_tracker_mark(cbt_tracker* tracker, const uint64_t* offsets,
                                  const uint64_t* lengths, uint64_t count,
                                  cbt_error** error) CBT_NOTHROW;

// Begins an epoch at the snapshot `name`. Take the snapshot after this returns.
// Errors: FAILED_PRECONDITION if two epochs are open, one is not acknowledged, or the tracker is
//         closed; INVALID_ARGUMENT, those of files.
CBT_API cbt_code cbt_tracker_open_epoch(cbt_tracker* tracker, const char* name,
                                        cbt_error** error) CBT_NOTHROW;

// Ends the older epoch; `map`, with its names, holds what changed in it. The tracker keeps it until
// cbt_tracker_acknowledge(), and returns it again until then, also after a crash.
// Errors: FAILED_PRECONDITION; if the map can't be built or kept, both epochs stay open.
CBT_API cbt_code cbt_tracker_close_epoch(cbt_tracker* tracker, cbt_map** map,
                                         cbt_error** error) CBT_NOTHROW;

// The caller has stored the map, which is known by its names.
// Errors: FAILED_PRECONDITION if no epoch is closed, INVALID_ARGUMENT for another map.
CBT_API cbt_code cbt_tracker_acknowledge(cbt_tracker* tracker, const cbt_map* map,
                                         cbt_error** error) CBT_NOTHROW;

// Drops the newer epoch because its snapshot was not taken.
CBT_API cbt_code cbt_tracker_cancel_epoch(cbt_tracker* tracker, cbt_error** error) CBT_NOTHROW;

// What has changed in the oldest open epoch so far.
CBT_API cbt_code cbt_tracker_changes(const cbt_tracker* tracker, cbt_map** map,
                                     cbt_error** error) CBT_NOTHROW;

typedef struct cbt_epoch {
  uint64_t struct_size;
  int32_t closed;  // not 0: ended and not acknowledged
  int32_t exact;   // 0: a crash made it report more than was written
} cbt_epoch;

// The number of epochs, one or two (0 for NULL and in a forked child), and the epoch at `index`,
// oldest first.
// Errors: OUT_OF_RANGE.
CBT_API uint64_t cbt_tracker_epochs(const cbt_tracker* tracker) CBT_NOTHROW;
CBT_API cbt_code cbt_tracker_epoch(const cbt_tracker* tracker, uint64_t index, cbt_epoch* epoch,
                                   cbt_error** error) CBT_NOTHROW;

// The snapshot at which the epoch at `index` began.
// Errors: OUT_OF_RANGE.
CBT_API cbt_code cbt_tracker_epoch_base(const cbt_tracker* tracker, uint64_t index,
                                        cbt_bytes** name, cbt_error** error) CBT_NOTHROW;

// Saves the exact state, so that a crash over-reports only what is written from now on.
CBT_API cbt_code cbt_tracker_checkpoint(cbt_tracker* tracker, cbt_error** error) CBT_NOTHROW;

// Saves the exact state and ends tracking; the epochs are kept. No write may be announced
// afterwards.
CBT_API cbt_code cbt_tracker_close(cbt_tracker* tracker, cbt_error** error) CBT_NOTHROW;

// Closes it too, but an error is lost, and the next cbt_tracker_recover() reports more then.
CBT_API void cbt_tracker_free(cbt_tracker* tracker) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_TRACKER_H_
