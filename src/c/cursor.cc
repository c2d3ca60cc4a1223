#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "c/handles.h"
#include "cbt/bitmap.h"
#include "cbt/memory.h"

namespace cbt::c {
namespace {

constexpr uint64_t kMaxExtents = uint64_t{1} << 20;
constexpr std::chrono::milliseconds kReadTime{10};
constexpr uint64_t kDefaultBlock = 4096;

// `covered` counts what waits in the batch as not returned.
cbt_batch State(const cbt_cursor& handle) {
  cbt_batch batch = {};
  if (handle.adrift) return batch;
  const bool waiting = handle.waiting() != 0;
  batch.covered = waiting ? handle.batch->offsets()[handle.taken] : handle.cursor->covered();
  batch.complete = handle.complete && !waiting ? 1 : 0;
  return batch;
}

// Fetches the next batch into the handle.
absl::Status Fetch(cbt_cursor& handle) {
  if (handle.adrift) return IsAdrift("cursor");
  if (!handle.batch.has_value()) handle.batch.emplace(handle.batch_capacity);
  handle.taken = 0;
  handle.complete = false;
  try {
    absl::StatusOr<Step> step = handle.cursor->Next(*handle.batch);
    if (!step.ok()) {
      handle.batch->clear();
      return step.status();
    }
    handle.complete = *step == Step::kComplete;
  } catch (...) {
    handle.batch->clear();
    throw;
  }
  return absl::OkStatus();
}

absl::StatusOr<VolumeGeometry> GeometryOf(const cbt_geometry* geometry) {
  if (geometry == nullptr) return IsNull("geometry");
  const VolumeGeometry checked = {.capacity = geometry->capacity,
                                  .granularity = geometry->granularity};
  if (absl::Status status = CheckGeometry(checked); !status.ok()) return status;
  return checked;
}

// The bitmap of a volume in the caller's layout.
absl::StatusOr<Bitmap> BitmapOf(const cbt_bytes* bits, std::string_view name,
                                const cbt_bitmap_layout* layout, const VolumeGeometry& geometry) {
  if (absl::Status status = Check(bits, name); !status.ok()) return status;
  cbt_bitmap_layout how;
  if (absl::Status status = ReadOptions(layout, "layout", how); !status.ok()) return status;
  if (how.reversed_word_bytes > 8) {
    return absl::InvalidArgumentError("layout: reversed_word_bytes is not 1, 2, 4 or 8");
  }
  if (how.reserved != 0) return TooNew("layout");
  BitmapFormat format;
  if (how.most_significant_first != 0) {
    format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
  }
  format.inverted = how.inverted != 0;
  if (how.reversed_word_bytes != 0) {
    format.reversed_word_bytes = static_cast<uint8_t>(how.reversed_word_bytes);
  }
  return Bitmap::Create(bits->bytes, how.first_bit, BlockCount(geometry), format);
}

// The caller's own source. What it answers is checked before the base class sees it: that only
// looks at the ends of a batch.
class CallbackCursor final : public ExtentCursor {
 public:
  CallbackCursor(const cbt_cursor_callbacks& callbacks, const VolumeGeometry& geometry) noexcept
      : ExtentCursor(geometry), callbacks_(callbacks) {}
  ~CallbackCursor() override {
    if (owns_) Release(callbacks_.release, callbacks_.user);
  }
  CallbackCursor(const CallbackCursor&) = delete;
  CallbackCursor& operator=(const CallbackCursor&) = delete;

  // From here on the cursor calls `release`.
  void Own() noexcept { owns_ = true; }

 protected:
  absl::Status DoSeek(uint64_t offset) override {
    cbt_error* error = nullptr;
    const cbt_code code = callbacks_.seek(callbacks_.user, offset, &error);
    return FromCallback(code, error);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    uint64_t count = 0;
    uint64_t covered = this->covered();
    cbt_error* error = nullptr;
    const cbt_code code =
        callbacks_.next(callbacks_.user, batch.mutable_offsets(), batch.mutable_lengths(),
                        batch.capacity(), &count, &covered, &error);
    if (absl::Status status = FromCallback(code, error); !status.ok()) return status;
    if (count > batch.capacity()) {
      return absl::InternalError(absl::StrCat("the callback returned ", count,
                                              " extents into room for ", batch.capacity()));
    }
    batch.set_size(static_cast<size_t>(count));
    if (absl::Status status = CheckExtents(batch, covered); !status.ok()) {
      batch.clear();
      return status;
    }
    return covered;
  }

 private:
  absl::Status CheckExtents(const ExtentBatch& batch, uint64_t end) const {
    if (end > capacity()) {
      return absl::InternalError(
          absl::StrCat("the callback covered ", end, " bytes of a volume of ", capacity()));
    }
    const std::span<const uint64_t> offsets = batch.offsets();
    const std::span<const uint64_t> lengths = batch.lengths();
    uint64_t from = covered();
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < from || lengths[i] == 0 || offsets[i] > end ||
          lengths[i] > end - offsets[i]) {
        return absl::InternalError(absl::StrCat(
            "the callback returned an invalid extent, number ", i, " of its answer: offset ",
            offsets[i], ", length ", lengths[i], "; expected one within [", from, ", ", end, ")"));
      }
      from = offsets[i] + lengths[i];
    }
    return absl::OkStatus();
  }

  const cbt_cursor_callbacks callbacks_;
  bool owns_ = false;
};

}  // namespace

absl::Status Return(absl::StatusOr<std::unique_ptr<ExtentCursor>> made, cbt_cursor** cursor,
                    Proofs proofs) {
  if (!made.ok()) return made.status();
  *cursor = new cbt_cursor(*std::move(made), std::move(proofs));
  return absl::OkStatus();
}

absl::Status IsAdrift(std::string_view name) {
  return absl::FailedPreconditionError(absl::StrCat(
      AbslView(name), ": a change map of it failed, which has read a part of it; seek it first"));
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> Consume(cbt_cursor* handle, std::string_view name,
                                                      Proofs& proofs) {
  if (absl::Status status = Check(handle, name); !status.ok()) return status;
  std::unique_ptr<ExtentCursor> taken;
  {
    const Exclusive::Use use(*handle);
    if (!use) return IsBusy(name);
    proofs.insert(proofs.end(), handle->proofs.begin(), handle->proofs.end());
    taken = std::move(handle->cursor);
  }
  delete handle;
  return taken;
}

}  // namespace cbt::c

cbt_code cbt_cursor_next(cbt_cursor* cursor, cbt_batch* batch, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (batch == nullptr) return cbt::c::IsNull("batch");
    *batch = cbt_batch{};
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*cursor);
    if (!use) return cbt::c::IsBusy("cursor");
    if (cursor->waiting() == 0) {
      if (absl::Status status = cbt::c::Fetch(*cursor); !status.ok()) return status;
    }
    const size_t from = cursor->taken;
    cursor->taken = cursor->batch->size();
    *batch = cbt::c::State(*cursor);
    batch->offsets = cursor->batch->offsets().data() + from;
    batch->lengths = cursor->batch->lengths().data() + from;
    batch->count = cursor->batch->size() - from;
    return absl::OkStatus();
  });
}

cbt_code cbt_cursor_read(cbt_cursor* cursor, uint64_t* offsets, uint64_t* lengths, uint64_t room,
                         cbt_batch* batch, cbt_error** error) noexcept {
  using Clock = std::chrono::steady_clock;
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (batch == nullptr) return cbt::c::IsNull("batch");
    *batch = cbt_batch{};
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    if (offsets == nullptr || lengths == nullptr) return cbt::c::IsNull("offsets and lengths");
    if (room == 0) return absl::InvalidArgumentError("room: expected at least 1");
    const cbt::c::Exclusive::Use use(*cursor);
    if (!use) return cbt::c::IsBusy("cursor");
    uint64_t count = 0;
    const Clock::time_point until = Clock::now() + cbt::c::kReadTime;
    for (;;) {
      const auto some = static_cast<size_t>(std::min<uint64_t>(room - count, cursor->waiting()));
      if (some != 0) {
        std::memcpy(offsets + count, cursor->batch->offsets().data() + cursor->taken,
                    some * sizeof(uint64_t));
        std::memcpy(lengths + count, cursor->batch->lengths().data() + cursor->taken,
                    some * sizeof(uint64_t));
        cursor->taken += some;
        count += some;
      }
      if (count == room || (cursor->complete && cursor->waiting() == 0)) break;
      if (Clock::now() >= until) break;
      if (absl::Status status = cbt::c::Fetch(*cursor); !status.ok()) {
        // The cursor repeats the error at the next call.
        if (count != 0) break;
        return status;
      }
    }
    *batch = cbt::c::State(*cursor);
    batch->offsets = offsets;
    batch->lengths = lengths;
    batch->count = count;
    return absl::OkStatus();
  });
}

cbt_code cbt_cursor_set_batch(cbt_cursor* cursor, uint64_t extents, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    if (extents == 0 || extents > cbt::c::kMaxExtents) {
      return absl::InvalidArgumentError("extents: expected 1 to 2^20");
    }
    const cbt::c::Exclusive::Use use(*cursor);
    if (!use) return cbt::c::IsBusy("cursor");
    if (cursor->waiting() != 0) {
      return absl::FailedPreconditionError(
          "cursor: extents wait in its batch; set the size before reading");
    }
    cursor->batch.reset();
    cursor->taken = 0;
    cursor->batch_capacity = static_cast<size_t>(extents);
    return absl::OkStatus();
  });
}

cbt_code cbt_cursor_seek(cbt_cursor* cursor, uint64_t offset, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(cursor, "cursor"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*cursor);
    if (!use) return cbt::c::IsBusy("cursor");
    // Refused, it stays where it is, with what waits.
    if (offset > cursor->cursor->capacity()) return cursor->cursor->Seek(offset);
    if (cursor->batch.has_value()) cursor->batch->clear();
    cursor->taken = 0;
    cursor->complete = false;
    absl::Status status = cursor->cursor->Seek(offset);
    if (status.ok()) cursor->adrift = false;
    return status;
  });
}

uint64_t cbt_cursor_covered(const cbt_cursor* cursor) noexcept {
  return cbt::c::Usable(cursor) ? cbt::c::State(*cursor).covered : 0;
}

cbt_geometry cbt_cursor_geometry(const cbt_cursor* cursor) noexcept {
  if (!cbt::c::Usable(cursor)) return {};
  return {.capacity = cursor->cursor->capacity(), .granularity = cursor->cursor->granularity()};
}

void cbt_cursor_free(cbt_cursor* cursor) noexcept { cbt::c::Free(cursor); }

cbt_code cbt_cursor_from_bitmap(const cbt_bytes* bits, const cbt_bitmap_layout* layout,
                                const cbt_geometry* geometry, cbt_cursor** cursor,
                                cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    const auto volume = cbt::c::GeometryOf(geometry);
    if (!volume.ok()) return volume.status();
    const auto bitmap = cbt::c::BitmapOf(bits, "bits", layout, *volume);
    if (!bitmap.ok()) return bitmap.status();
    return cbt::c::Return(cbt::MakeBitmapCursor(*bitmap, *volume), cursor);
  });
}

cbt_code cbt_cursor_from_bitmaps(const cbt_bytes* base, const cbt_bytes* target, int32_t operation,
                                 const cbt_bitmap_layout* layout, const cbt_geometry* geometry,
                                 cbt_cursor** cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    cbt::BitmapOp op = cbt::BitmapOp::kXor;
    switch (operation) {
      case CBT_XOR:
        break;
      case CBT_AND_NOT:
        op = cbt::BitmapOp::kAndNot;
        break;
      case CBT_OR:
        op = cbt::BitmapOp::kOr;
        break;
      case CBT_AND:
        op = cbt::BitmapOp::kAnd;
        break;
      default:
        return absl::InvalidArgumentError("operation: unknown");
    }
    const auto volume = cbt::c::GeometryOf(geometry);
    if (!volume.ok()) return volume.status();
    const auto first = cbt::c::BitmapOf(base, "base", layout, *volume);
    if (!first.ok()) return first.status();
    const auto second = cbt::c::BitmapOf(target, "target", layout, *volume);
    if (!second.ok()) return second.status();
    return cbt::c::Return(cbt::MakeBitmapCursor(*first, *second, op, *volume), cursor);
  });
}

cbt_code cbt_cursor_from_extents(const uint64_t* offsets, const uint64_t* lengths, uint64_t count,
                                 const cbt_geometry* geometry, cbt_cursor** cursor,
                                 cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (count != 0 && (offsets == nullptr || lengths == nullptr)) {
      return cbt::c::IsNull("offsets and lengths");
    }
    const auto volume = cbt::c::GeometryOf(geometry);
    if (!volume.ok()) return volume.status();
    std::vector<cbt::Extent> extents(static_cast<size_t>(count));
    for (size_t i = 0; i < extents.size(); ++i) extents[i] = {offsets[i], lengths[i]};
    return cbt::c::Return(cbt::MakeExtentCursor(std::move(extents), *volume), cursor);
  });
}

cbt_code cbt_cursor_from_memory_delta(const cbt_bytes* base, const cbt_bytes* target,
                                      uint64_t block_size, cbt_cursor** cursor,
                                      cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (absl::Status status = cbt::c::Check(base, "base"); !status.ok()) return status;
    if (absl::Status status = cbt::c::Check(target, "target"); !status.ok()) return status;
    return cbt::c::Return(cbt::MakeMemoryDeltaCursor(
                              base->bytes, target->bytes,
                              {.block_size = block_size == 0 ? cbt::c::kDefaultBlock : block_size}),
                          cursor);
  });
}

cbt_code cbt_cursor_from_memory(const cbt_bytes* memory, uint64_t block_size, cbt_cursor** cursor,
                                cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (absl::Status status = cbt::c::Check(memory, "memory"); !status.ok()) return status;
    return cbt::c::Return(
        cbt::MakeMemoryAllocationCursor(
            memory->bytes, {.block_size = block_size == 0 ? cbt::c::kDefaultBlock : block_size}),
        cursor);
  });
}

cbt_code cbt_cursor_from_callbacks(const cbt_cursor_callbacks* callbacks,
                                   const cbt_geometry* geometry, cbt_cursor** cursor,
                                   cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (callbacks == nullptr) return cbt::c::IsNull("callbacks");
    cbt_cursor_callbacks copy;
    if (absl::Status status = cbt::c::ReadOptions(callbacks, "callbacks", copy); !status.ok()) {
      return status;
    }
    if (copy.seek == nullptr || copy.next == nullptr) return cbt::c::IsNull("seek and next");
    const auto volume = cbt::c::GeometryOf(geometry);
    if (!volume.ok()) return volume.status();
    auto made = std::make_unique<cbt::c::CallbackCursor>(copy, *volume);
    cbt::c::CallbackCursor& owner = *made;
    if (absl::Status status = cbt::c::Return(std::move(made), cursor); !status.ok()) return status;
    owner.Own();
    return absl::OkStatus();
  });
}
