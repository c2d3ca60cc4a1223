// A storage plugin in C: it answers CSI's SnapshotMetadata calls for two snapshots. Your gRPC
// library calls serve() for each call; here a client in the same program does.
//
//   cc plugin.c -o plugin $(pkg-config --cflags --libs cbt-c)
#include <cbt/c/cbt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// [storage]
// What the storage knows: a bit for each block of 4 KiB of a volume of 64 KiB, set where the block
// was written since the volume was made, at each of two snapshots.
static const cbt_geometry volume = {.capacity = 65536, .granularity = 4096};
static const uint8_t monday[] = {0x0f, 0x00};
static const uint8_t tuesday[] = {0x3f, 0x80};

static const uint8_t* find(const char* snapshot) {
  if (strcmp(snapshot, "monday") == 0) return monday;
  if (strcmp(snapshot, "tuesday") == 0) return tuesday;
  return NULL;
}
// [/storage]

// [provider]
// Opens the source of one call: the target's bits, or those that the base does not have.
static cbt_code open_source(void* user, const cbt_request* request, cbt_answer* answer,
                            cbt_error** error) {
  (void)user;
  const char* const base = cbt_request_base_borrowed(request, NULL);
  const uint8_t* const target_bits = find(cbt_request_target_borrowed(request, NULL));
  const uint8_t* const base_bits = base != NULL ? find(base) : NULL;
  if (target_bits == NULL || (base != NULL && base_bits == NULL)) {
    static const char message[] = "no such snapshot";
    *error = cbt_error_new(CBT_NOT_FOUND, message, sizeof(message) - 1);
    return CBT_NOT_FOUND;
  }
  cbt_bytes *before = NULL, *after = NULL;
  cbt_cursor* cursor = NULL;
  cbt_code code = cbt_bytes_copy(target_bits, sizeof(monday), &after, error);
  if (code == CBT_OK && base == NULL) {
    code = cbt_cursor_from_bitmap(after, NULL, &volume, &cursor, error);
  } else if (code == CBT_OK) {
    code = cbt_bytes_copy(base_bits, sizeof(monday), &before, error);
    if (code == CBT_OK) {
      code = cbt_cursor_from_bitmaps(before, after, CBT_XOR, NULL, &volume, &cursor, error);
    }
  }
  // The cursor keeps what it reads.
  cbt_bytes_free(before);
  cbt_bytes_free(after);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, cursor, error);
  return code;
}
// [/provider]

// What a gRPC library does with a call: the messages and the trailing metadata reach the client.
typedef struct call {
  cbt_checker* client;
} call;

static void send_message(call* to, const uint8_t* data, uint64_t size) {
  cbt_tuples tuples;
  cbt_error* error = NULL;
  if (cbt_checker_message(to->client, data, size, &tuples, &error) != CBT_OK) {
    fprintf(stderr, "%s\n", cbt_error_message_borrowed(error));
    cbt_error_free(error);
    return;
  }
  for (uint64_t i = 0; i < tuples.count; ++i) {
    printf("%" PRIu64 " %" PRIu64 "\n", tuples.offsets[i], tuples.lengths[i]);
  }
}

static void end_call(call* to, cbt_code code, const char* message, const cbt_metadata* trailing,
                     uint64_t count) {
  int32_t proof = 0;
  cbt_error* error = NULL;
  if (code != CBT_OK) {
    printf("%s: %s\n", cbt_code_name(code), message);
  } else if (cbt_checker_finish(to->client, trailing, count, &proof, &error) != CBT_OK) {
    printf("%s\n", cbt_error_message_borrowed(error));
    cbt_error_free(error);
  } else {
    printf("complete%s\n", proof == CBT_PROOF_HOLDS ? ", and proven" : "");
  }
}

// [serve]
// One call: `request` is its message, as it came.
static void serve(cbt_service* service, const char* method, const void* request, uint64_t size,
                  call* to) {
  cbt_error* error = NULL;
  cbt_stream* stream = NULL;
  cbt_message message;
  cbt_code code = cbt_stream_open(service, method, request, size, NULL, &stream, &error);
  while (code == CBT_OK) {
    code = cbt_stream_next(stream, &message, &error);
    if (code != CBT_OK || message.state == CBT_STREAM_END) break;
    // The initial metadata goes before the first message: cbt_stream_metadata_borrowed().
    send_message(to, message.data, message.size);
  }
  const cbt_metadata* trailing = NULL;
  uint64_t count = 0;
  if (code == CBT_OK) {
    code = cbt_stream_metadata_borrowed(stream, CBT_TRAILING, &trailing, &count, &error);
  }
  end_call(to, code, cbt_error_message_borrowed(error), trailing, count);
  cbt_error_free(error);
  cbt_stream_free(stream);
}
// [/serve]

static void ask(cbt_service* service, const char* method, const char* request, uint64_t size) {
  call it = {NULL};
  if (cbt_checker_new(NULL, &it.client, NULL) != CBT_OK) return;
  serve(service, method, request, size, &it);
  cbt_checker_free(it.client);
}

int main(void) {
  // [service]
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.open = open_source;
  cbt_service_options options = CBT_INIT(cbt_service_options);
  options.plugin_name = "block.example.com";
  cbt_service* service = NULL;
  cbt_error* error = NULL;
  if (cbt_service_new(&provider, &options, &service, &error) != CBT_OK) {
    fprintf(stderr, "%s\n", cbt_error_message_borrowed(error));
    cbt_error_free(error);
    return 1;
  }
  // Register these with the gRPC library.
  const char* method = NULL;
  for (uint64_t i = 0; (method = cbt_service_method_borrowed(service, i)) != NULL; ++i) {
    printf("%s\n", method);
  }
  // [/service]
  // GetMetadataDelta from "monday" to "tuesday", and of a snapshot that does not exist.
  static const char delta[] = "\x0a\x06monday\x12\x07tuesday";
  static const char missing[] = "\x0a\x06monday\x12\x06sunday";
  ask(service, "/csi.v1.SnapshotMetadata/GetMetadataDelta", delta, sizeof(delta) - 1);
  ask(service, "/csi.v1.SnapshotMetadata/GetMetadataDelta", missing, sizeof(missing) - 1);
  cbt_service_free(service);
  return 0;
}
