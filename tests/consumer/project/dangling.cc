// Forms that would leave a cursor without its bytes, one for each CASE: none of them compiles. The
// forms of CASE 0 do.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/memory.h"
#include "cbt/source/byte_stream.h"

std::vector<uint8_t> Fetch();
cbt::VolumeGeometry Geometry();

void Use() {
  const std::vector<uint8_t> kept = Fetch();
  const cbt::VolumeGeometry volume = Geometry();
#if CASE == 0
  const auto bitmap = cbt::Bitmap::Create(Fetch(), 0, 8);
  (void)cbt::MakeBitmapCursor(*bitmap, volume);
  (void)cbt::MakeBitmapCursor(*bitmap, *bitmap, cbt::BitmapOp::kXor, volume);
  const auto view = cbt::BitmapView::Create(kept, 0, 8);
  (void)cbt::MakeBorrowedBitmapCursor(*view, volume);
  (void)cbt::MakeMemoryDeltaCursor(Fetch(), Fetch());
  (void)cbt::MakeBorrowedMemoryDeltaCursor(kept, kept);
  (void)cbt::MakeChangeMapCursor(*cbt::ChangeMap::KeepPortable64(Fetch(), volume));
  (void)cbt::MakeBorrowedChangeMapCursor(*cbt::ChangeMapView::Create(kept, volume));
  (void)cbt::MakeMemoryStream(Fetch(), "bytes");
  (void)cbt::MakeMemoryStream(std::string("text"), "text");
  (void)cbt::MakeBorrowedMemoryStream(kept, "bytes");
  (void)cbt::SharedBytes(std::make_shared<int>(), kept);
#elif CASE == 1
  (void)cbt::BitmapView::Create(Fetch(), 0, 8);
#elif CASE == 2
  (void)cbt::MakeBitmapCursor(*cbt::BitmapView::Create(kept, 0, 8), volume);
#elif CASE == 3
  const auto view = cbt::BitmapView::Create(kept, 0, 8);
  (void)cbt::MakeBitmapCursor(*view, *view, cbt::BitmapOp::kXor, volume);
#elif CASE == 4
  const cbt::BitmapView& view = (*cbt::Bitmap::Create(Fetch(), 0, 8)).view();
  (void)view;
#elif CASE == 5
  (void)cbt::MakeBorrowedMemoryDeltaCursor(kept, Fetch());
#elif CASE == 6
  (void)cbt::MakeBorrowedMemoryAllocationCursor(Fetch());
#elif CASE == 7
  (void)cbt::ChangeMapView::Create(Fetch(), volume);
#elif CASE == 8
  (void)cbt::MakeChangeMapCursor(*cbt::ChangeMapView::Create(kept, volume));
#elif CASE == 9
  (void)cbt::MakeBorrowedMemoryStream(Fetch(), "bytes");
#elif CASE == 10
  (void)cbt::SharedBytes(nullptr, kept);
#elif CASE == 11
  const std::span<const uint8_t> bytes = kept;
  (void)cbt::MakeMemoryAllocationCursor(bytes);
#endif
}
