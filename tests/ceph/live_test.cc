// Runs cbt/bridge/rbd_live.h on a real librbd and prints the result as `rbd diff` prints its JSON:
// live_test IMAGE BASE TARGET WHOLE_OBJECT, where BASE may be "-".
#include <rados/librados.h>
#include <rbd/librbd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cbt/bridge/rbd_live.h"
#include "cbt/units.h"

namespace live_test {

void Check(int result, const char* what) {
  if (result >= 0) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(-result));
  std::exit(2);
}

}  // namespace live_test

int main(int, char** argv) {
  rados_t cluster = nullptr;
  rados_ioctx_t pool = nullptr;
  rbd_image_t image = nullptr;
  Check(rados_create(&cluster, nullptr), "create");
  Check(rados_conf_read_file(cluster, std::getenv("CEPH_CONF")), "configuration");
  Check(rados_connect(cluster), "connect");
  Check(rados_ioctx_create(cluster, "rbd", &pool), "pool");
  Check(rbd_open_read_only(pool, argv[1], &image, argv[3]), "open");
  uint64_t size = 0;
  uint64_t object_size = 0;
  rbd_image_info_t info;
  Check(rbd_get_size(image, &size), "size");
  Check(rbd_stat(image, &info, sizeof(info)), "stat");
  object_size = info.obj_size;
  const char* const base = std::strcmp(argv[2], "-") == 0 ? nullptr : argv[2];
  const int whole = std::atoi(argv[4]);
  auto cursor = cbt::MakeRbdCursor(
      [image, base, whole](uint64_t offset, uint64_t length, cbt::RbdDiffCallback callback,
                           void* context) {
        return rbd_diff_iterate2(image, base, offset, length, 1, static_cast<uint8_t>(whole),
                                 callback, context);
      },
      {.capacity = size, .granularity = whole != 0 ? object_size : 1, .window = 10 * kMiB});
  if (!cursor.ok()) return 1;
  const char* separator = "[";
  const absl::Status status =
      cbt::ForEachBatch(**cursor, [&separator](const cbt::ExtentBatch& batch) {
        for (size_t i = 0; i < batch.size(); ++i) {
          std::printf("%s{\"offset\":%llu,\"length\":%llu,\"exists\":\"true\"}", separator,
                      static_cast<unsigned long long>(batch[i].offset),
                      static_cast<unsigned long long>(batch[i].length));
          separator = ",\n";
        }
        return absl::OkStatus();
      });
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  std::printf("%s]\n", *separator == '[' ? "[" : "");
  rbd_close(image);
  rados_ioctx_destroy(pool);
  rados_shutdown(cluster);
  return 0;
}
