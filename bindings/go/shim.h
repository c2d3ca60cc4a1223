// What the package calls instead of the C interface where Go's rules for pointers need it: handles
// of Go are numbers, and no pointer into Go's memory stays in a structure.
#ifndef CBT_BINDINGS_GO_SHIM_H_
#define CBT_BINDINGS_GO_SHIM_H_

#include <cbt/c/cbt.h>

// The bytes at `data`, released by cbtGoRelease(handle).
cbt_code cbt_go_bytes_own(const void* data, uint64_t size, uintptr_t handle, cbt_bytes** bytes,
                          cbt_error** error);

// A cursor over cbtGoSeek() and cbtGoNext(), released by cbtGoRelease(handle).
cbt_code cbt_go_cursor(uintptr_t handle, uint64_t capacity, uint64_t granularity,
                       cbt_cursor** cursor, cbt_error** error);

typedef struct cbt_go_read {
  uint64_t count;
  uint64_t covered;
  cbt_error* error;
  cbt_code code;
  int32_t complete;
} cbt_go_read;

void cbt_go_cursor_read(cbt_cursor* cursor, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                        cbt_go_read* out);

// A service over cbtGoOpen(), released by cbtGoRelease(handle).
cbt_code cbt_go_service(uintptr_t handle, const cbt_service_options* options, cbt_service** service,
                        cbt_error** error);

typedef struct cbt_go_message {
  const uint8_t* data;
  uint64_t size;
  uint64_t tuples;
  uint64_t reported_bytes;
  cbt_error* error;
  cbt_code code;
  int32_t state;
} cbt_go_message;

// cbt_stream_next(); cbtGoOpen() gets `call`.
void cbt_go_stream_next(cbt_stream* stream, uintptr_t call, cbt_go_message* out);

#endif  // CBT_BINDINGS_GO_SHIM_H_
