// What goes wrong at the border: NULLs, structures of other versions, callbacks that fail or break
// their contract, owners, overlapping calls, fork, signals.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const cbt_geometry kVolume = {1000, 10};

static cbt_cursor* one_extent(uint64_t offset, uint64_t length) {
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_cursor_from_extents(&offset, &length, 1, &kVolume, &cursor, &error));
  return cursor;
}

// --- Errors

static void errors_have_names_and_messages(void) {
  EXPECT(strcmp(cbt_code_name(CBT_OK), "OK") == 0);
  EXPECT(strcmp(cbt_code_name(CBT_DATA_LOSS), "DATA_LOSS") == 0);
  EXPECT(strcmp(cbt_code_name(CBT_UNAUTHENTICATED), "UNAUTHENTICATED") == 0);
  EXPECT(strcmp(cbt_code_name(17), "UNKNOWN") == 0 && strcmp(cbt_code_name(-1), "UNKNOWN") == 0);
  cbt_error* error = cbt_error_new(CBT_NOT_FOUND, "no snapshot seven", 11);
  EXPECT_EQ(cbt_error_code(error), CBT_NOT_FOUND);
  EXPECT(strcmp(cbt_error_message_borrowed(error), "no snapshot") == 0);
  cbt_error_free(error);
  // What is no error becomes one.
  error = cbt_error_new(CBT_OK, NULL, 0);
  EXPECT_EQ(cbt_error_code(error), CBT_UNKNOWN);
  cbt_error_free(error);
  EXPECT_EQ(cbt_error_code(NULL), CBT_OK);
  EXPECT(strcmp(cbt_error_message_borrowed(NULL), "") == 0);
  // An error is set in every call, and need not be wanted.
  error = cbt_error_new(CBT_NOT_FOUND, "old", 3);
  cbt_error* const old = error;
  cbt_cursor* const cursor = one_extent(0, 10);
  EXPECT_EQ(cbt_cursor_seek(cursor, 0, &error), CBT_OK);
  EXPECT(error == NULL);
  cbt_error_free(old);
  EXPECT_EQ(cbt_cursor_seek(cursor, 1001, NULL), CBT_OUT_OF_RANGE);
  cbt_cursor_free(cursor);
}

static void versions_are_those_of_the_headers(void) {
  EXPECT_EQ(cbt_abi_version() / 65536, CBT_ABI_MAJOR);
  EXPECT_EQ(cbt_abi_version() % 65536, CBT_ABI_MINOR);
  EXPECT(strchr(cbt_version_string(), '.') != NULL && cbt_simd_level()[0] != '\0');
#ifndef CBT_HAVE_cbt_stream_open
  FAIL("no macro for cbt_stream_open");
#endif
}

static void null_is_refused(void) {
  const uint64_t zero[1] = {0};
  cbt_cursor* cursor = NULL;
  cbt_bytes* bytes = NULL;
  cbt_map* map = NULL;
  cbt_batch batch;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "cursor", cbt_cursor_next(NULL, &batch, &error));
  EXPECT(!batch.complete && batch.count == 0);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "bytes", cbt_bytes_copy("x", 1, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "data", cbt_bytes_copy(NULL, 1, &bytes, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "release", cbt_bytes_own("x", 1, NULL, NULL, &bytes, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "bits",
               cbt_cursor_from_bitmap(NULL, NULL, &kVolume, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "geometry",
               cbt_cursor_from_extents(zero, zero, 0, NULL, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "cursor",
               cbt_cursor_from_extents(zero, zero, 0, &kVolume, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "offsets",
               cbt_cursor_from_extents(NULL, NULL, 1, &kVolume, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "input", cbt_cursor_coalesce(NULL, 1, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "address", cbt_source_open(NULL, NULL, &cursor, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "path", cbt_map_load(NULL, &map, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "map", cbt_map_save(NULL, "/tmp/x", 0, &error));
  EXPECT(cursor == NULL && bytes == NULL && map == NULL);
  cbt_error_free(NULL);
  cbt_bytes_free(NULL);
  cbt_cursor_free(NULL);
  cbt_map_free(NULL);
  cbt_map_builder_free(NULL);
  cbt_checker_free(NULL);
  cbt_service_free(NULL);
  cbt_stream_free(NULL);
  cbt_stream_cancel(NULL);
  cbt_chain_free(NULL);
  cbt_tracker_free(NULL);
  cbt_write_end(NULL);
  EXPECT_EQ(cbt_cursor_covered(NULL), 0);
  EXPECT_EQ(cbt_bytes_size(NULL), 0);
  EXPECT(cbt_bytes_data_borrowed(NULL) == NULL);
  // Consumed inputs are gone even when the call fails.
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "cursor",
               cbt_cursor_coalesce(one_extent(0, 10), 1, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "",
               cbt_cursor_to_blocks(one_extent(0, 10), 0, &cursor, &error));
  cbt_cursor* const twice = one_extent(0, 10);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "same", cbt_cursor_intersect(twice, twice, &cursor, &error));
  cbt_cursor* const pair[2] = {one_extent(0, 10), NULL};
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "inputs", cbt_cursor_union(pair, 2, &cursor, &error));
}

static void structures_may_have_other_versions(void) {
  cbt_checker* checker = NULL;
  cbt_checker_options options = {0};
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "CBT_INIT", cbt_checker_new(&options, &checker, &error));
  memset(&options, 0xab, sizeof(options));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "CBT_INIT", cbt_checker_new(&options, &checker, &error));
  // An older caller's: what it does not have is the default.
  options = (cbt_checker_options)CBT_INIT(cbt_checker_options);
  options.struct_size = sizeof(uint64_t);
  options.starting_offset = 500;  // not looked at
  EXPECT_OK(cbt_checker_new(&options, &checker, &error));
  EXPECT_EQ(cbt_checker_resume_offset(checker), 0);
  cbt_checker_free(checker);
  // A newer caller's: what this library does not know must not be wanted.
  struct {
    cbt_checker_options known;
    uint64_t future[2];
  } newer = {CBT_INIT(cbt_checker_options), {0, 0}};
  newer.known.struct_size = sizeof(newer);
  newer.known.starting_offset = 500;
  EXPECT_OK(cbt_checker_new(&newer.known, &checker, &error));
  EXPECT_EQ(cbt_checker_resume_offset(checker), 500);
  cbt_checker_free(checker);
  newer.future[1] = 1;
  EXPECT_FAILS(CBT_UNIMPLEMENTED, "newer", cbt_checker_new(&newer.known, &checker, &error));
  // A result: only what the caller has is written.
  cbt_map_builder* builder = NULL;
  cbt_map* map = NULL;
  EXPECT_OK(cbt_map_builder_new(&kVolume, &builder, &error));
  EXPECT_OK(cbt_map_builder_build(builder, &map, &error));
  cbt_map_info info = CBT_INIT(cbt_map_info);
  info.struct_size = offsetof(cbt_map_info, blocks);
  info.blocks = 77;
  EXPECT_OK(cbt_map_get_info(map, &info, &error));
  EXPECT_EQ(info.geometry.capacity, 1000);
  EXPECT_EQ(info.blocks, 77);
  cbt_map_free(map);
  cbt_map_builder_free(builder);
}

// --- Owners

static void count_release(void* owner) { ++*(int*)owner; }

static void owners_are_released_once_and_last(void) {
  static const uint8_t bits[13] = {0xff, 0, 0, 0, 1};
  int released = 0;
  cbt_bytes* bytes = NULL;
  cbt_cursor *cursor = NULL, *second = NULL;
  EXPECT_OK(cbt_bytes_own(bits, sizeof(bits), &released, count_release, &bytes, &error));
  EXPECT_OK(cbt_cursor_from_bitmap(bytes, NULL, &kVolume, &cursor, &error));
  EXPECT_OK(cbt_cursor_from_bitmaps(bytes, bytes, CBT_OR, NULL, &kVolume, &second, &error));
  cbt_bytes_free(bytes);
  EXPECT_EQ(released, 0);
  EXPECT_OK(cbt_cursor_to_blocks(cursor, 10, &cursor, &error));
  cbt_cursor_free(second);
  extents found = read_all(cursor, 100);
  EXPECT_EQ(found.count, 9);
  clear_extents(&found);
  EXPECT_EQ(released, 0);
  cbt_cursor_free(cursor);
  EXPECT_EQ(released, 1);
  // A call that fails takes nothing.
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "data",
               cbt_bytes_own(NULL, 5, &released, count_release, &bytes, &error));
  EXPECT_EQ(released, 1);
}

static void a_copy_does_not_see_later_changes(void) {
  uint8_t bits[13] = {1};
  cbt_bytes* bytes = NULL;
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_bytes_copy(bits, sizeof(bits), &bytes, &error));
  memset(bits, 0xff, sizeof(bits));
  EXPECT_OK(cbt_cursor_from_bitmap(bytes, NULL, &kVolume, &cursor, &error));
  cbt_bytes_free(bytes);
  extents found = read_all(cursor, 100);
  EXPECT_EQ(found.count, 1);
  EXPECT_EQ(found.lengths[0], 10);
  clear_extents(&found);
  cbt_cursor_free(cursor);
}

// --- Callbacks

typedef struct own_source {
  int mode;
  uint64_t at;
  int released;
  cbt_cursor* itself;
} own_source;

static cbt_code own_seek(void* user, uint64_t offset, cbt_error** error) {
  own_source* const it = (own_source*)user;
  (void)error;
  it->at = offset;
  return it->mode == 1 ? CBT_UNAVAILABLE : CBT_OK;
}

// Every fourth block of 10 bytes has changed.
static cbt_code own_next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                         uint64_t* count, uint64_t* covered, cbt_error** error) {
  own_source* const it = (own_source*)user;
  uint64_t made = 0;
  for (; made < room && made < 4 && it->at < 1000; it->at += 40) {
    offsets[made] = it->at;
    lengths[made++] = 10;
  }
  *count = made;
  *covered = it->at > 1000 ? 1000 : it->at;
  switch (it->mode) {
    case 2:
      *error = cbt_error_new(CBT_ABORTED, "changed", 7);
      return CBT_ABORTED;
    case 3:
      return CBT_DATA_LOSS;  // without a message
    case 4:
      return 99;  // no code
    case 5:
      *count = room + 1;
      return CBT_OK;  // more than fits
    case 6:
      lengths[1] = 100;
      return CBT_OK;  // overlaps the next
    case 7:
      offsets[0] = 5000;
      return CBT_OK;  // past the end
    case 8:
      *covered = 0;
      return CBT_OK;  // goes back
    case 9:
      *covered = 1001;
      return CBT_OK;  // more than there is
    case 10:
      lengths[0] = UINT64_MAX;
      return CBT_OK;  // wraps
    case 11:
      lengths[0] = 0;
      return CBT_OK;
    case 12:
      *error = cbt_error_new(CBT_ABORTED, "", 0);
      return CBT_OK;  // an error, and success
    case 13: {        // uses the cursor that it serves
      cbt_batch batch;
      return cbt_cursor_next(it->itself, &batch, error);
    }
    default:
      return CBT_OK;
  }
}

static void own_release(void* user) { ++((own_source*)user)->released; }

static cbt_cursor* own_cursor(own_source* it) {
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.user = it;
  callbacks.seek = own_seek;
  callbacks.next = own_next;
  callbacks.release = own_release;
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_cursor_from_callbacks(&callbacks, &kVolume, &cursor, &error));
  it->itself = cursor;
  return cursor;
}

static void callbacks_are_a_source(void) {
  own_source it = {0};
  cbt_cursor* cursor = own_cursor(&it);
  extents found = read_all(cursor, 3);
  EXPECT_EQ(found.count, 25);
  EXPECT_EQ(found.offsets[24], 960);
  clear_extents(&found);
  EXPECT_OK(cbt_cursor_seek(cursor, 500, &error));
  found = read_all(cursor, 1000);
  clear_extents(&found);
  EXPECT_OK(cbt_cursor_coalesce(cursor, 30, &cursor, &error));
  found = read_all(cursor, 1000);
  EXPECT_EQ(found.count, 1);
  EXPECT_EQ(found.lengths[0], 970);
  clear_extents(&found);
  EXPECT_EQ(it.released, 0);
  cbt_cursor_free(cursor);
  EXPECT_EQ(it.released, 1);
  // Not taken if the cursor can't be made.
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.user = &it;
  callbacks.seek = own_seek;
  callbacks.release = own_release;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "next",
               cbt_cursor_from_callbacks(&callbacks, &kVolume, &cursor, &error));
  EXPECT_EQ(it.released, 1);
}

// What a call has fetched and not returned must not be lost with a call that fails.
static void calls_that_fail_lose_no_extents(void) {
  own_source it = {0};
  uint64_t offsets[3], lengths[3];
  cbt_batch batch;
  // A seek that is refused.
  cbt_cursor* cursor = own_cursor(&it);
  EXPECT_OK(cbt_cursor_read(cursor, offsets, lengths, 3, &batch, &error));
  EXPECT(batch.count == 3 && !batch.complete);
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "", cbt_cursor_seek(cursor, 1001, &error));
  EXPECT_EQ(cbt_cursor_covered(cursor), 120);
  uint64_t rest = 0;
  do {
    EXPECT_OK(cbt_cursor_read(cursor, offsets, lengths, 3, &batch, &error));
    for (uint64_t i = 0; i < batch.count; ++i) EXPECT_EQ(offsets[i], 120 + 40 * rest++);
  } while (!batch.complete);
  EXPECT_EQ(rest, 22);
  // At the end it is still at the end.
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "", cbt_cursor_seek(cursor, 1001, &error));
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  EXPECT(batch.complete && batch.count == 0);
  // A map that can't be made has read the cursor, perhaps in part.
  EXPECT_OK(cbt_cursor_seek(cursor, 0, &error));
  EXPECT_OK(cbt_cursor_read(cursor, offsets, lengths, 3, &batch, &error));
  cbt_map* map = NULL;
  const uint64_t too_large = UINT64_C(1) << 63;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_map_from_cursor(cursor, too_large, &map, &error));
  EXPECT(map == NULL);
  EXPECT_EQ(cbt_cursor_covered(cursor), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "seek it first", cbt_cursor_next(cursor, &batch, &error));
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "seek it first",
                 cbt_cursor_read(cursor, offsets, lengths, 3, &batch, &error));
  }
  EXPECT_OK(cbt_cursor_seek(cursor, 500, &error));
  EXPECT_OK(cbt_cursor_read(cursor, offsets, lengths, 3, &batch, &error));
  EXPECT_EQ(offsets[0], 500);
  // What reads it from its beginning needs no seek.
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_map_from_cursor(cursor, too_large, &map, &error));
  EXPECT_OK(cbt_map_from_cursor(cursor, 0, &map, &error));
  cbt_map_info info = CBT_INIT(cbt_map_info);
  EXPECT_OK(cbt_map_get_info(map, &info, &error));
  EXPECT_EQ(info.blocks, 25);
  cbt_map_free(map);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_map_from_cursor(cursor, too_large, &map, &error));
  EXPECT_OK(cbt_cursor_coalesce(cursor, 0, &cursor, &error));
  extents found = read_all(cursor, 1000);
  EXPECT_EQ(found.count, 25);
  clear_extents(&found);
  // An Arrow stream has what is left, which is not known.
  EXPECT_OK(cbt_cursor_seek(cursor, 0, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_map_from_cursor(cursor, too_large, &map, &error));
  struct ArrowArrayStream stream;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "seek it first",
               cbt_cursor_export_arrow(cursor, 0, &stream, &error));
  EXPECT_EQ(it.released, 1);
}

static void callbacks_that_fail_are_no_end(void) {
  static const struct {
    int mode;
    cbt_code code;
    const char* words;
  } kCases[] = {{2, CBT_ABORTED, "changed"},
                {3, CBT_DATA_LOSS, "without a message"},
                {4, CBT_UNKNOWN, ""},
                {5, CBT_INTERNAL, "room"},
                {6, CBT_INTERNAL, "number 2"},
                {7, CBT_INTERNAL, "number 0"},
                {8, CBT_INTERNAL, ""},
                {9, CBT_INTERNAL, "1001"},
                {10, CBT_INTERNAL, "number 0"},
                {11, CBT_INTERNAL, "length 0"},
                {13, CBT_FAILED_PRECONDITION, "one at a time"}};
  for (size_t i = 0; i < sizeof(kCases) / sizeof(kCases[0]); ++i) {
    own_source it = {0};
    cbt_cursor* const cursor = own_cursor(&it);
    cbt_batch batch;
    EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
    it.mode = kCases[i].mode;
    EXPECT_FAILS(kCases[i].code, kCases[i].words, cbt_cursor_next(cursor, &batch, &error));
    EXPECT(!batch.complete && batch.count == 0);
    // It stays so until the cursor is moved.
    it.mode = 0;
    EXPECT_FAILS(kCases[i].code, kCases[i].words, cbt_cursor_next(cursor, &batch, &error));
    EXPECT_OK(cbt_cursor_seek(cursor, 0, &error));
    extents found = read_all(cursor, 3);
    EXPECT_EQ(found.count, 25);
    clear_extents(&found);
    it.mode = 1;
    EXPECT_FAILS(CBT_UNAVAILABLE, "", cbt_cursor_seek(cursor, 0, &error));
    EXPECT_FAILS(CBT_UNAVAILABLE, "", cbt_cursor_next(cursor, &batch, &error));
    cbt_cursor_free(cursor);
    EXPECT_EQ(it.released, 1);
  }
  own_source it = {.mode = 12};
  cbt_cursor* const cursor = own_cursor(&it);
  extents found = read_all(cursor, 3);
  EXPECT_EQ(found.count, 25);
  clear_extents(&found);
  cbt_cursor_free(cursor);
}

// A call that was made to wait too long returns with nothing: it is repeated.
static cbt_code read_some(cbt_cursor* cursor, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                          cbt_batch* batch, cbt_error** error) {
  for (;;) {
    const cbt_code code = cbt_cursor_read(cursor, offsets, lengths, room, batch, error);
    if (code != CBT_OK || batch->count != 0 || batch->complete) return code;
  }
}

// What was found before a failure is returned, and then the failure.
static void reading_returns_a_failure_last(void) {
  own_source it = {0};
  cbt_cursor* const cursor = own_cursor(&it);
  uint64_t offsets[100], lengths[100];
  cbt_batch batch;
  EXPECT_OK(read_some(cursor, offsets, lengths, 2, &batch, &error));
  EXPECT(batch.count == 2 && !batch.complete);
  EXPECT_EQ(batch.covered, 80);  // two more wait
  it.mode = 2;
  EXPECT_OK(read_some(cursor, offsets, lengths, 100, &batch, &error));
  EXPECT(batch.count == 2 && !batch.complete);
  EXPECT_FAILS(CBT_ABORTED, "changed", read_some(cursor, offsets, lengths, 100, &batch, &error));
  EXPECT(batch.count == 0 && !batch.complete);
  cbt_cursor_free(cursor);
}

// --- Arrow

static void an_arrow_stream_ends_only_when_complete(void) {
  for (int fails = 0; fails < 2; ++fails) {
    own_source it = {0};
    struct ArrowArrayStream stream;
    EXPECT_OK(cbt_cursor_export_arrow(own_cursor(&it), 10, &stream, &error));
    struct ArrowSchema schema;
    EXPECT_EQ(stream.get_schema(&stream, &schema), 0);
    EXPECT(strcmp(schema.format, "+s") == 0 && schema.n_children == 2);
    EXPECT(strcmp(schema.children[1]->name, "size_bytes") == 0);
    EXPECT(strcmp(schema.children[1]->format, "L") == 0);
    uint64_t rows = 0;
    struct ArrowArray kept = {0};
    for (;;) {
      struct ArrowArray array;
      const int code = stream.get_next(&stream, &array);
      if (fails && rows > 0) {
        EXPECT(code != 0 && strcmp(stream.get_last_error(&stream), "changed") == 0);
        EXPECT(stream.get_next(&stream, &array) == code);
        break;
      }
      EXPECT_EQ(code, 0);
      if (array.release == NULL) break;
      EXPECT(array.n_children == 2 && array.length <= 10 && array.null_count == 0);
      const uint64_t* const offsets = (const uint64_t*)array.children[0]->buffers[1];
      for (int64_t i = 0; i < array.length; ++i) EXPECT_EQ(offsets[i], 40 * rows++);
      if (kept.release == NULL) {
        // A column that is moved away outlives its batch and the stream.
        kept = *array.children[0];
        array.children[0]->release = NULL;
      }
      array.release(&array);
      EXPECT(array.release == NULL);
      if (fails) it.mode = 2;
    }
    if (!fails) EXPECT_EQ(rows, 25);
    stream.release(&stream);
    EXPECT(stream.release == NULL);
    EXPECT_EQ(it.released, 1);
    EXPECT_EQ(((const uint64_t*)kept.buffers[1])[1], 40);
    kept.release(&kept);
    schema.release(&schema);
  }
  struct ArrowArrayStream stream;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "rows",
               cbt_cursor_export_arrow(one_extent(0, 10), (1 << 20) + 1, &stream, &error));
}

// --- Handles that are gone. Only debug builds and fuzzers know; elsewhere this is not allowed.

#ifdef CBT_C_CHECKED
static void freed_handles_are_noticed(void) {
  cbt_cursor* cursor = one_extent(0, 10);
  cbt_cursor_free(cursor);
  cbt_batch batch;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "freed", cbt_cursor_next(cursor, &batch, &error));
  EXPECT_EQ(cbt_cursor_covered(cursor), 0);
  cbt_cursor_free(cursor);
  // Consumed, also by a call that failed.
  cursor = one_extent(0, 10);
  cbt_cursor* made = NULL;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_cursor_split(cursor, 3, &made, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "freed", cbt_cursor_next(cursor, &batch, &error));
  // Of another kind.
  cbt_bytes* bytes = NULL;
  EXPECT_OK(cbt_bytes_copy("x", 1, &bytes, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "freed",
               cbt_cursor_next((cbt_cursor*)(void*)bytes, &batch, &error));
  cbt_bytes_free(bytes);
  EXPECT_EQ(cbt_bytes_size(bytes), 0);
  EXPECT(cbt_bytes_data_borrowed(bytes) == NULL);
  cbt_bytes_free(bytes);
  cbt_client_options wanted = CBT_INIT(cbt_client_options);
  wanted.address = "unix:///none";
  wanted.snapshot = "s";
  cbt_client* client = NULL;
  EXPECT_OK(cbt_client_new(&wanted, &client, &error));
  cbt_client_free(client);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "freed", cbt_client_open(client, &made, &error));
  cbt_client_cancel(client);
  cbt_client_free(client);
  cbt_server_options options = CBT_INIT(cbt_server_options);
  options.listen = "127.0.0.1:0";
  cbt_relay_options relay = CBT_INIT(cbt_relay_options);
  relay.plugin = "unix:///none";
  cbt_server* server = NULL;
  EXPECT_OK(cbt_relay_start(&relay, &options, &server, &error));
  cbt_server_free(server);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "freed", cbt_server_shutdown(server, 0, &error));
  EXPECT(cbt_server_address_borrowed(server) == NULL);
  cbt_server_free(server);
}
#endif

// --- Threads, fork, signals

typedef struct slow_source {
  atomic_int inside;
  atomic_int leave;
} slow_source;

static cbt_code slow_seek(void* user, uint64_t offset, cbt_error** error) {
  (void)user, (void)offset, (void)error;
  return CBT_OK;
}

static cbt_code slow_next(void* user, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                          uint64_t* count, uint64_t* covered, cbt_error** error) {
  slow_source* const it = (slow_source*)user;
  (void)offsets, (void)lengths, (void)room, (void)error;
  it->inside = 1;
  while (!it->leave) usleep(100);
  *count = 0;
  *covered = 1000;
  return CBT_OK;
}

static void* read_in_thread(void* cursor) {
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next((cbt_cursor*)cursor, &batch, &error));
  EXPECT(batch.complete);
  return NULL;
}

static void overlapping_calls_are_refused(void) {
  slow_source it = {0};
  cbt_cursor_callbacks callbacks = CBT_INIT(cbt_cursor_callbacks);
  callbacks.user = &it;
  callbacks.seek = slow_seek;
  callbacks.next = slow_next;
  cbt_cursor *cursor = NULL, *other = NULL;
  EXPECT_OK(cbt_cursor_from_callbacks(&callbacks, &kVolume, &cursor, &error));
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, read_in_thread, cursor) == 0);
  while (!it.inside) usleep(100);
  cbt_batch batch;
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "one at a time", cbt_cursor_next(cursor, &batch, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "one at a time", cbt_cursor_seek(cursor, 0, &error));
  // Not consumed then.
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "one at a time",
               cbt_cursor_coalesce(cursor, 0, &other, &error));
  it.leave = 1;
  pthread_join(thread, NULL);
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  cbt_cursor_free(cursor);
}

static void a_child_may_read_on(void) {
  uint8_t bits[13];
  memset(bits, 0x55, sizeof(bits));
  cbt_bytes* bytes = NULL;
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_bytes_borrowed(bits, sizeof(bits), &bytes, &error));
  EXPECT_OK(cbt_cursor_from_bitmap(bytes, NULL, &kVolume, &cursor, &error));
  EXPECT_OK(cbt_cursor_set_batch(cursor, 8, &error));
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  const pid_t child = fork();
  EXPECT(child >= 0);
  const uint64_t first = batch.count;
  extents found = read_all(cursor, 8);
  const uint64_t all = first + found.count;
  clear_extents(&found);
  cbt_cursor_free(cursor);
  cbt_bytes_free(bytes);
  EXPECT_EQ(all, 50);
  if (child == 0) _exit(0);
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void a_tracker_refuses_a_child(void) {
  cbt_tracker_options options = CBT_INIT(cbt_tracker_options);
  options.geometry = kVolume;
  options.volume = "v";
  options.base = "monday";
  options.region_bytes = 100;
  cbt_tracker* tracker = NULL;
  EXPECT_OK(cbt_tracker_create(&options, &tracker, &error));
  const uint64_t offset = 20, length = 5;
  EXPECT_OK(cbt_tracker_mark(tracker, &offset, &length, 1, &error));
  const pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    EXPECT_FAILS(CBT_FAILED_PRECONDITION, "",
                 cbt_tracker_mark(tracker, &offset, &length, 1, &error));
    EXPECT_EQ(cbt_tracker_epochs(tracker), 0);
    cbt_tracker_free(tracker);
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT_EQ(cbt_tracker_epochs(tracker), 1);
  cbt_tracker_free(tracker);
}

static volatile sig_atomic_t ticks;
static void tick(int signal) {
  (void)signal;
  ++ticks;
}

// With a handler as Go installs one for its scheduler: often, and without SA_RESTART.
static void signals_change_nothing(const char* file) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = tick;
  sigemptyset(&action.sa_mask);
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int turn = 0; turn < 50 || ticks < 20; ++turn) {
    cbt_map_builder* builder = NULL;
    cbt_map *map = NULL, *loaded = NULL;
    EXPECT_OK(cbt_map_builder_new(&kVolume, &builder, &error));
    const uint64_t offset = 500, length = 1;
    EXPECT_OK(cbt_map_builder_add(builder, &offset, &length, 1, &error));
    EXPECT_OK(cbt_map_builder_build(builder, &map, &error));
    cbt_map_builder_free(builder);
    EXPECT_OK(cbt_map_save(map, file, 0, &error));
    EXPECT_OK(cbt_map_load(file, &loaded, &error));
    EXPECT(cbt_map_equal(map, loaded));
    cbt_map_free(map);
    cbt_map_free(loaded);
  }
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  char file[4096];
  snprintf(file, sizeof(file), "%s.%d.cbm", argv[1], (int)getpid());
  errors_have_names_and_messages();
  versions_are_those_of_the_headers();
  null_is_refused();
  structures_may_have_other_versions();
  owners_are_released_once_and_last();
  a_copy_does_not_see_later_changes();
  callbacks_are_a_source();
  calls_that_fail_lose_no_extents();
  callbacks_that_fail_are_no_end();
  reading_returns_a_failure_last();
  an_arrow_stream_ends_only_when_complete();
#ifdef CBT_C_CHECKED
  freed_handles_are_noticed();
#endif
  overlapping_calls_are_refused();
  a_child_may_read_on();
  a_tracker_refuses_a_child();
  signals_change_nothing(file);
  unlink(file);
  return 0;
}
