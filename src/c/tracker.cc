#include "cbt/c/tracker.h"

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "c/handles.h"
#include "cbt/change_tracker.h"

struct cbt_tracker : cbt::c::Handle {
  explicit cbt_tracker(std::unique_ptr<cbt::ChangeTracker> made)
      : Handle(&kKind<cbt_tracker>), tracker(std::move(made)) {}
  const std::unique_ptr<cbt::ChangeTracker> tracker;
};

namespace cbt::c {
namespace {

// A write lies in the caller's memory, and may be moved there like bytes.
static_assert(sizeof(TrackedWrite) == sizeof(cbt_write));
static_assert(alignof(TrackedWrite) <= alignof(cbt_write));

absl::Status OpenTracker(const cbt_tracker_options* options, bool recover, cbt_tracker** tracker) {
  if (tracker == nullptr) return IsNull("tracker");
  *tracker = nullptr;
  if (options == nullptr) return IsNull("options");
  cbt_tracker_options copy;
  if (absl::Status status = ReadOptions(options, "options", copy); !status.ok()) return status;
  TrackerOptions how = {
      .geometry = {.capacity = copy.geometry.capacity, .granularity = copy.geometry.granularity},
      .volume = Text(copy.volume),
      .base = Text(copy.base),
      .directory = Text(copy.directory)};
  if (copy.region_bytes != 0) how.region_bytes = copy.region_bytes;
  absl::StatusOr<std::unique_ptr<ChangeTracker>> made =
      recover ? ChangeTracker::Recover(how) : ChangeTracker::Create(how);
  if (!made.ok()) return made.status();
  *tracker = new cbt_tracker(*std::move(made));
  return absl::OkStatus();
}

absl::StatusOr<ChangeTracker::Epoch> EpochAt(const cbt_tracker* tracker, uint64_t index) {
  if (absl::Status status = Check(tracker, "tracker"); !status.ok()) return status;
  std::vector<ChangeTracker::Epoch> epochs = tracker->tracker->epochs();
  if (index >= epochs.size()) {
    return absl::OutOfRangeError("index: the tracker has no such epoch");
  }
  return std::move(epochs[index]);
}

// For calls on a tracker that return nothing else.
template <typename Call>
cbt_code OnTracker(cbt_tracker* tracker, cbt_error** error, const Call& call) noexcept {
  return AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = Check(tracker, "tracker"); !status.ok()) return status;
    return call(*tracker->tracker);
  });
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_tracker_create(const cbt_tracker_options* options, cbt_tracker** tracker,
                            cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&] { return cbt::c::OpenTracker(options, false, tracker); });
}

cbt_code cbt_tracker_recover(const cbt_tracker_options* options, cbt_tracker** tracker,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&] { return cbt::c::OpenTracker(options, true, tracker); });
}

cbt_code cbt_tracker_begin(cbt_tracker* tracker, uint64_t offset, uint64_t length, cbt_write* write,
                           cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (write == nullptr) return cbt::c::IsNull("write");
    *write = cbt_write{};
    if (absl::Status status = cbt::c::Check(tracker, "tracker"); !status.ok()) return status;
    absl::StatusOr<cbt::TrackedWrite> begun = tracker->tracker->Begin({offset, length});
    if (!begun.ok()) return begun.status();
    new (write) cbt::TrackedWrite(*std::move(begun));
    return absl::OkStatus();
  });
}

void cbt_write_end(cbt_write* write) noexcept {
  if (write == nullptr) return;
  static constexpr cbt_write kNone = {};
  if (std::memcmp(write, &kNone, sizeof(kNone)) == 0) return;
  std::launder(reinterpret_cast<cbt::TrackedWrite*>(write))->~TrackedWrite();
  *write = cbt_write{};
}

cbt_code cbt_tracker_mark(cbt_tracker* tracker, const uint64_t* offsets, const uint64_t* lengths,
                          uint64_t count, cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error, [&](cbt::ChangeTracker& tracked) -> absl::Status {
    if (count != 0 && (offsets == nullptr || lengths == nullptr)) {
      return cbt::c::IsNull("offsets and lengths");
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (absl::Status status = tracked.Mark({offsets[i], lengths[i]}); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  });
}

cbt_code cbt_tracker_open_epoch(cbt_tracker* tracker, const char* name,
                                cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error, [&](cbt::ChangeTracker& tracked) -> absl::Status {
    if (name == nullptr) return cbt::c::IsNull("name");
    return tracked.OpenEpoch(name);
  });
}

cbt_code cbt_tracker_close_epoch(cbt_tracker* tracker, cbt_map** map, cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error, [&](cbt::ChangeTracker& tracked) -> absl::Status {
    if (map == nullptr) return cbt::c::IsNull("map");
    *map = nullptr;
    return cbt::c::Return(tracked.CloseEpoch(), map);
  });
}

cbt_code cbt_tracker_acknowledge(cbt_tracker* tracker, const cbt_map* map,
                                 cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error, [&](cbt::ChangeTracker& tracked) -> absl::Status {
    if (absl::Status status = cbt::c::Check(map, "map"); !status.ok()) return status;
    return tracked.Acknowledge(map->map.identity());
  });
}

cbt_code cbt_tracker_cancel_epoch(cbt_tracker* tracker, cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error,
                           [](cbt::ChangeTracker& tracked) { return tracked.CancelEpoch(); });
}

cbt_code cbt_tracker_changes(const cbt_tracker* tracker, cbt_map** map,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (map == nullptr) return cbt::c::IsNull("map");
    *map = nullptr;
    if (absl::Status status = cbt::c::Check(tracker, "tracker"); !status.ok()) return status;
    return cbt::c::Return(tracker->tracker->Changes(), map);
  });
}

uint64_t cbt_tracker_epochs(const cbt_tracker* tracker) noexcept {
  uint64_t count = 0;
  cbt::c::AtBorder(nullptr, [&]() -> absl::Status {
    if (cbt::c::Usable(tracker)) count = tracker->tracker->epochs().size();
    return absl::OkStatus();
  });
  return count;
}

cbt_code cbt_tracker_epoch(const cbt_tracker* tracker, uint64_t index, cbt_epoch* epoch,
                           cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    const absl::StatusOr<cbt::ChangeTracker::Epoch> found = cbt::c::EpochAt(tracker, index);
    if (!found.ok()) return found.status();
    if (epoch == nullptr) return cbt::c::IsNull("epoch");
    const cbt_epoch result = {
        .struct_size = 0, .closed = found->closed ? 1 : 0, .exact = found->exact ? 1 : 0};
    return cbt::c::WriteResult(result, "epoch", epoch);
  });
}

cbt_code cbt_tracker_epoch_base(const cbt_tracker* tracker, uint64_t index, cbt_bytes** name,
                                cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (name == nullptr) return cbt::c::IsNull("name");
    *name = nullptr;
    absl::StatusOr<cbt::ChangeTracker::Epoch> found = cbt::c::EpochAt(tracker, index);
    if (!found.ok()) return found.status();
    *name = new cbt_bytes(std::move(found->base));
    return absl::OkStatus();
  });
}

cbt_code cbt_tracker_checkpoint(cbt_tracker* tracker, cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error,
                           [](cbt::ChangeTracker& tracked) { return tracked.Checkpoint(); });
}

cbt_code cbt_tracker_close(cbt_tracker* tracker, cbt_error** error) noexcept {
  return cbt::c::OnTracker(tracker, error,
                           [](cbt::ChangeTracker& tracked) { return tracked.Close(); });
}

void cbt_tracker_free(cbt_tracker* tracker) noexcept { cbt::c::Free(tracker); }
