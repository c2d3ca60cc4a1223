// Snippets of the headers of the C interface. Compiled, not run.
#include <cbt/c/cbt.h>

int failed(cbt_error* error);
void use(uint64_t offset, uint64_t length);
void send(const uint8_t* data, uint64_t size);
int read_cursor(cbt_cursor* cursor);
int serve(cbt_service* service, const char* method, const void* request, uint64_t size);
int snapshot(cbt_tracker* tracker);
int start_server(cbt_service* service);
int list_changes(void);
void wait_for_signal(void);

int read_cursor(cbt_cursor* cursor) {
  cbt_error* error = NULL;
  // [cursor]
  cbt_batch batch;
  do {
    if (cbt_cursor_next(cursor, &batch, &error) != CBT_OK) return failed(error);
    for (uint64_t i = 0; i < batch.count; ++i) use(batch.offsets[i], batch.lengths[i]);
  } while (!batch.complete);
  // [/cursor]
  return 0;
}

int serve(cbt_service* service, const char* method, const void* request, uint64_t size) {
  cbt_error* error = NULL;
  cbt_stream* stream = NULL;
  // [stream]
  cbt_message message;
  if (cbt_stream_open(service, method, request, size, NULL, &stream, &error) != CBT_OK) {
    return failed(error);  // ends the call with the error's code and message
  }
  for (;;) {
    if (cbt_stream_next(stream, &message, &error) != CBT_OK) return failed(error);
    if (message.state == CBT_STREAM_END) break;  // ends the call with OK
    send(message.data, message.size);
  }
  // [/stream]
  cbt_stream_free(stream);
  return 0;
}

int snapshot(cbt_tracker* tracker) {
  cbt_error* error = NULL;
  cbt_map* map = NULL;
  // [tracker]
  // Writes count in both epochs from here on; then the storage takes the snapshot.
  if (cbt_tracker_open_epoch(tracker, "tuesday", &error) != CBT_OK) return failed(error);
  // What changed from Monday to Tuesday.
  if (cbt_tracker_close_epoch(tracker, &map, &error) != CBT_OK) return failed(error);
  if (cbt_map_save(map, "tuesday.cbm", 0, &error) != CBT_OK) return failed(error);
  // The tracker may forget it.
  if (cbt_tracker_acknowledge(tracker, map, &error) != CBT_OK) return failed(error);
  // [/tracker]
  cbt_map_free(map);
  return 0;
}

int start_server(cbt_service* service) {
  cbt_error* error = NULL;
  // [server]
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.listen = "unix:///csi/csi.sock";
  cbt_server* server = NULL;
  if (cbt_server_start(service, &options, &server, &error) != CBT_OK) return failed(error);
  wait_for_signal();
  if (cbt_server_shutdown(server, 5000, &error) != CBT_OK) return failed(error);
  cbt_server_free(server);
  // [/server]
  return 0;
}

int list_changes(void) {
  cbt_error* error = NULL;
  // [client]
  cbt_client_options options = CBT_INIT(cbt_client_options);
  options.address = "unix:///csi/csi.sock";
  options.base = "monday";
  options.snapshot = "tuesday";
  cbt_client* client = NULL;
  cbt_cursor* cursor = NULL;
  if (cbt_client_new(&options, &client, &error) != CBT_OK) return failed(error);
  if (cbt_client_open(client, &cursor, &error) != CBT_OK) return failed(error);
  if (read_cursor(cursor) != 0) return 1;  // see cbt/c/cursor.h
  int32_t proof = CBT_PROOF_ABSENT;
  if (cbt_client_proof(client, &proof, &error) != CBT_OK) return failed(error);
  // [/client]
  cbt_cursor_free(cursor);
  cbt_client_free(client);
  return proof == CBT_PROOF_ABSENT ? 1 : 0;
}
