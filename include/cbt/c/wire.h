// The response messages of csi.v1.SnapshotMetadata and of the Kubernetes API: the kernels that
// encode them, and the checker of a stream that was received.
//
//   1 block_metadata_type (enum)   2 volume_capacity_bytes (int64)
//   3 repeated block_metadata { 1 byte_offset (int64), 2 size_bytes (int64) }
#ifndef CBT_C_WIRE_H_
#define CBT_C_WIRE_H_

#include "cbt/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a stream reports ranges; numbers as in the messages.
enum {
  CBT_FIXED_LENGTH = 1,    // every tuple of the stream has the same size
  CBT_VARIABLE_LENGTH = 2  // extents
};

// The greatest size (bytes) of fields 1 and 2 together, and of a tuple.
#define CBT_MAX_HEADER_BYTES 12
#define CBT_MAX_TUPLE_BYTES 22

// One entry of a call's metadata (of its headers or trailers). Both texts end with a NUL.
typedef struct cbt_metadata {
  const char* key;
  const char* value;
} cbt_metadata;

// --- Encoding, for plugins that make their messages themselves. A plugin that serves a stream
// leaves that, and all the contract's rules, to cbt/c/stream.h.

// Writes fields 1 and 2 to `out`, which has room for CBT_MAX_HEADER_BYTES, and their size to
// *written. `capacity` is at most 2^63 - 1.
CBT_API cbt_code cbt_encode_header(int32_t type, uint64_t capacity, uint8_t* out, uint64_t* written,
                                   cbt_error** error) CBT_NOTHROW;

// Writes tuples, each as one element of field 3, while the next one is certain to fit: at least
// min(count, room / CBT_MAX_TUPLE_BYTES) of them. Sets *tuples and *written (bytes).
// Errors: INVALID_ARGUMENT for an offset or a length above 2^63 - 1; nothing is written.
// Cost:   about a nanosecond for each tuple.
CBT_API cbt_code cbt_encode_tuples(const uint64_t* offsets, const uint64_t* lengths, uint64_t count,
                                   uint8_t* out, uint64_t room, uint64_t* tuples, uint64_t* written,
                                   cbt_error** error) CBT_NOTHROW;

// --- Checking, for clients

// Decodes the messages of one stream and checks them against the rules that a receiver may rely on:
// tuples ascend and never overlap, also across messages, are not empty, start below the capacity
// and end after the starting offset; no message has more than max_results; type and capacity are
// valid and don't change. Calls on one checker must not overlap.
typedef struct cbt_checker cbt_checker;

typedef struct cbt_checker_options {
  uint64_t struct_size;
  uint64_t starting_offset;  // bytes, as in the request
  uint32_t max_results;      // as in the request; 0: no limit
  // Not 0: cbt_checker_finish() fails unless the server proved that nothing is missing.
  int32_t require_proof;
} cbt_checker_options;

// A message, decoded.
typedef struct cbt_tuples {
  const uint64_t* offsets;  // bytes; `count` of them
  const uint64_t* lengths;  // bytes; `count` of them
  uint64_t count;
  uint64_t capacity;  // of the volume, bytes
  int32_t type;       // CBT_FIXED_LENGTH or CBT_VARIABLE_LENGTH
  int32_t reserved;   // 0
} cbt_tuples;

// `options` may be NULL.
CBT_API cbt_code cbt_checker_new(const cbt_checker_options* options, cbt_checker** checker,
                                 cbt_error** error) CBT_NOTHROW;

// Decodes and checks the next message. The arrays belong to the checker and are valid until the
// next call on it. After a failure every further call fails in the same way.
// Errors: DATA_LOSS for malformed bytes and for a broken rule, with its place; FAILED_PRECONDITION
//         after cbt_checker_finish().
// Cost:   about a nanosecond for each tuple; memory up to 16 times the largest message.
CBT_API cbt_code cbt_checker_message(cbt_checker* checker, const void* message, uint64_t size,
                                     cbt_tuples* tuples, cbt_error** error) CBT_NOTHROW;

// What the server's proof of completeness (docs/reference/completeness.md) says.
enum {
  CBT_PROOF_ABSENT = 0,           // the server sends none
  CBT_PROOF_HOLDS = 1,            // nothing is missing
  CBT_PROOF_HOLDS_FOR_PLACE = 2,  // the same, of data that may have changed between two calls
  CBT_PROOF_HOLDS_FROM_RELAY = 3  // the same, but it does not reach back to the source
};

// The verdict of the whole stream. Call it when the call has ended with OK, with its trailing
// metadata (`count` entries); any other end of a call is no answer.
// Errors: DATA_LOSS if there was no message, if the proof differs from what was received, or if
//         options.require_proof and the server sent no proof.
CBT_API cbt_code cbt_checker_finish(cbt_checker* checker, const cbt_metadata* trailing,
                                    uint64_t count, int32_t* proof, cbt_error** error) CBT_NOTHROW;

// Where to resume (bytes) when the call ended early: the end of the last tuple, or the starting
// offset. 0 for NULL.
CBT_API uint64_t cbt_checker_resume_offset(const cbt_checker* checker) CBT_NOTHROW;

// Tuples so far, and the bytes that they report. 0 for NULL.
CBT_API uint64_t cbt_checker_tuples(const cbt_checker* checker) CBT_NOTHROW;
CBT_API uint64_t cbt_checker_reported_bytes(const cbt_checker* checker) CBT_NOTHROW;

CBT_API void cbt_checker_free(cbt_checker* checker) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_WIRE_H_
