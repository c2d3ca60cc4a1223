// Snippets that need cbt::source, with stand-ins for other libraries.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "cbt/bridge/nbd_extents.h"
#include "cbt/bridge/rbd_live.h"
#include "cbt/source/btrfs_send.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/file_extents.h"
#include "cbt/source/open.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"

using rbd_image_t = void*;
int rbd_diff_iterate2(rbd_image_t image, const char* base, uint64_t offset, uint64_t length,
                      uint8_t include_parent, uint8_t whole_object, cbt::RbdDiffCallback callback,
                      void* context);

struct nbd_extent_callback {
  int (*callback)(void*, const char*, uint64_t, uint32_t*, size_t, int*);
  void* user_data;
  void (*free)(void*);
};
int nbd_block_status(void* handle, uint64_t length, uint64_t offset, nbd_extent_callback callback,
                     uint32_t flags);

using Cursor = absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>>;

absl::Status Btrfs(uint64_t size) {
  // [btrfs]
  auto stream = cbt::OpenByteStream("delta.stream");
  if (!stream.ok()) return stream.status();
  auto map = cbt::ReadBtrfsSend(**stream, {.path = "images/vm.raw", .capacity = size});
  // [/btrfs]
  return map.status();
}

absl::Status Restore(int device) {
  // [copy]
  auto base = cbt::Image::Open("monday.img");
  if (!base.ok()) return base.status();
  auto target = cbt::Image::Open("tuesday.img");
  if (!target.ok()) return target.status();
  auto delta = cbt::MakeImageDeltaCursor(*base, *target);
  if (!delta.ok()) return delta.status();
  auto input = cbt::MakeCopyInput(*target);
  auto output = cbt::MakeCopyOutput(device, "the restored volume");
  auto done = cbt::CopyRanges(**delta, *input, *output);
  // [/copy]
  return done.status();
}

Cursor Files() {
  // [reflinks]
  auto base = cbt::Image::Open("base.img");
  if (!base.ok()) return base.status();
  auto target = cbt::Image::Open("target.img");
  if (!target.ok()) return target.status();
  auto cursor = cbt::MakeReflinkDeltaCursor(*base, *target, {.compare_data = true});
  // [/reflinks]
  return cursor;
}

Cursor Qcow2() {
  // [qcow2]
  auto image = cbt::Qcow2Image::Open("/images/overlay.qcow2");
  if (!image.ok()) return image.status();
  auto cursor = cbt::MakeQcow2LayerCursor({*image, {}});
  // [/qcow2]
  return cursor;
}

// `image` is open; rbd_snap_set(image, "tuesday") says which state is the target.
Cursor Rbd(rbd_image_t image, uint64_t size_of_tuesday) {
  // [rbd]
  auto cursor = cbt::MakeRbdCursor(
      [image](uint64_t offset, uint64_t length, cbt::RbdDiffCallback callback, void* context) {
        return rbd_diff_iterate2(image, "monday", offset, length, /*include_parent=*/1,
                                 /*whole_object=*/0, callback, context);
      },
      {.capacity = size_of_tuesday});
  // [/rbd]
  return cursor;
}

absl::Status Nbd(void* handle, uint64_t offset, uint64_t length) {
  // [nbd]
  auto extents = cbt::NbdExtents::For("qemu:dirty-bitmap:b0");
  if (!extents.ok()) return extents.status();
  extents->Expect(offset, length);
  nbd_block_status(handle, length, offset, {cbt::NbdExtents::Callback, &*extents, nullptr}, 0);
  absl::StatusOr<uint64_t> known = extents->Finish();  // then extents->extents() below *known
  // [/nbd]
  return known.status();
}

absl::Status Open() {
  // [open]
  auto list = cbt::OpenSource("thin_delta.xml", {.capacity = 64 * cbt::kGiB});
  auto spec = cbt::ParseSourceSpec("nbd:bitmap=monday");
  if (!spec.ok()) return spec.status();
  auto bitmap = cbt::OpenSource("nbd+unix:///?socket=/run/q.sock", {.spec = *spec});
  auto delta = cbt::OpenDelta("monday.qcow2", "tuesday.qcow2", {});
  // [/open]
  for (const absl::Status& status : {list.status(), bitmap.status(), delta.status()}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}
