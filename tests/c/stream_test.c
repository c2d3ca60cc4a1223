// A service and its streams: what conform judges of them, cancelling, keeping, metadata; the
// checker against streams that are not what they should be.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

#define DELTA "/csi.v1.SnapshotMetadata/GetMetadataDelta"
#define ALLOCATED "/csi.v1.SnapshotMetadata/GetMetadataAllocated"

typedef struct storage {
  int mode;
  int opened;
  int released;
  atomic_int inside;
  cbt_bytes* bits;  // 4096 blocks of 4 KiB
} storage;

static cbt_code open_snapshot(void* user, const cbt_request* request, cbt_answer* answer,
                              cbt_error** error) {
  storage* const it = (storage*)user;
  ++it->opened;
  uint64_t size = 0;
  const char* const target = cbt_request_target_borrowed(request, &size);
  EXPECT_EQ(size, strlen(target));
  const char* const base = cbt_request_base_borrowed(request, &size);
  if (base != NULL) EXPECT_EQ(size, strlen(base));
  if (strcmp(target, "missing") == 0) {
    *error = cbt_error_new(CBT_NOT_FOUND, "no such snapshot", 16);
    return CBT_NOT_FOUND;
  }
  const char* const secret = cbt_request_secret_borrowed(request, "key", &size);
  if (it->mode == 1) {
    EXPECT(secret != NULL && size == 5 && strcmp(secret, "value") == 0);
    EXPECT(cbt_request_secret_borrowed(request, "other", NULL) == NULL);
  }
  if (it->mode == 2) return CBT_OK;  // without a cursor
  if (it->mode == 3) {
    it->inside = 1;
    while (!cbt_request_cancelled(request)) usleep(100);
  }
  const cbt_geometry volume = {4096 * 4096, 4096};
  cbt_cursor* cursor = NULL;
  cbt_code code = cbt_cursor_from_bitmap(it->bits, NULL, &volume, &cursor, error);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, cursor, error);
  if (code == CBT_OK) code = cbt_answer_set_version(answer, "v1", 2, it->mode == 4, error);
  if (it->mode == 5) {  // an error after all: the cursor is freed
    *error = cbt_error_new(CBT_UNAVAILABLE, "busy", 4);
    return CBT_UNAVAILABLE;
  }
  return code;
}

static void release_storage(void* user) { ++((storage*)user)->released; }

static cbt_service* service_of(storage* it, const char* plugin) {
  uint8_t bits[512];
  for (size_t i = 0; i < sizeof(bits); ++i) bits[i] = 0x55;
  EXPECT_OK(cbt_bytes_copy(bits, sizeof(bits), &it->bits, &error));
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.user = it;
  provider.open = open_snapshot;
  provider.release = release_storage;
  cbt_service_options options = CBT_INIT(cbt_service_options);
  options.plugin_name = plugin;
  cbt_service* service = NULL;
  EXPECT_OK(cbt_service_new(&provider, &options, &service, &error));
  return service;
}

static void done(storage* it, cbt_service* service) {
  cbt_service_free(service);
  cbt_bytes_free(it->bits);
  EXPECT_EQ(it->released, 1);
}

static cbt_stream* open_stream(cbt_service* service, const char* method, const char* request,
                               size_t size) {
  cbt_stream* stream = NULL;
  EXPECT_OK(cbt_stream_open(service, method, request, size, NULL, &stream, &error));
  return stream;
}

// base "a", target "b", max_results 100
static const char kRequest[] =
    "\x0a\x01"
    "a\x12\x01"
    "b\x20\x64";
#define REQUEST kRequest, sizeof(kRequest) - 1

static const char* value_of(const cbt_metadata* entries, uint64_t count, const char* key) {
  for (uint64_t i = 0; i < count; ++i) {
    if (strcmp(entries[i].key, key) == 0) return entries[i].value;
  }
  return NULL;
}

static void a_stream_carries_version_and_proof(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it, NULL);
  cbt_stream* const stream = open_stream(service, DELTA, REQUEST);
  const cbt_metadata* entries = NULL;
  uint64_t count = 0;
  EXPECT_EQ(it.opened, 0);
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "",
               cbt_stream_metadata_borrowed(stream, CBT_INITIAL, &entries, &count, &error));
  cbt_bytes* kept = NULL;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_stream_keep(stream, &kept, &error));
  cbt_message message;
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  EXPECT_EQ(message.state, CBT_STREAM_MESSAGE);
  EXPECT_EQ(message.tuples, 100);
  EXPECT_EQ(message.reported_bytes, 100 * 4096);
  EXPECT_OK(cbt_stream_metadata_borrowed(stream, CBT_INITIAL, &entries, &count, &error));
  EXPECT(strlen(value_of(entries, count, "cbt-source-version")) == 32);
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "",
               cbt_stream_metadata_borrowed(stream, CBT_TRAILING, &entries, &count, &error));
  EXPECT_OK(cbt_stream_keep(stream, &kept, &error));
  EXPECT(cbt_bytes_data_borrowed(kept) == (const void*)message.data);
  EXPECT_EQ(cbt_bytes_size(kept), message.size);
  cbt_bytes_free(kept);
  uint64_t tuples = message.tuples;
  for (;;) {
    EXPECT_OK(cbt_stream_next(stream, &message, &error));
    if (message.state == CBT_STREAM_END) break;
    tuples += message.tuples;
  }
  EXPECT_EQ(tuples, 2048);
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  EXPECT_EQ(message.state, CBT_STREAM_END);
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_stream_keep(stream, &kept, &error));
  EXPECT(kept == NULL);
  EXPECT_OK(cbt_stream_metadata_borrowed(stream, CBT_TRAILING, &entries, &count, &error));
  EXPECT(strcmp(value_of(entries, count, "cbt-tuple-count"), "2048") == 0);
  EXPECT(value_of(entries, count, "cbt-proof-scope") == NULL);
  cbt_stream_free(stream);
  done(&it, service);
}

static void kept_messages_outlive_everything(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it, NULL);
  cbt_stream* const stream = open_stream(service, DELTA, REQUEST);
  cbt_bytes* kept[64];
  uint8_t* copies[64];
  int count = 0;
  cbt_message message;
  for (;; ++count) {
    EXPECT_OK(cbt_stream_next(stream, &message, &error));
    if (message.state == CBT_STREAM_END) break;
    EXPECT_OK(cbt_stream_keep(stream, &kept[count], &error));
    copies[count] = (uint8_t*)malloc(message.size);
    EXPECT(copies[count] != NULL);
    memcpy(copies[count], message.data, message.size);
  }
  EXPECT_EQ(count, 21);
  cbt_stream_free(stream);
  done(&it, service);
  for (int i = 0; i < count; ++i) {
    EXPECT(memcmp(copies[i], cbt_bytes_data_borrowed(kept[i]), cbt_bytes_size(kept[i])) == 0);
    cbt_bytes_free(kept[i]);
    free(copies[i]);
  }
}

static void requests_are_checked_before_the_provider_is_asked(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it, NULL);
  cbt_stream* stream = NULL;
  static const struct {
    const char* method;
    const char* request;
    size_t size;
    cbt_code code;
    const char* words;
  } kCases[] = {
      {DELTA, "", 0, CBT_INVALID_ARGUMENT, "base_snapshot_id"},
      {DELTA,
       "\x0a\x01"
       "a",
       3, CBT_INVALID_ARGUMENT, "target_snapshot_id"},
      {ALLOCATED, "", 0, CBT_INVALID_ARGUMENT, "snapshot_id"},
      {DELTA, "\x0a\x7f", 2, CBT_INVALID_ARGUMENT, ""},
      {DELTA,
       "\x0a\x01"
       "a\x12\x01"
       "b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
       17, CBT_OUT_OF_RANGE, "starting_offset"},
      {DELTA,
       "\x0a\x01"
       "a\x12\x01"
       "b\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
       17, CBT_INVALID_ARGUMENT, "max_results"},
      {"/csi.v1.Controller/CreateVolume", "", 0, CBT_UNIMPLEMENTED, "CreateVolume"},
      {"/csi.v1.Identity/Probe", "", 0, CBT_UNIMPLEMENTED, "Probe"},
  };
  for (size_t i = 0; i < sizeof(kCases) / sizeof(kCases[0]); ++i) {
    EXPECT_FAILS(kCases[i].code, kCases[i].words,
                 cbt_stream_open(service, kCases[i].method, kCases[i].request, kCases[i].size, NULL,
                                 &stream, &error));
    EXPECT(stream == NULL);
  }
  EXPECT_EQ(it.opened, 0);
  // Past the capacity is known only once the provider was asked.
  static const char kPast[] =
      "\x0a\x01"
      "b\x10\x80\x80\x80\x80\x10";
  stream = open_stream(service, ALLOCATED, kPast, sizeof(kPast) - 1);
  cbt_message message;
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "starting_offset", cbt_stream_next(stream, &message, &error));
  cbt_stream_free(stream);
  static const char kMissing[] = "\x0a\x07missing";
  stream = open_stream(service, ALLOCATED, kMissing, sizeof(kMissing) - 1);
  EXPECT_FAILS(CBT_NOT_FOUND, "no such snapshot", cbt_stream_next(stream, &message, &error));
  EXPECT_FAILS(CBT_NOT_FOUND, "no such snapshot", cbt_stream_next(stream, &message, &error));
  cbt_stream_free(stream);
  done(&it, service);
}

static void providers_may_break_their_contract(void) {
  storage it = {.mode = 2};
  cbt_service* const service = service_of(&it, NULL);
  cbt_message message;
  cbt_stream* stream = open_stream(service, DELTA, REQUEST);
  EXPECT_FAILS(CBT_INTERNAL, "no cursor", cbt_stream_next(stream, &message, &error));
  EXPECT_EQ(message.state, 0);
  cbt_stream_free(stream);
  it.mode = 5;
  stream = open_stream(service, DELTA, REQUEST);
  EXPECT_FAILS(CBT_UNAVAILABLE, "busy", cbt_stream_next(stream, &message, &error));
  cbt_stream_free(stream);
  it.mode = 1;
  static const char kSecret[] =
      "\x0a\x01"
      "b\x22\x0c\x0a\x03key\x12\x05value";
  stream = open_stream(service, ALLOCATED, kSecret, sizeof(kSecret) - 1);
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  cbt_stream_free(stream);
  // What may change unseen is not proven.
  it.mode = 4;
  stream = open_stream(service, DELTA, REQUEST);
  do {
    EXPECT_OK(cbt_stream_next(stream, &message, &error));
  } while (message.state != CBT_STREAM_END);
  const cbt_metadata* entries = NULL;
  uint64_t count = 0;
  EXPECT_OK(cbt_stream_metadata_borrowed(stream, CBT_TRAILING, &entries, &count, &error));
  EXPECT(strcmp(value_of(entries, count, "cbt-proof-scope"), "place") == 0);
  cbt_stream_free(stream);
  done(&it, service);
}

static void identity_is_answered_if_it_is_named(void) {
  storage it = {0};
  cbt_service* const service = service_of(&it, "block.example.com");
  uint64_t methods = 0;
  for (; cbt_service_method_borrowed(service, methods) != NULL; ++methods) {
    EXPECT(cbt_service_method_borrowed(service, methods)[0] == '/');
  }
  EXPECT_EQ(methods, 5);
  cbt_stream* stream = open_stream(service, "/csi.v1.Identity/GetPluginInfo", "", 0);
  cbt_message message;
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  EXPECT(message.size > 19 && memcmp(message.data,
                                     "\x0a\x11"
                                     "block.example.com",
                                     19) == 0);
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  EXPECT_EQ(message.state, CBT_STREAM_END);
  cbt_stream_free(stream);
  stream = open_stream(service, "/csi.v1.Identity/GetPluginCapabilities", "", 0);
  EXPECT_OK(cbt_stream_next(stream, &message, &error));
  EXPECT(message.size == 6 && memcmp(message.data, "\x0a\x04\x0a\x02\x08\x04", 6) == 0);
  cbt_stream_free(stream);
  EXPECT_FAILS(
      CBT_INVALID_ARGUMENT, "",
      cbt_stream_open(service, "/csi.v1.Identity/Probe", "\x0a\x7f", 2, NULL, &stream, &error));
  done(&it, service);
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.open = open_snapshot;
  cbt_service_options options = CBT_INIT(cbt_service_options);
  options.plugin_name = "-no-";
  cbt_service* none = NULL;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "plugin name",
               cbt_service_new(&provider, &options, &none, &error));
  options.plugin_name = NULL;
  options.message_bytes = 100;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "message_bytes",
               cbt_service_new(&provider, &options, &none, &error));
}

static void* next_in_thread(void* stream) {
  cbt_message message;
  EXPECT_FAILS(CBT_CANCELLED, "", cbt_stream_next((cbt_stream*)stream, &message, &error));
  return NULL;
}

static void cancelling_reaches_a_provider_that_works(void) {
  storage it = {.mode = 3};
  cbt_service* const service = service_of(&it, NULL);
  cbt_stream* const stream = open_stream(service, DELTA, REQUEST);
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, next_in_thread, stream) == 0);
  while (!it.inside) usleep(100);
  cbt_message message;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "one at a time", cbt_stream_next(stream, &message, &error));
  cbt_stream_cancel(stream);
  pthread_join(thread, NULL);
  EXPECT_FAILS(CBT_CANCELLED, "", cbt_stream_next(stream, &message, &error));
  cbt_stream_free(stream);
  done(&it, service);
}

static cbt_code quiet_seek(void* user, uint64_t offset, cbt_error** error) {
  (void)user, (void)offset, (void)error;
  return CBT_OK;
}

static cbt_code quiet_next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                           uint64_t* count, uint64_t* covered, cbt_error** error) {
  (void)user, (void)offsets, (void)lengths, (void)room, (void)error;
  *count = 0;
  usleep(300);
  if (*covered < 100) ++*covered;
  return CBT_OK;
}

static cbt_code open_quiet(void* user, const cbt_request* request, cbt_answer* answer,
                           cbt_error** error) {
  (void)user, (void)request;
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.seek = quiet_seek;
  callbacks.next = quiet_next;
  const cbt_geometry volume = {100, 1};
  cbt_cursor* cursor = NULL;
  cbt_code code = cbt_cursor_from_callbacks(&callbacks, &volume, &cursor, error);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, cursor, error);
  return code;
}

static void a_slice_returns_early(void) {
  cbt_provider provider = CBT_INIT(cbt_provider);
  provider.open = open_quiet;
  cbt_service* service = NULL;
  EXPECT_OK(cbt_service_new(&provider, NULL, &service, &error));
  cbt_stream_options options = CBT_INIT(cbt_stream_options);
  options.slice_us = 1000;
  cbt_stream* stream = NULL;
  EXPECT_OK(cbt_stream_open(service, DELTA, REQUEST, &options, &stream, &error));
  int yields = 0, messages = 0;
  for (;;) {
    cbt_message message;
    EXPECT_OK(cbt_stream_next(stream, &message, &error));
    if (message.state == CBT_STREAM_END) break;
    if (message.state == CBT_STREAM_YIELD) ++yields;
    if (message.state == CBT_STREAM_MESSAGE) ++messages;
  }
  EXPECT(yields >= 5);
  EXPECT_EQ(messages, 1);
  cbt_stream_free(stream);
  cbt_service_free(service);
}

// --- The checker against what no server should send

static uint64_t message_of(int32_t type, const uint64_t* offsets, const uint64_t* lengths,
                           uint64_t count, uint8_t* out, uint64_t room) {
  uint64_t header = 0, tuples = 0, written = 0;
  EXPECT_OK(cbt_encode_header(type, 1000, out, &header, &error));
  EXPECT_OK(cbt_encode_tuples(offsets, lengths, count, out + header, room - header, &tuples,
                              &written, &error));
  EXPECT_EQ(tuples, count);
  return header + written;
}

static void the_checker_refuses_what_breaks_a_rule(void) {
  static const struct {
    uint64_t offsets[3], lengths[3], count;
    const char* words;
  } kCases[] = {{{0, 5}, {10, 5}, 2, "tuple 1"}, {{10, 0}, {5, 5}, 2, "tuple 1"},
                {{0}, {0}, 1, "tuple 0"},        {{990}, {11}, 1, "tuple 0"},
                {{1000}, {1}, 1, "tuple 0"},     {{0, 10, 20}, {1, 1, 1}, 3, ""}};
  for (size_t i = 0; i < sizeof(kCases) / sizeof(kCases[0]); ++i) {
    cbt_checker_options options = CBT_INIT(cbt_checker_options);
    options.max_results = 2;
    cbt_checker* checker = NULL;
    EXPECT_OK(cbt_checker_new(&options, &checker, &error));
    uint8_t bytes[200];
    const uint64_t size = message_of(CBT_VARIABLE_LENGTH, kCases[i].offsets, kCases[i].lengths,
                                     kCases[i].count, bytes, sizeof(bytes));
    cbt_tuples tuples;
    EXPECT_FAILS(CBT_DATA_LOSS, kCases[i].words,
                 cbt_checker_message(checker, bytes, size, &tuples, &error));
    EXPECT_EQ(tuples.count, 0);
    // What was wrong once stays so, also at the end.
    EXPECT_FAILS(CBT_DATA_LOSS, "", cbt_checker_finish(checker, NULL, 0, NULL, &error));
    cbt_checker_free(checker);
  }
}

static void the_checker_gives_a_verdict(void) {
  const uint64_t offset = 100, length = 50;
  uint8_t bytes[200];
  const uint64_t size = message_of(CBT_VARIABLE_LENGTH, &offset, &length, 1, bytes, sizeof(bytes));
  cbt_tuples tuples;
  cbt_checker* checker = NULL;
  int32_t proof = 7;
  // No message is no answer.
  EXPECT_OK(cbt_checker_new(NULL, &checker, &error));
  EXPECT_FAILS(CBT_DATA_LOSS, "without a message",
               cbt_checker_finish(checker, NULL, 0, &proof, &error));
  cbt_checker_free(checker);
  // Without a proof: allowed unless it is required.
  EXPECT_OK(cbt_checker_new(NULL, &checker, &error));
  EXPECT_OK(cbt_checker_message(checker, bytes, size, &tuples, &error));
  EXPECT_EQ(cbt_checker_resume_offset(checker), 150);
  EXPECT_EQ(cbt_checker_tuples(checker), 1);
  EXPECT_EQ(cbt_checker_reported_bytes(checker), 50);
  EXPECT_OK(cbt_checker_finish(checker, NULL, 0, &proof, &error));
  EXPECT_EQ(proof, CBT_PROOF_ABSENT);
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "finished",
               cbt_checker_message(checker, bytes, size, &tuples, &error));
  cbt_checker_free(checker);
  cbt_checker_options options = CBT_INIT(cbt_checker_options);
  options.require_proof = 1;
  EXPECT_OK(cbt_checker_new(&options, &checker, &error));
  EXPECT_OK(cbt_checker_message(checker, bytes, size, &tuples, &error));
  EXPECT_FAILS(CBT_DATA_LOSS, "proof", cbt_checker_finish(checker, NULL, 0, &proof, &error));
  cbt_checker_free(checker);
  // A proof of something else.
  const cbt_metadata wrong[] = {{"cbt-tuple-count", "2"},
                                {"cbt-reported-bytes", "50"},
                                {"cbt-starting-offset", "0"},
                                {"cbt-digest", "xxh3-64:0123456789abcdef"}};
  EXPECT_OK(cbt_checker_new(NULL, &checker, &error));
  EXPECT_OK(cbt_checker_message(checker, bytes, size, &tuples, &error));
  EXPECT_FAILS(CBT_DATA_LOSS, "tuple", cbt_checker_finish(checker, wrong, 4, &proof, &error));
  cbt_checker_free(checker);
  EXPECT_OK(cbt_checker_new(NULL, &checker, &error));
  EXPECT_FAILS(CBT_DATA_LOSS, "message 0",
               cbt_checker_message(checker, "\x0a", 1, &tuples, &error));
  cbt_checker_free(checker);
}

static void encoding_stays_within_its_room(void) {
  const uint64_t huge = UINT64_C(1) << 63, most = huge - 1;
  const uint64_t offsets[3] = {most, 5, 6}, lengths[3] = {most, 1, 1};
  uint8_t out[64];
  uint64_t tuples = 0, written = 0;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "2^63",
               cbt_encode_tuples(&huge, lengths, 1, out, sizeof(out), &tuples, &written, &error));
  for (uint64_t room = 0; room < sizeof(out); ++room) {
    memset(out, 0xee, sizeof(out));
    EXPECT_OK(cbt_encode_tuples(offsets, lengths, 3, out, room, &tuples, &written, &error));
    EXPECT(written <= room && tuples >= (room / 22 < 3 ? room / 22 : 3));
    for (uint64_t i = room; i < sizeof(out); ++i) EXPECT_EQ(out[i], 0xee);
  }
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "type", cbt_encode_header(3, 5, out, &written, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "capacity", cbt_encode_header(1, huge, out, &written, &error));
}

int main(void) {
  a_stream_carries_version_and_proof();
  kept_messages_outlive_everything();
  requests_are_checked_before_the_provider_is_asked();
  providers_may_break_their_contract();
  identity_is_answered_if_it_is_named();
  cancelling_reaches_a_provider_that_works();
  a_slice_returns_early();
  the_checker_refuses_what_breaks_a_rule();
  the_checker_gives_a_verdict();
  encoding_stays_within_its_room();
  return 0;
}
