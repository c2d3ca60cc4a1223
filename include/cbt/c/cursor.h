// Cursors: a position in a volume's changed (or allocated) extents, handed on in batches.
//
// snippet: tests/consumer/snippets/c.c#cursor
//   cbt_batch batch;
//   do {
//     if (cbt_cursor_next(cursor, &batch, &error) != CBT_OK) return failed(error);
//     for (uint64_t i = 0; i < batch.count; ++i) use(batch.offsets[i], batch.lengths[i]);
//   } while (!batch.complete);
//
// The answer is complete when `complete` is set, and for no other reason: an empty batch only means
// that a region without extents was passed. A loop that ends otherwise has no answer.
//
// Extents ascend and never overlap. They start below the capacity and end at or below it; only the
// last block of cbt_cursor_to_blocks() keeps its size and may end past the capacity.
#ifndef CBT_C_CURSOR_H_
#define CBT_C_CURSOR_H_

#include "cbt/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The size of a volume and of its blocks, both in bytes. The capacity is at most 2^63 - 1, the
// granularity 1 to 2^62. The capacity need not be a multiple of the granularity.
typedef struct cbt_geometry {
  uint64_t capacity;
  uint64_t granularity;
} cbt_geometry;

// See above. Calls on one cursor must not overlap.
typedef struct cbt_cursor cbt_cursor;

// What one call returns.
typedef struct cbt_batch {
  const uint64_t* offsets;  // bytes; `count` of them
  const uint64_t* lengths;  // bytes; `count` of them
  uint64_t count;
  uint64_t covered;  // every extent below this offset (bytes) has been returned
  int32_t complete;  // not 0: everything has been returned
  int32_t reserved;  // 0
} cbt_batch;

// --- Reading

// Returns the next extents: at most 1,024, see cbt_cursor_set_batch(). The arrays belong to the
// cursor and are valid until the next call on it. After a failure the batch is empty, and every
// further call fails in the same way until cbt_cursor_seek() succeeds.
// Errors: DATA_LOSS when the underlying data proves inconsistent, UNAVAILABLE when it can't be read
//         now, ABORTED when it changed meanwhile, INTERNAL when a callback breaks its contract,
//         those of the source.
// Cost:   bounded work, one pass over what is covered; a call itself takes some 10 ns.
CBT_API cbt_code cbt_cursor_next(cbt_cursor* cursor, cbt_batch* batch,
                                 cbt_error** error) CBT_NOTHROW;

// The same into the caller's two arrays of `room` (> 0) elements; `batch` then points to them.
// Returns when they are full, after about ten milliseconds, or at the end. A failure that comes
// after extents is returned by the next call. Can be mixed with cbt_cursor_next().
// Cost: as above, and one copy.
CBT_API cbt_code cbt_cursor_read(cbt_cursor* cursor, uint64_t* offsets, uint64_t* lengths,
                                 uint64_t room, cbt_batch* batch, cbt_error** error) CBT_NOTHROW;

// Sets the most extents of a batch: 1 to 2^20. Memory: 16 bytes for each. Large batches suit
// callers to whom a call is expensive; 1,024 stay in the first-level cache.
CBT_API cbt_code cbt_cursor_set_batch(cbt_cursor* cursor, uint64_t extents,
                                      cbt_error** error) CBT_NOTHROW;

// Moves to `offset` (bytes), rounded down to the granularity. What follows is the whole answer cut
// at that point, as if the cursor had run from 0. A new cursor is at 0.
// Errors: OUT_OF_RANGE past the capacity: it has not moved; those of the source.
// Cost:   O(log n) in the number of extents, or better.
CBT_API cbt_code cbt_cursor_seek(cbt_cursor* cursor, uint64_t offset,
                                 cbt_error** error) CBT_NOTHROW;

// Every extent below this offset (bytes) has been returned. 0 for NULL.
CBT_API uint64_t cbt_cursor_covered(const cbt_cursor* cursor) CBT_NOTHROW;

// The size of the volume, and the unit in which the cursor knows about changes. Constant; zeros for
// NULL.
CBT_API cbt_geometry cbt_cursor_geometry(const cbt_cursor* cursor) CBT_NOTHROW;

CBT_API void cbt_cursor_free(cbt_cursor* cursor) CBT_NOTHROW;

// --- From bitmaps

// How a bitmap's bytes hold its bits. Bit k of the bitmap is block k of the volume.
typedef struct cbt_bitmap_layout {
  uint64_t struct_size;
  // Where the bitmap begins: the index of its first bit in the bytes.
  uint64_t first_bit;
  // Not 0: bit 0 of a byte is the most significant one.
  int32_t most_significant_first;
  // Not 0: clear bits, instead of set ones, mean changed (or allocated).
  int32_t inverted;
  // The bytes of each word of this many bytes (1, 2, 4 or 8) are reversed; 0 is 1.
  uint32_t reversed_word_bytes;
  uint32_t reserved;  // 0
} cbt_bitmap_layout;

// The runs of set bits of `bits` as extents. The bytes hold a bit for each block of the geometry,
// from layout->first_bit on. `layout` may be NULL. The cursor keeps the bytes.
// Errors: INVALID_ARGUMENT for a geometry out of range and for too few bits.
// Cost:   O(1); reading is one pass at memory speed.
CBT_API cbt_code cbt_cursor_from_bitmap(const cbt_bytes* bits, const cbt_bitmap_layout* layout,
                                        const cbt_geometry* geometry, cbt_cursor** cursor,
                                        cbt_error** error) CBT_NOTHROW;

// How two bitmaps are combined.
enum {
  CBT_XOR = 0,      // set in exactly one: blocks whose state differs
  CBT_AND_NOT = 1,  // set in the target and not in the base: newly set
  CBT_OR = 2,       // set in either
  CBT_AND = 3       // set in both
};

// The same for a combination of two bitmaps of one layout, which is not built in memory.
CBT_API cbt_code cbt_cursor_from_bitmaps(const cbt_bytes* base, const cbt_bytes* target,
                                         int32_t operation, const cbt_bitmap_layout* layout,
                                         const cbt_geometry* geometry, cbt_cursor** cursor,
                                         cbt_error** error) CBT_NOTHROW;

// --- From lists and memory

// `count` extents, which are copied. They ascend, don't overlap, are not empty, end at or below the
// capacity, and begin and end at multiples of the granularity or at the capacity.
// Errors: INVALID_ARGUMENT that names the first invalid extent.
// Cost:   O(count); memory 16 bytes for each.
CBT_API cbt_code cbt_cursor_from_extents(const uint64_t* offsets, const uint64_t* lengths,
                                         uint64_t count, const cbt_geometry* geometry,
                                         cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// The blocks of `block_size` bytes (512 to 64 MiB; 0: 4096) in which two ranges of the same size
// differ. The cursor keeps both.
// Errors: INVALID_ARGUMENT for sizes that differ or are out of range.
// Cost:   O(1); reading compares at memory speed.
CBT_API cbt_code cbt_cursor_from_memory_delta(const cbt_bytes* base, const cbt_bytes* target,
                                              uint64_t block_size, cbt_cursor** cursor,
                                              cbt_error** error) CBT_NOTHROW;

// The blocks that hold a byte other than 0; otherwise the same.
CBT_API cbt_code cbt_cursor_from_memory(const cbt_bytes* memory, uint64_t block_size,
                                        cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// --- From the caller's own storage

// A source that the caller implements. Called from the thread that reads the cursor, one call at a
// time.
typedef struct cbt_cursor_callbacks {
  uint64_t struct_size;
  void* user;  // passed to each function

  // Moves to `offset` (bytes), a multiple of the granularity below the capacity: the next extents
  // are those that end after it, cut at it.
  cbt_code (*seek)(void* user, uint64_t offset, cbt_error** error);

  // Writes up to `room` extents to the two arrays and their number to *count; sets *covered to the
  // offset (bytes) below which nothing remains to be reported. Extents ascend, don't overlap, begin
  // at or after the coverage so far and end at or below the new one. Coverage that reaches the
  // capacity ends the answer: nothing else does. Do a bounded amount of work; no extents and a
  // larger coverage mean that there was nothing.
  cbt_code (*next)(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room, uint64_t* count,
                   uint64_t* covered, cbt_error** error);

  // Called once when the cursor is freed; may be NULL.
  void (*release)(void* user);
} cbt_cursor_callbacks;

// A cursor over the callbacks, which are copied. Every answer is checked: one that breaks the rules
// above fails with INTERNAL that names the extent. If this call fails, `release` is not called.
// Errors: INVALID_ARGUMENT for the geometry and for missing functions.
// Cost:   the check takes less than a nanosecond for each extent.
CBT_API cbt_code cbt_cursor_from_callbacks(const cbt_cursor_callbacks* callbacks,
                                           const cbt_geometry* geometry, cbt_cursor** cursor,
                                           cbt_error** error) CBT_NOTHROW;

// --- From a file, a device or an NBD server

enum {
  CBT_PURPOSE_ANY = 0,  // what the input reports; an error if it can report both
  CBT_PURPOSE_ALLOCATED = 1,
  CBT_PURPOSE_DELTA = 2
};

// For `block_size`: the source's own blocks.
#define CBT_SOURCE_BLOCKS UINT64_MAX

typedef struct cbt_source_options {
  uint64_t struct_size;
  // FORMAT or FORMAT:KEY=VALUE,..., as `cbt extents --from` takes it. NULL: the content decides,
  // and a guest that writes to the volume controls the content. Name the format wherever it is
  // known.
  const char* format;
  // The address of an earlier state of the volume; NULL: none.
  const char* base;
  int32_t purpose;
  // Not 0: read two images' reflinks instead of their bytes.
  int32_t by_extents;
  // Sizes of the target and of a larger base (bytes), for inputs that do not hold them; 0: unknown.
  uint64_t capacity;
  uint64_t base_capacity;
  // Extents are rounded outward to multiples of it; 0: 4096.
  uint64_t block_size;
  // The most time (milliseconds) that all calls together may take; 0: no limit.
  uint64_t time_limit_ms;
} cbt_source_options;

// Opens the source at `address`: a path, "-" for standard input, or nbd://, nbds://, nbd+unix://,
// nbds+unix://. `options` may be NULL.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, DATA_LOSS, UNIMPLEMENTED for a format
//         that this build can't read, DEADLINE_EXCEEDED, those of the source's page in
//         docs/reference/sources.md.
// Cost:   blocks; lists are read when they are opened.
CBT_API cbt_code cbt_source_open(const char* address, const cbt_source_options* options,
                                 cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// --- Transforms: cursors over cursors
//
// Each consumes its inputs, whether it succeeds or fails: don't use or free them afterwards. (An
// input in which another call runs is refused and not consumed.) An input that has been read from
// is rewound. Cost: O(1); memory of a batch each. Errors: INVALID_ARGUMENT for a parameter out of
// range, those of the input's seek.

// Merges neighbours with at most `max_gap` bytes between them: fewer extents, for some bytes that
// have not changed.
CBT_API cbt_code cbt_cursor_coalesce(cbt_cursor* input, uint64_t max_gap, cbt_cursor** cursor,
                                     cbt_error** error) CBT_NOTHROW;

// Cuts extents longer than `max_length` bytes, a positive multiple of the input's granularity.
CBT_API cbt_code cbt_cursor_split(cbt_cursor* input, uint64_t max_length, cbt_cursor** cursor,
                                  cbt_error** error) CBT_NOTHROW;

// Rounds extents outward to multiples of `granularity` bytes and merges those that then touch.
CBT_API cbt_code cbt_cursor_align_outward(cbt_cursor* input, uint64_t granularity,
                                          cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// Keeps what lies in [begin, end) (bytes, begin <= end <= capacity).
CBT_API cbt_code cbt_cursor_clip(cbt_cursor* input, uint64_t begin, uint64_t end,
                                 cbt_cursor** cursor, cbt_error** error) CBT_NOTHROW;

// Turns extents into blocks of `block_size` bytes, each at a multiple of it. The last one keeps its
// size even past the capacity.
CBT_API cbt_code cbt_cursor_to_blocks(cbt_cursor* input, uint64_t block_size, cbt_cursor** cursor,
                                      cbt_error** error) CBT_NOTHROW;

// What lies in any of `count` (>= 1) inputs of one capacity.
CBT_API cbt_code cbt_cursor_union(cbt_cursor* const* inputs, uint64_t count, cbt_cursor** cursor,
                                  cbt_error** error) CBT_NOTHROW;

// What lies in both inputs.
CBT_API cbt_code cbt_cursor_intersect(cbt_cursor* a, cbt_cursor* b, cbt_cursor** cursor,
                                      cbt_error** error) CBT_NOTHROW;

// What lies in `a` and not in `b`. `b` must be exact, not rounded outward: what it reports is
// removed.
CBT_API cbt_code cbt_cursor_subtract(cbt_cursor* a, cbt_cursor* b, cbt_cursor** cursor,
                                     cbt_error** error) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_CURSOR_H_
