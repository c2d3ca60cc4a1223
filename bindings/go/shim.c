#include "shim.h"

#include "_cgo_export.h"

static void release(void* user) { cbtGoRelease((uintptr_t)user); }

cbt_code cbt_go_bytes_own(const void* data, uint64_t size, uintptr_t handle, cbt_bytes** bytes,
                          cbt_error** error) {
  return cbt_bytes_own(data, size, (void*)handle, release, bytes, error);
}

static cbt_code seek(void* user, uint64_t offset, cbt_error** error) {
  return cbtGoSeek((uintptr_t)user, offset, error);
}

static cbt_code next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                     uint64_t* count, uint64_t* covered, cbt_error** error) {
  return cbtGoNext((uintptr_t)user, offsets, lengths, room, count, covered, error);
}

cbt_code cbt_go_cursor(uintptr_t handle, uint64_t capacity, uint64_t granularity,
                       cbt_cursor** cursor, cbt_error** error) {
  const cbt_geometry geometry = {capacity, granularity};
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.user = (void*)handle;
  callbacks.seek = seek;
  callbacks.next = next;
  callbacks.release = release;
  return cbt_cursor_from_callbacks(&callbacks, &geometry, cursor, error);
}

void cbt_go_cursor_read(cbt_cursor* cursor, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                        cbt_go_read* out) {
  cbt_batch batch;
  out->code = cbt_cursor_read(cursor, offsets, lengths, room, &batch, &out->error);
  if (out->code != CBT_OK) return;
  out->count = batch.count;
  out->covered = batch.covered;
  out->complete = batch.complete;
}

// The call whose stream this thread runs. A provider is called in the thread that reads the stream,
// and a goroutine stays on its thread while it is in C.
static _Thread_local uintptr_t running;

static cbt_code open(void* user, const cbt_request* request, cbt_answer* answer,
                     cbt_error** error) {
  return cbtGoOpen((uintptr_t)user, running, (cbt_request*)request, answer, error);
}

cbt_code cbt_go_service(uintptr_t handle, const cbt_service_options* options, cbt_service** service,
                        cbt_error** error) {
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.user = (void*)handle;
  provider.open = open;
  provider.release = release;
  return cbt_service_new(&provider, options, service, error);
}

void cbt_go_stream_next(cbt_stream* stream, uintptr_t call, cbt_go_message* out) {
  const uintptr_t before = running;
  cbt_message message;
  running = call;
  out->code = cbt_stream_next(stream, &message, &out->error);
  running = before;
  if (out->code != CBT_OK) return;
  out->data = message.data;
  out->size = message.size;
  out->tuples = message.tuples;
  out->reported_bytes = message.reported_bytes;
  out->state = message.state;
}
