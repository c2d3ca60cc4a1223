// Runs the table of cases that every binding runs; make_cases.py says what its lines mean.
#include "check.h"

enum { MOST_LINE = 1 << 16, MOST_TRANSFORMS = 8, MOST_STREAMS = 8, MOST_MESSAGES = 512 };

typedef struct bytes {
  uint8_t* data;
  uint64_t size;
} bytes;

typedef struct transform {
  char name[32];
  uint64_t numbers[2];
} transform;

typedef struct stream {
  uint64_t start, most, block;
  bytes messages[MOST_MESSAGES];
  uint64_t count;
} stream;

typedef struct test_case {
  char name[64];
  cbt_geometry geometry;
  bytes bitmap, base, target;
  int32_t operation;
  cbt_bitmap_layout layout;
  extents list, other, expected;
  transform transforms[MOST_TRANSFORMS];
  uint64_t transform_count;
  uint64_t seek;
  char error[32];
  stream streams[MOST_STREAMS];
  uint64_t stream_count;
} test_case;

static bytes from_hex(const char* text) {
  bytes found = {(uint8_t*)malloc(strlen(text) / 2 + 1), strlen(text) / 2};
  EXPECT(found.data != NULL);
  for (uint64_t i = 0; i < found.size; ++i) {
    unsigned value = 0;
    EXPECT(sscanf(text + 2 * i, "%2x", &value) == 1);
    found.data[i] = (uint8_t)value;
  }
  return found;
}

static extents from_text(char* text) {
  extents found = {0};
  for (char* word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
    char* plus = NULL;
    const uint64_t offset = strtoull(word, &plus, 10);
    EXPECT(*plus == '+');
    add_extent(&found, offset, strtoull(plus + 1, NULL, 10));
  }
  return found;
}

static int32_t operation_of(const char* name) {
  static const char* const names[] = {"xor", "and_not", "or", "and"};
  for (int32_t i = 0; i < 4; ++i) {
    if (strcmp(name, names[i]) == 0) return i;
  }
  FAIL("operation %s", name);
}

// The first cursor of a case.
static cbt_code make_input(const test_case* test, cbt_cursor** cursor, cbt_error** error) {
  if (test->base.data != NULL) {
    cbt_bytes *base = NULL, *target = NULL;
    EXPECT(cbt_bytes_copy(test->base.data, test->base.size, &base, error) == CBT_OK);
    EXPECT(cbt_bytes_borrowed(test->target.data, test->target.size, &target, error) == CBT_OK);
    const cbt_code code = cbt_cursor_from_bitmaps(base, target, test->operation, &test->layout,
                                                  &test->geometry, cursor, error);
    cbt_bytes_free(base);
    cbt_bytes_free(target);
    return code;
  }
  if (test->bitmap.data != NULL) {
    cbt_bytes* bits = NULL;
    EXPECT(cbt_bytes_copy(test->bitmap.data, test->bitmap.size, &bits, error) == CBT_OK);
    const cbt_code code =
        cbt_cursor_from_bitmap(bits, &test->layout, &test->geometry, cursor, error);
    cbt_bytes_free(bits);
    return code;
  }
  return cbt_cursor_from_extents(test->list.offsets, test->list.lengths, test->list.count,
                                 &test->geometry, cursor, error);
}

static cbt_code apply(const test_case* test, const transform* how, cbt_cursor* input,
                      cbt_cursor** cursor, cbt_error** error) {
  const uint64_t* const n = how->numbers;
  if (strcmp(how->name, "coalesce") == 0) return cbt_cursor_coalesce(input, n[0], cursor, error);
  if (strcmp(how->name, "split") == 0) return cbt_cursor_split(input, n[0], cursor, error);
  if (strcmp(how->name, "align_outward") == 0) {
    return cbt_cursor_align_outward(input, n[0], cursor, error);
  }
  if (strcmp(how->name, "clip") == 0) return cbt_cursor_clip(input, n[0], n[1], cursor, error);
  if (strcmp(how->name, "to_blocks") == 0) return cbt_cursor_to_blocks(input, n[0], cursor, error);
  cbt_cursor* other = NULL;
  EXPECT(cbt_cursor_from_extents(test->other.offsets, test->other.lengths, test->other.count,
                                 &test->geometry, &other, error) == CBT_OK);
  if (strcmp(how->name, "union") == 0) {
    cbt_cursor* both[] = {input, other};
    return cbt_cursor_union(both, 2, cursor, error);
  }
  if (strcmp(how->name, "intersect") == 0) return cbt_cursor_intersect(input, other, cursor, error);
  if (strcmp(how->name, "subtract") == 0) return cbt_cursor_subtract(input, other, cursor, error);
  FAIL("transform %s", how->name);
}

static cbt_code make_cursor(const test_case* test, cbt_cursor** cursor, cbt_error** error) {
  cbt_code code = make_input(test, cursor, error);
  for (uint64_t i = 0; i < test->transform_count && code == CBT_OK; ++i) {
    code = apply(test, &test->transforms[i], *cursor, cursor, error);
  }
  return code;
}

typedef struct provider {
  const test_case* test;
  uint64_t block;
} provider;

static cbt_code open_case(void* user, const cbt_request* request, cbt_answer* answer,
                          cbt_error** error) {
  const provider* const it = (const provider*)user;
  EXPECT(strcmp(cbt_request_target_borrowed(request, NULL), "snap") == 0);
  EXPECT(cbt_request_base_borrowed(request, NULL) == NULL);
  cbt_cursor* cursor = NULL;
  cbt_code code = make_cursor(it->test, &cursor, error);
  if (code == CBT_OK) code = cbt_answer_set_cursor(answer, cursor, error);
  if (code == CBT_OK && it->block != 0) code = cbt_answer_set_blocks(answer, it->block, error);
  return code;
}

static uint64_t put_varint(uint8_t* out, uint64_t value) {
  uint64_t size = 0;
  for (; value >= 128; value /= 128) out[size++] = (uint8_t)(value % 128 + 128);
  out[size++] = (uint8_t)value;
  return size;
}

// GetMetadataAllocatedRequest
static uint64_t request_of(const stream* it, uint8_t* out) {
  uint64_t size = 0;
  memcpy(out, "\x0a\x04snap", 6);
  size += 6;
  out[size++] = 2 * 8;
  size += put_varint(out + size, it->start);
  out[size++] = 3 * 8;
  size += put_varint(out + size, it->most);
  return size;
}

static void run_stream(const test_case* test, const stream* it) {
  provider user = {test, it->block};
  cbt_provider callbacks = CBT_INIT(cbt_provider);
  callbacks.user = &user;
  callbacks.open = open_case;
  cbt_service* service = NULL;
  EXPECT_OK(cbt_service_new(&callbacks, NULL, &service, &error));
  uint8_t request[64];
  cbt_stream* sent = NULL;
  EXPECT_OK(cbt_stream_open(service, "/csi.v1.SnapshotMetadata/GetMetadataAllocated", request,
                            request_of(it, request), NULL, &sent, &error));
  cbt_service_free(service);
  cbt_checker_options rules = CBT_INIT(cbt_checker_options);
  rules.starting_offset = it->start;
  rules.max_results = (uint32_t)it->most;
  rules.require_proof = 1;
  cbt_checker* checker = NULL;
  EXPECT_OK(cbt_checker_new(&rules, &checker, &error));
  cbt_message message;
  for (uint64_t i = 0;; ++i) {
    EXPECT_OK(cbt_stream_next(sent, &message, &error));
    if (message.state == CBT_STREAM_END) {
      EXPECT_EQ(i, it->count);
      break;
    }
    EXPECT_EQ(message.state, CBT_STREAM_MESSAGE);
    EXPECT(i < it->count);
    if (message.size != it->messages[i].size ||
        memcmp(message.data, it->messages[i].data, message.size) != 0) {
      FAIL("%s: stream from %" PRIu64 ": message %" PRIu64 " differs", test->name, it->start, i);
    }
    cbt_tuples tuples;
    EXPECT_OK(cbt_checker_message(checker, message.data, message.size, &tuples, &error));
    EXPECT_EQ(tuples.count, message.tuples);
    EXPECT_EQ(tuples.capacity, test->geometry.capacity);
  }
  const cbt_metadata* trailing = NULL;
  uint64_t count = 0;
  EXPECT_OK(cbt_stream_metadata_borrowed(sent, CBT_TRAILING, &trailing, &count, &error));
  int32_t proof = 0;
  EXPECT_OK(cbt_checker_finish(checker, trailing, count, &proof, &error));
  EXPECT_EQ(proof, CBT_PROOF_HOLDS);
  cbt_checker_free(checker);
  cbt_stream_free(sent);
}

static void run(const test_case* test) {
  cbt_cursor* cursor = NULL;
  cbt_error* error = NULL;
  const cbt_code code = make_cursor(test, &cursor, &error);
  if (test->error[0] != '\0') {
    if (strcmp(cbt_code_name(code), test->error) != 0) {
      FAIL("%s: %s, expected %s", test->name, cbt_code_name(code), test->error);
    }
    EXPECT(cursor == NULL && cbt_error_message_borrowed(error)[0] != '\0');
    cbt_error_free(error);
    return;
  }
  if (code != CBT_OK) FAIL("%s: %s", test->name, cbt_error_message_borrowed(error));
  for (uint64_t batch = 1; batch <= 1024; batch *= 4) {
    EXPECT_OK(cbt_cursor_seek(cursor, test->seek, &error));
    extents found = read_all(cursor, batch);
    expect_same(test->name, &found, &test->expected);
    clear_extents(&found);
  }
  // Into our own memory, mixed with batches of the cursor's.
  EXPECT_OK(cbt_cursor_set_batch(cursor, 7, &error));
  EXPECT_OK(cbt_cursor_seek(cursor, test->seek, &error));
  extents found = {0};
  uint64_t offsets[3], lengths[3];
  cbt_batch some;
  int turn = 0;
  do {
    if (++turn % 3 == 0) {
      EXPECT_OK(cbt_cursor_next(cursor, &some, &error));
    } else {
      EXPECT_OK(cbt_cursor_read(cursor, offsets, lengths, 3, &some, &error));
      EXPECT(some.offsets == offsets && some.count <= 3);
    }
    for (uint64_t i = 0; i < some.count; ++i) add_extent(&found, some.offsets[i], some.lengths[i]);
    EXPECT(some.complete || some.covered <= test->geometry.capacity);
  } while (!some.complete);
  expect_same(test->name, &found, &test->expected);
  clear_extents(&found);
  cbt_cursor_free(cursor);
  for (uint64_t i = 0; i < test->stream_count; ++i) run_stream(test, &test->streams[i]);
}

static void clear(test_case* test) {
  free(test->bitmap.data);
  free(test->base.data);
  free(test->target.data);
  clear_extents(&test->list);
  clear_extents(&test->other);
  clear_extents(&test->expected);
  for (uint64_t i = 0; i < test->stream_count; ++i) {
    for (uint64_t k = 0; k < test->streams[i].count; ++k) free(test->streams[i].messages[k].data);
  }
  memset(test, 0, sizeof(*test));
}

static void read_line(test_case* test, char* key, char* rest) {
  if (strcmp(key, "case") == 0) {
    EXPECT(strlen(rest) < sizeof(test->name));
    strcpy(test->name, rest);
    test->layout.struct_size = sizeof(test->layout);
  } else if (strcmp(key, "geometry") == 0) {
    EXPECT(sscanf(rest, "%" SCNu64 " %" SCNu64, &test->geometry.capacity,
                  &test->geometry.granularity) == 2);
  } else if (strcmp(key, "bitmap") == 0) {
    test->bitmap = from_hex(rest);
  } else if (strcmp(key, "base") == 0) {
    test->base = from_hex(rest);
  } else if (strcmp(key, "target") == 0) {
    test->target = from_hex(rest);
  } else if (strcmp(key, "layout") == 0) {
    EXPECT(sscanf(rest, "%" SCNu64 " %" SCNd32 " %" SCNd32 " %" SCNu32, &test->layout.first_bit,
                  &test->layout.most_significant_first, &test->layout.inverted,
                  &test->layout.reversed_word_bytes) == 4);
  } else if (strcmp(key, "operation") == 0) {
    test->operation = operation_of(rest);
  } else if (strcmp(key, "extents") == 0) {
    test->list = from_text(rest);
  } else if (strcmp(key, "other") == 0) {
    test->other = from_text(rest);
  } else if (strcmp(key, "expect") == 0) {
    test->expected = from_text(rest);
  } else if (strcmp(key, "transform") == 0) {
    EXPECT(test->transform_count < MOST_TRANSFORMS);
    transform* const it = &test->transforms[test->transform_count++];
    EXPECT(sscanf(rest, "%31s %" SCNu64 " %" SCNu64, it->name, &it->numbers[0], &it->numbers[1]) >=
           1);
  } else if (strcmp(key, "seek") == 0) {
    test->seek = strtoull(rest, NULL, 10);
  } else if (strcmp(key, "error") == 0) {
    EXPECT(strlen(rest) < sizeof(test->error));
    strcpy(test->error, rest);
  } else if (strcmp(key, "stream") == 0) {
    EXPECT(test->stream_count < MOST_STREAMS);
    stream* const it = &test->streams[test->stream_count++];
    EXPECT(sscanf(rest, "%" SCNu64 " %" SCNu64 " %" SCNu64, &it->start, &it->most, &it->block) ==
           3);
  } else if (strcmp(key, "message") == 0) {
    stream* const it = &test->streams[test->stream_count - 1];
    EXPECT(it->count < MOST_MESSAGES);
    it->messages[it->count++] = from_hex(rest);
  } else {
    FAIL("line '%s' is not known", key);
  }
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  FILE* const table = fopen(argv[1], "r");
  if (table == NULL) FAIL("%s can't be opened", argv[1]);
  static char line[MOST_LINE];
  static test_case test;
  uint64_t cases = 0;
  while (fgets(line, sizeof(line), table) != NULL) {
    char* const end = strchr(line, '\n');
    EXPECT(end != NULL);
    *end = '\0';
    if (line[0] == '#') continue;
    if (strcmp(line, "end") == 0) {
      run(&test);
      clear(&test);
      ++cases;
      continue;
    }
    char* rest = strchr(line, ' ');
    if (rest != NULL) *rest++ = '\0';
    static char nothing[1];
    read_line(&test, line, rest == NULL ? nothing : rest);
  }
  fclose(table);
  EXPECT(cases > 100);
  printf("%" PRIu64 " cases\n", cases);
  return 0;
}
