// Checks of the C tests: a failed one ends the program and says where.
#ifndef CBT_TESTS_C_CHECK_H_
#define CBT_TESTS_C_CHECK_H_

#include <cbt/c/cbt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                   \
  do {                                              \
    fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
    fprintf(stderr, __VA_ARGS__);                   \
    fputc('\n', stderr);                            \
    exit(1);                                        \
  } while (0)

#define EXPECT(condition)                     \
  do {                                        \
    if (!(condition)) FAIL("%s", #condition); \
  } while (0)

#define EXPECT_EQ(a, b)                                                             \
  do {                                                                              \
    const uint64_t a_ = (uint64_t)(a), b_ = (uint64_t)(b);                          \
    if (a_ != b_) FAIL("%s is %" PRIu64 ", expected %s, %" PRIu64, #a, a_, #b, b_); \
  } while (0)

// `call` uses `error`, which is declared here.
#define EXPECT_OK(call)                                                                   \
  do {                                                                                    \
    cbt_error* error = NULL;                                                              \
    const cbt_code code_ = (call);                                                        \
    if (code_ != CBT_OK) {                                                                \
      FAIL("%s: %s: %s", #call, cbt_code_name(code_), cbt_error_message_borrowed(error)); \
    }                                                                                     \
    EXPECT(error == NULL);                                                                \
  } while (0)

// Fails with this code, the same one in the error, and a message that has `words` in it.
#define EXPECT_FAILS(expected, words, call)                                     \
  do {                                                                          \
    cbt_error* error = NULL;                                                    \
    const cbt_code code_ = (call);                                              \
    if (code_ != (expected)) {                                                  \
      FAIL("%s: %s: %s; expected %s", #call, cbt_code_name(code_),              \
           cbt_error_message_borrowed(error), cbt_code_name(expected));         \
    }                                                                           \
    EXPECT(error != NULL);                                                      \
    EXPECT_EQ(cbt_error_code(error), code_);                                    \
    if (strstr(cbt_error_message_borrowed(error), words) == NULL) {             \
      FAIL("%s: the message is: %s", #call, cbt_error_message_borrowed(error)); \
    }                                                                           \
    cbt_error_free(error);                                                      \
  } while (0)

typedef struct extents {
  uint64_t* offsets;
  uint64_t* lengths;
  uint64_t count;
  uint64_t room;
} extents;

static inline void add_extent(extents* list, uint64_t offset, uint64_t length) {
  if (list->count == list->room) {
    list->room = list->room == 0 ? 16 : 2 * list->room;
    list->offsets = (uint64_t*)realloc(list->offsets, list->room * sizeof(uint64_t));
    list->lengths = (uint64_t*)realloc(list->lengths, list->room * sizeof(uint64_t));
    EXPECT(list->offsets != NULL && list->lengths != NULL);
  }
  list->offsets[list->count] = offset;
  list->lengths[list->count++] = length;
}

static inline void clear_extents(extents* list) {
  free(list->offsets);
  free(list->lengths);
  memset(list, 0, sizeof(*list));
}

static inline void expect_same(const char* name, const extents* a, const extents* b) {
  if (a->count != b->count)
    FAIL("%s: %" PRIu64 " extents, expected %" PRIu64, name, a->count, b->count);
  for (uint64_t i = 0; i < a->count; ++i) {
    if (a->offsets[i] != b->offsets[i] || a->lengths[i] != b->lengths[i]) {
      FAIL("%s: extent %" PRIu64 " is %" PRIu64 "+%" PRIu64 ", expected %" PRIu64 "+%" PRIu64, name,
           i, a->offsets[i], a->lengths[i], b->offsets[i], b->lengths[i]);
    }
  }
}

// Everything that the cursor has to say, in batches of at most `batch`.
static inline extents read_all(cbt_cursor* cursor, uint64_t batch) {
  extents found = {0};
  EXPECT_OK(cbt_cursor_set_batch(cursor, batch, &error));
  cbt_batch some;
  uint64_t covered = cbt_cursor_covered(cursor);
  do {
    EXPECT_OK(cbt_cursor_next(cursor, &some, &error));
    EXPECT(some.count <= batch && some.covered >= covered);
    covered = some.covered;
    for (uint64_t i = 0; i < some.count; ++i) add_extent(&found, some.offsets[i], some.lengths[i]);
  } while (!some.complete);
  EXPECT_EQ(covered, cbt_cursor_geometry(cursor).capacity);
  return found;
}

#endif  // CBT_TESTS_C_CHECK_H_
