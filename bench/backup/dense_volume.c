/* A volume of any size without a disk, for nbdkit's cc plugin: `nbdkit cc dense_volume.c size=64G`.

   Each MiB repeats 4 KiB of noise of its own, so that no two are equal, and a repository of all of
   them is small. Nothing is zero. changed=N is another state of it for each N, which differs from all
   others where backups.py says: CLUSTERS of size / 500 / CLUSTERS bytes, in whole pages, each half a MiB into its share of the volume. */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>
#include <stdint.h>
#include <string.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define CLUSTERS 32
#define PAGE 4096
#define MIB ((uint64_t)1 << 20)

static int64_t size;
static unsigned changed;

static int dense_config(const char* key, const char* value) {
  if (strcmp(key, "size") == 0) {
    size = nbdkit_parse_size(value);
    return size < 0 ? -1 : 0;
  }
  if (strcmp(key, "changed") == 0) {
    return nbdkit_parse_unsigned(key, value, &changed);
  }
  nbdkit_error("unknown parameter: %s", key);
  return -1;
}

static void* dense_open(int readonly) {
  (void)readonly;
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t dense_get_size(void* handle) {
  (void)handle;
  return size;
}

static int dense_can_multi_conn(void* handle) {
  (void)handle;
  return 1;
}

static int is_changed(uint64_t at) {
  const uint64_t share = (uint64_t)size / CLUSTERS;
  const uint64_t inside = at % share;
  const uint64_t length = (uint64_t)size / 500 / CLUSTERS / PAGE * PAGE;
  return changed != 0 && at / share < CLUSTERS && inside >= MIB / 2 && inside < MIB / 2 + length;
}

/* splitmix64 */
static void fill(uint64_t seed, uint8_t* page) {
  for (size_t i = 0; i < PAGE; i += 8) {
    uint64_t word = (seed += 0x9e3779b97f4a7c15);
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    memcpy(page + i, &word, 8);
  }
}

static int dense_pread(void* handle, void* buffer, uint32_t count, uint64_t at, uint32_t flags) {
  (void)handle;
  (void)flags;
  uint8_t page[PAGE];
  uint64_t filled = UINT64_MAX;
  uint8_t* out = buffer;
  while (count > 0) {
    const uint64_t seed =
        (at / MIB << 13) + (is_changed(at / PAGE * PAGE) ? (uint64_t)changed << 48 : 0);
    if (seed != filled) fill(filled = seed, page);
    const uint32_t begin = at % PAGE;
    const uint32_t part = count < PAGE - begin ? count : PAGE - begin;
    memcpy(out, page + begin, part);
    out += part;
    at += part;
    count -= part;
  }
  return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "dense",
    .config = dense_config,
    .open = dense_open,
    .get_size = dense_get_size,
    .can_multi_conn = dense_can_multi_conn,
    .pread = dense_pread,
};

NBDKIT_REGISTER_PLUGIN(plugin)
