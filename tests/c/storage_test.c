// Maps, chains, trackers and sources: the calls of each group on real files.
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const cbt_geometry kVolume = {1 << 20, 4096};
static char directory[4096];

static const char* path_of(const char* name) {
  static char path[5000];
  snprintf(path, sizeof(path), "%s/%s", directory, name);
  return path;
}

static cbt_map* map_of(const uint64_t* offsets, uint64_t count) {
  cbt_map_builder* builder = NULL;
  cbt_map* map = NULL;
  EXPECT_OK(cbt_map_builder_new(&kVolume, &builder, &error));
  const uint64_t one = 1;
  for (uint64_t i = 0; i < count; ++i) {
    EXPECT_OK(cbt_map_builder_add(builder, &offsets[i], &one, 1, &error));
  }
  EXPECT_OK(cbt_map_builder_build(builder, &map, &error));
  cbt_map_builder_free(builder);
  return map;
}

static void expect_blocks(const cbt_map* map, const uint64_t* blocks, uint64_t count) {
  cbt_map_info info = CBT_INIT(cbt_map_info);
  EXPECT_OK(cbt_map_get_info(map, &info, &error));
  EXPECT_EQ(info.blocks, count);
  for (uint64_t i = 0; i < count; ++i) EXPECT(cbt_map_contains(map, blocks[i]));
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_cursor_from_map(map, &cursor, &error));
  extents found = read_all(cursor, 100);
  EXPECT_EQ(found.count, info.runs);
  clear_extents(&found);
  cbt_cursor_free(cursor);
}

static void maps(void) {
  const uint64_t a_offsets[] = {0, 5000, 500000}, b_offsets[] = {5001, 900000};
  cbt_map* const a = map_of(a_offsets, 3);
  cbt_map* const b = map_of(b_offsets, 2);
  cbt_map* result = NULL;
  const cbt_map* const both[] = {a, b};
  EXPECT_OK(cbt_map_union(both, 2, &result, &error));
  expect_blocks(result, (const uint64_t[]){0, 1, 122, 219}, 4);
  cbt_map_free(result);
  EXPECT_OK(cbt_map_intersection(a, b, &result, &error));
  expect_blocks(result, (const uint64_t[]){1}, 1);
  cbt_map_free(result);
  EXPECT_OK(cbt_map_difference(a, b, &result, &error));
  expect_blocks(result, (const uint64_t[]){0, 122}, 2);
  cbt_map_free(result);
  EXPECT_OK(cbt_map_symmetric_difference(a, b, &result, &error));
  expect_blocks(result, (const uint64_t[]){0, 122, 219}, 3);
  cbt_map_free(result);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "", cbt_map_union(both, 0, &result, &error));
  // Everything past the old end counts as changed.
  const cbt_geometry larger = {(1 << 20) + 65536, 65536};
  EXPECT_OK(cbt_map_with_geometry(a, &larger, &result, &error));
  expect_blocks(result, (const uint64_t[]){0, 7, 16}, 3);
  cbt_map_free(result);
  // Files, bytes, and the portable form.
  EXPECT_OK(cbt_map_set_identity(a, "vol", "monday", "tuesday", &error));
  EXPECT_OK(cbt_map_save(a, path_of("a.cbm"), 1, &error));
  cbt_map* loaded = NULL;
  EXPECT_OK(cbt_map_load(path_of("a.cbm"), &loaded, &error));
  EXPECT(cbt_map_equal(a, loaded) && !cbt_map_equal(a, b));
  EXPECT(strcmp(cbt_map_name_borrowed(loaded, CBT_NAME_TARGET), "tuesday") == 0);
  EXPECT(strcmp(cbt_map_name_borrowed(loaded, 3), "") == 0);
  cbt_bytes* bytes = NULL;
  EXPECT_OK(cbt_map_encode(a, &bytes, &error));
  cbt_map* decoded = NULL;
  EXPECT_OK(
      cbt_map_decode(cbt_bytes_data_borrowed(bytes), cbt_bytes_size(bytes), &decoded, &error));
  EXPECT(cbt_map_equal(a, decoded));
  cbt_map_free(decoded);
  EXPECT_FAILS(
      CBT_DATA_LOSS, "",
      cbt_map_decode(cbt_bytes_data_borrowed(bytes), cbt_bytes_size(bytes) - 1, &decoded, &error));
  cbt_bytes_free(bytes);
  for (int32_t bits = 32; bits <= 64; bits += 32) {
    EXPECT_OK(cbt_map_to_portable(a, bits, &bytes, &error));
    EXPECT_OK(cbt_map_from_portable(bytes, bits, &kVolume, &decoded, &error));
    cbt_bytes_free(bytes);
    EXPECT(cbt_map_equal(a, decoded));
    cbt_map_free(decoded);
  }
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "bits", cbt_map_to_portable(a, 16, &bytes, &error));
  EXPECT_FAILS(CBT_NOT_FOUND, "none.cbm", cbt_map_load(path_of("none.cbm"), &decoded, &error));
  // From a cursor, which is then at its end.
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_cursor_from_map(loaded, &cursor, &error));
  cbt_map_free(loaded);
  EXPECT_OK(cbt_map_from_cursor(cursor, 0, &decoded, &error));
  EXPECT(cbt_map_equal(a, decoded));
  cbt_batch batch;
  EXPECT_OK(cbt_cursor_next(cursor, &batch, &error));
  EXPECT(batch.complete && batch.count == 0);
  cbt_cursor_free(cursor);
  cbt_map_free(decoded);
  // A builder refuses what is past the end, and goes on.
  cbt_map_builder* builder = NULL;
  EXPECT_OK(cbt_map_builder_new(&kVolume, &builder, &error));
  const uint64_t past = 1 << 20, one = 1;
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "", cbt_map_builder_add(builder, &past, &one, 1, &error));
  EXPECT_OK(cbt_map_builder_build(builder, &decoded, &error));
  expect_blocks(decoded, NULL, 0);
  cbt_map_free(decoded);
  cbt_map_builder_free(builder);
  cbt_map_free(a);
  cbt_map_free(b);
}

static void append(cbt_chain* chain, uint64_t offset, const char* base, const char* target) {
  cbt_map* const map = map_of(&offset, 1);
  EXPECT_OK(cbt_map_set_identity(map, "vol", base, target, &error));
  EXPECT_OK(cbt_chain_append(chain, map, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_chain_append(chain, map, &error));
  cbt_map_free(map);
}

static void chains(void) {
  cbt_chain_options options = CBT_INIT(cbt_chain_options);
  options.no_sync = 1;
  options.name = "the chain";
  cbt_chain *chain = NULL, *reader = NULL;
  char folder[5000];
  snprintf(folder, sizeof(folder), "%s", path_of("chain"));
  EXPECT_FAILS(CBT_NOT_FOUND, "the chain",
               cbt_chain_open(folder, CBT_READ, &options, &chain, &error));
  EXPECT_OK(cbt_chain_create(folder, "vol", "monday", &kVolume, &options, &chain, &error));
  append(chain, 0, "monday", "tuesday");
  append(chain, 100000, "tuesday", "wednesday");
  EXPECT_EQ(cbt_chain_count(chain), 3);
  const char* id = NULL;
  uint64_t capacity = 0;
  EXPECT_OK(cbt_chain_snapshot_borrowed(chain, 2, &id, &capacity, &error));
  EXPECT(strcmp(id, "wednesday") == 0 && capacity == kVolume.capacity);
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "index", cbt_chain_snapshot_borrowed(chain, 3, &id, NULL, &error));
  EXPECT_FAILS(CBT_UNAVAILABLE, "", cbt_chain_open(folder, CBT_CHANGE, &options, &reader, &error));
  EXPECT_OK(cbt_chain_open(folder, CBT_READ, NULL, &reader, &error));
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_chain_delta(reader, "monday", "wednesday", &cursor, &error));
  cbt_chain_free(reader);
  extents found = read_all(cursor, 10);
  EXPECT_EQ(found.count, 2);
  clear_extents(&found);
  cbt_cursor_free(cursor);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "",
               cbt_chain_delta(chain, "wednesday", "monday", &cursor, &error));
  EXPECT_FAILS(CBT_NOT_FOUND, "friday",
               cbt_chain_delta(chain, "friday", "monday", &cursor, &error));
  EXPECT_OK(cbt_chain_verify(chain, &error));
  EXPECT_OK(cbt_chain_remove(chain, "tuesday", &error));
  EXPECT_EQ(cbt_chain_count(chain), 2);
  cbt_chain_free(chain);
}

static void expect_time(const cbt_chain* chain, uint64_t index, int32_t known, int64_t time) {
  int32_t found_known = 7;
  int64_t found = 7;
  EXPECT_OK(cbt_chain_snapshot_time(chain, index, &found_known, &found, &error));
  EXPECT_EQ(found_known, known);
  EXPECT(found == time);
}

static void chain_times(void) {
  cbt_chain *chain = NULL, *reader = NULL;
  char folder[5000];
  snprintf(folder, sizeof(folder), "%s", path_of("times"));
  EXPECT_OK(cbt_chain_create_at(folder, "vol", "monday", &kVolume, -1, NULL, &chain, &error));
  const uint64_t offset = 0;
  cbt_map* const map = map_of(&offset, 1);
  EXPECT_OK(cbt_map_set_identity(map, "vol", "monday", "tuesday", &error));
  const int64_t time = INT64_C(1764201600000000007);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "chain", cbt_chain_append_at(NULL, map, time, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "map", cbt_chain_append_at(chain, NULL, time, &error));
  EXPECT_OK(cbt_chain_append_at(chain, map, time, &error));
  EXPECT_OK(cbt_map_set_identity(map, "vol", "tuesday", "wednesday", &error));
  EXPECT_OK(cbt_chain_append_at(chain, map, INT64_MIN, &error));
  append(chain, 0, "wednesday", "thursday");
  expect_time(chain, 1, 1, time);
  expect_time(chain, 2, 0, 0);
  EXPECT_OK(cbt_chain_open(folder, CBT_READ, NULL, &reader, &error));
  expect_time(reader, 0, 1, -1);
  expect_time(reader, 1, 1, time);
  expect_time(reader, 2, 0, 0);
  expect_time(reader, 3, 0, 0);
  int32_t known = 7;
  int64_t found = 7;
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "index",
               cbt_chain_snapshot_time(reader, 4, &known, &found, &error));
  EXPECT(known == 0 && found == 0);
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "time",
               cbt_chain_snapshot_time(reader, 0, &known, NULL, &error));
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "time",
               cbt_chain_snapshot_time(reader, 0, NULL, &found, &error));
  cbt_map_free(map);
  cbt_chain_free(reader);
  cbt_chain_free(chain);
}

static void trackers(void) {
  cbt_tracker_options options = CBT_INIT(cbt_tracker_options);
  options.geometry = kVolume;
  options.volume = "vol";
  options.base = "monday";
  char folder[5000];
  snprintf(folder, sizeof(folder), "%s", path_of("tracker"));
  options.directory = folder;
  options.region_bytes = 65536;
  cbt_tracker* tracker = NULL;
  EXPECT_FAILS(CBT_NOT_FOUND, "", cbt_tracker_recover(&options, &tracker, &error));
  EXPECT_OK(cbt_tracker_create(&options, &tracker, &error));
  cbt_write write;
  EXPECT_OK(cbt_tracker_begin(tracker, 4095, 2, &write, &error));
  cbt_write moved = write;
  cbt_write_end(&moved);
  EXPECT(moved.opaque[0] == 0 && moved.opaque[1] == 0);
  cbt_write_end(&moved);
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "", cbt_tracker_begin(tracker, 1 << 20, 1, &write, &error));
  EXPECT(write.opaque[0] == 0);
  EXPECT_OK(cbt_tracker_checkpoint(tracker, &error));
  EXPECT_OK(cbt_tracker_open_epoch(tracker, "tuesday", &error));
  const uint64_t offsets[] = {200000, 300000}, lengths[] = {1, 4096};
  EXPECT_OK(cbt_tracker_mark(tracker, offsets, lengths, 2, &error));
  EXPECT_EQ(cbt_tracker_epochs(tracker), 2);
  cbt_map *map = NULL, *again = NULL;
  EXPECT_OK(cbt_tracker_close_epoch(tracker, &map, &error));
  expect_blocks(map, (const uint64_t[]){0, 1, 48, 73, 74}, 5);
  EXPECT(strcmp(cbt_map_name_borrowed(map, CBT_NAME_BASE), "monday") == 0);
  cbt_epoch epoch = CBT_INIT(cbt_epoch);
  EXPECT_OK(cbt_tracker_epoch(tracker, 0, &epoch, &error));
  EXPECT(epoch.closed && epoch.exact);
  EXPECT_FAILS(CBT_OUT_OF_RANGE, "index", cbt_tracker_epoch(tracker, 2, &epoch, &error));
  cbt_bytes* name = NULL;
  EXPECT_OK(cbt_tracker_epoch_base(tracker, 1, &name, &error));
  EXPECT(cbt_bytes_size(name) == 7 && memcmp(cbt_bytes_data_borrowed(name), "tuesday", 7) == 0);
  cbt_bytes_free(name);
  EXPECT_OK(cbt_tracker_close(tracker, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_tracker_open_epoch(tracker, "x", &error));
  cbt_tracker_free(tracker);
  // After a restart the same map again, until it is acknowledged.
  EXPECT_OK(cbt_tracker_recover(&options, &tracker, &error));
  EXPECT_OK(cbt_tracker_close_epoch(tracker, &again, &error));
  EXPECT(cbt_map_equal(map, again));
  EXPECT_OK(cbt_tracker_acknowledge(tracker, again, &error));
  EXPECT_FAILS(CBT_FAILED_PRECONDITION, "", cbt_tracker_acknowledge(tracker, again, &error));
  cbt_map_free(again);
  EXPECT_EQ(cbt_tracker_epochs(tracker), 1);
  EXPECT_OK(cbt_tracker_changes(tracker, &again, &error));
  expect_blocks(again, (const uint64_t[]){48, 73, 74}, 3);
  cbt_map_free(again);
  EXPECT_OK(cbt_tracker_open_epoch(tracker, "wednesday", &error));
  EXPECT_OK(cbt_tracker_cancel_epoch(tracker, &error));
  cbt_map_free(map);
  cbt_tracker_free(tracker);
}

static void write_image(const char* path, uint64_t changed) {
  FILE* const file = fopen(path, "wb");
  EXPECT(file != NULL);
  uint8_t block[4096];
  for (uint64_t i = 0; i < 16; ++i) {
    memset(block, i == changed ? 0xee : (int)i + 1, sizeof(block));
    EXPECT(fwrite(block, 1, sizeof(block), file) == sizeof(block));
  }
  EXPECT(fclose(file) == 0);
}

static void sources(void) {
  char base[5000], target[5000];
  snprintf(base, sizeof(base), "%s", path_of("base.img"));
  snprintf(target, sizeof(target), "%s", path_of("target.img"));
  write_image(base, 99);
  write_image(target, 5);
  cbt_source_options options = CBT_INIT(cbt_source_options);
  options.base = base;
  options.format = "image";
  cbt_cursor* cursor = NULL;
  EXPECT_OK(cbt_source_open(target, &options, &cursor, &error));
  extents found = read_all(cursor, 10);
  EXPECT(found.count == 1 && found.offsets[0] == 5 * 4096 && found.lengths[0] == 4096);
  clear_extents(&found);
  cbt_cursor_free(cursor);
  options.format = "no-such-format";
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "no-such-format",
               cbt_source_open(target, &options, &cursor, &error));
  options = (cbt_source_options)CBT_INIT(cbt_source_options);
  options.format = "cbm";
  EXPECT_OK(cbt_source_open(path_of("a.cbm"), &options, &cursor, &error));
  found = read_all(cursor, 10);
  EXPECT_EQ(found.count, 2);
  clear_extents(&found);
  cbt_cursor_free(cursor);
  options.purpose = 7;
  EXPECT_FAILS(CBT_INVALID_ARGUMENT, "purpose",
               cbt_source_open(path_of("a.cbm"), &options, &cursor, &error));
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  snprintf(directory, sizeof(directory), "%s.XXXXXX", argv[1]);
  EXPECT(mkdtemp(directory) != NULL);
  maps();
  chains();
  chain_times();
  trackers();
  sources();
  char command[5000];
  snprintf(command, sizeof(command), "rm -r '%s'", directory);
  return system(command) == 0 ? 0 : 1;
}
