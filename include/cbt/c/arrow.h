// Change metadata as an Arrow stream, through Arrow's C interfaces
// (https://arrow.apache.org/docs/format/CStreamInterface.html): pandas, polars, DuckDB, Spark and
// DataFusion read it without a copy and without a parser.
#ifndef CBT_C_ARROW_H_
#define CBT_C_ARROW_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Arrow's own definitions, with its guards: any copy of them will do.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

// Writes a stream over `cursor`, from where it is, to *out: record batches of at most `rows` rows
// (0: 65,536; at most 2^20) with the columns byte_offset and size_bytes, both uint64 without nulls.
// Consumes the cursor, whether it succeeds or fails. The consumer releases the stream, its arrays
// and its schema, in any order; arrays may outlive the stream.
//
// The stream ends only when the cursor is complete. A failure is an errno value (EINVAL, ENOMEM, or
// EIO) with the error's message as get_last_error, and every further get_next() repeats it.
// Cost: one copy; memory of a batch.
CBT_API cbt_code cbt_cursor_export_arrow(cbt_cursor* cursor, uint64_t rows,
                                         struct ArrowArrayStream* out,
                                         cbt_error** error) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_ARROW_H_
