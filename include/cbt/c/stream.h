// csi.v1.SnapshotMetadata as a state machine: request bytes in, response bytes out, for any gRPC
// library. It checks requests, cuts messages, resumes, answers empty volumes, states version and
// proof, and gives every error its code; the caller moves bytes.
//
// snippet: tests/consumer/snippets/c.c#stream
//   cbt_message message;
//   if (cbt_stream_open(service, method, request, size, NULL, &stream, &error) != CBT_OK) {
//     return failed(error);  // ends the call with the error's code and message
//   }
//   for (;;) {
//     if (cbt_stream_next(stream, &message, &error) != CBT_OK) return failed(error);
//     if (message.state == CBT_STREAM_END) break;  // ends the call with OK
//     send(message.data, message.size);
//   }
//
// Send the initial metadata before the first message and the trailing metadata with the end
// (cbt_stream_metadata_borrowed()). Everything runs in the thread that calls: there is no other.
#ifndef CBT_C_STREAM_H_
#define CBT_C_STREAM_H_

#include "cbt/c/base.h"
#include "cbt/c/cursor.h"
#include "cbt/c/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- The provider: what a plugin implements

// What a client asks for. Valid during the callback that gets it.
typedef struct cbt_request cbt_request;

// The id of the base snapshot; NULL: the request asks what is allocated in the target. Both texts
// are not empty, have *size bytes and end with a NUL; valid during the callback. `size` may be
// NULL.
CBT_API const char* cbt_request_base_borrowed(const cbt_request* request,
                                              uint64_t* size) CBT_NOTHROW;
CBT_API const char* cbt_request_target_borrowed(const cbt_request* request,
                                                uint64_t* size) CBT_NOTHROW;

// The value of a secret of the request, which must reach no log and no message; NULL if it has no
// secret of this key (NUL-terminated). Valid during the callback, and wiped after it.
CBT_API const char* cbt_request_secret_borrowed(const cbt_request* request, const char* key,
                                                uint64_t* size) CBT_NOTHROW;

// Not 0 once the stream was cancelled. For callbacks that take long.
CBT_API int32_t cbt_request_cancelled(const cbt_request* request) CBT_NOTHROW;

// What a provider answers. Valid during the callback that gets it.
typedef struct cbt_answer cbt_answer;

// The extents, from 0 on; the stream seeks. Consumes the cursor. Its capacity is the size of the
// target snapshot. Required. If the provider fails afterwards, the cursor is freed.
CBT_API cbt_code cbt_answer_set_cursor(cbt_answer* answer, cbt_cursor* cursor,
                                       cbt_error** error) CBT_NOTHROW;

// Report blocks of `block_size` bytes (FIXED_LENGTH) instead of extents.
CBT_API cbt_code cbt_answer_set_blocks(cbt_answer* answer, uint64_t block_size,
                                       cbt_error** error) CBT_NOTHROW;

// Any text (`size` bytes, copied) that differs whenever the answer may differ, and is the same
// after a restart: a client that resumes notices that a snapshot was replaced in between. Without
// one only the ids identify the data. `may_change` (not 0): the data may change while the text
// stays the same, as with block devices; such streams are not proven.
CBT_API cbt_code cbt_answer_set_version(cbt_answer* answer, const char* version, uint64_t size,
                                        int32_t may_change, cbt_error** error) CBT_NOTHROW;

// Opens the source of a stream. May be called from several threads at once, may block, and is not
// called again for the same stream. The client sees the error's code and message, which must hold
// no secrets: INVALID_ARGUMENT for snapshots of different volumes, NOT_FOUND, FAILED_PRECONDITION
// without change tracking, UNAVAILABLE for a snapshot that is not ready, UNIMPLEMENTED.
typedef struct cbt_provider {
  uint64_t struct_size;
  void* user;  // passed to both functions
  cbt_code (*open)(void* user, const cbt_request* request, cbt_answer* answer, cbt_error** error);
  // Called once when the service and all its streams are freed; may be NULL.
  void (*release)(void* user);
} cbt_provider;

// --- The service

// Any number of threads may use one service.
typedef struct cbt_service cbt_service;

typedef struct cbt_service_options {
  uint64_t struct_size;
  // For csi.v1.Identity: a domain name of at most 63 characters, and a version (NULL: the
  // library's). NULL: the plugin answers Identity itself, and must list the capability
  // SNAPSHOT_METADATA_SERVICE.
  const char* plugin_name;
  const char* vendor_version;
  // The most bytes of one message, 4 KiB to 1 MiB - 1; 0: 128 KiB.
  uint64_t message_bytes;
  // How extents are reshaped, 0: not at all. `type` forces a style; blocks then have `block_size`
  // bytes, or the provider's. Extents are rounded outward to multiples of `alignment`, joined over
  // gaps of at most `coalesce_gap`, cut at `max_extent` bytes.
  int32_t type;
  int32_t reserved;  // 0
  uint64_t block_size;
  uint64_t alignment;
  uint64_t coalesce_gap;
  uint64_t max_extent;
} cbt_service_options;

// The provider is copied; `options` may be NULL. If this call fails, provider->release is not
// called.
// Errors: INVALID_ARGUMENT that names the option.
CBT_API cbt_code cbt_service_new(const cbt_provider* provider, const cbt_service_options* options,
                                 cbt_service** service, cbt_error** error) CBT_NOTHROW;

// The methods to register with the gRPC library, such as
// "/csi.v1.SnapshotMetadata/GetMetadataDelta", by index from 0; NULL after the last. Those of
// SnapshotMetadata are server-streaming, those of Identity unary (a stream of one message). The
// text is static.
CBT_API const char* cbt_service_method_borrowed(const cbt_service* service,
                                                uint64_t index) CBT_NOTHROW;

// Streams that are open continue.
CBT_API void cbt_service_free(cbt_service* service) CBT_NOTHROW;

// --- A stream: one call

// Calls on one stream must not overlap, but for cbt_stream_cancel().
typedef struct cbt_stream cbt_stream;

typedef struct cbt_stream_options {
  uint64_t struct_size;
  // When the client stops waiting, in nanoseconds since 1970; 0: never. The caller ends the call.
  int64_t deadline_ns;
  // The most time (microseconds) that cbt_stream_next() works before it returns CBT_STREAM_YIELD;
  // 0: until it has a message. For event loops. The provider's own calls are not cut.
  uint64_t slice_us;
} cbt_stream_options;

// Decodes and checks the request message of a call (`size` bytes, used during the call). The
// provider is called by the first cbt_stream_next(). `options` may be NULL.
// Errors: to end the call with: INVALID_ARGUMENT, OUT_OF_RANGE, UNIMPLEMENTED for another method.
CBT_API cbt_code cbt_stream_open(cbt_service* service, const char* method, const void* request,
                                 uint64_t size, const cbt_stream_options* options,
                                 cbt_stream** stream, cbt_error** error) CBT_NOTHROW;

enum {
  CBT_STREAM_MESSAGE = 1,  // send `data`
  CBT_STREAM_YIELD = 2,    // nothing yet: call again
  CBT_STREAM_END = 3       // everything was sent: end the call with OK
};

typedef struct cbt_message {
  const uint8_t* data;
  uint64_t size;            // bytes
  uint64_t tuples;          // in this message
  uint64_t reported_bytes;  // of the volume, in this message
  int32_t state;            // CBT_STREAM_MESSAGE, CBT_STREAM_YIELD or CBT_STREAM_END
  int32_t reserved;         // 0
} cbt_message;

// Makes the next message. Its bytes belong to the stream and are valid until the next call on it;
// see cbt_stream_keep(). After a quiet 100 ms a message is returned although it has room.
// Errors: to end the call with: those of the provider and its cursor, CANCELLED, INTERNAL when the
//         provider breaks its contract, RESOURCE_EXHAUSTED. Tuples found before are returned first.
//         Repeated by every further call.
// Cost:   some nanoseconds for each tuple; memory of two messages and one batch.
CBT_API cbt_code cbt_stream_next(cbt_stream* stream, cbt_message* message,
                                 cbt_error** error) CBT_NOTHROW;

// Keeps the bytes of the last message, without a copy, until `bytes` is freed: for libraries that
// send later.
// Errors: FAILED_PRECONDITION if the last call returned no message.
CBT_API cbt_code cbt_stream_keep(cbt_stream* stream, cbt_bytes** bytes,
                                 cbt_error** error) CBT_NOTHROW;

enum {
  CBT_INITIAL = 0,  // known once cbt_stream_next() has returned a message
  CBT_TRAILING = 1  // known once it has returned CBT_STREAM_END
};

// The metadata to send; the entries are valid until the stream is freed.
// Errors: FAILED_PRECONDITION if they are not known yet.
CBT_API cbt_code cbt_stream_metadata_borrowed(cbt_stream* stream, int32_t which,
                                              const cbt_metadata** entries, uint64_t* count,
                                              cbt_error** error) CBT_NOTHROW;

// Makes the stream fail with CANCELLED, soon also in a call that runs. From any thread, as long as
// the stream is not freed.
CBT_API void cbt_stream_cancel(cbt_stream* stream) CBT_NOTHROW;

CBT_API void cbt_stream_free(cbt_stream* stream) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_STREAM_H_
