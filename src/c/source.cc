#include <chrono>
#include <utility>

#include "c/handles.h"
#include "cbt/source/open.h"

namespace cbt::c {
namespace {

// The greatest limit that no clock overflows with: a year.
constexpr uint64_t kMaxMilliseconds = uint64_t{366} * 24 * 3600 * 1000;

absl::StatusOr<SourceOptions> OptionsOf(const cbt_source_options& given) {
  SourceOptions options;
  if (given.format != nullptr) {
    absl::StatusOr<SourceSpec> spec = ParseSourceSpec(given.format);
    if (!spec.ok()) return spec.status();
    options.spec = *std::move(spec);
  }
  switch (given.purpose) {
    case CBT_PURPOSE_ANY:
      break;
    case CBT_PURPOSE_ALLOCATED:
      options.purpose = SourcePurpose::kAllocated;
      break;
    case CBT_PURPOSE_DELTA:
      options.purpose = SourcePurpose::kDelta;
      break;
    default:
      return absl::InvalidArgumentError("options: unknown purpose");
  }
  if (given.capacity != 0) options.capacity = given.capacity;
  if (given.base_capacity != 0) options.base_capacity = given.base_capacity;
  if (given.block_size == CBT_SOURCE_BLOCKS) {
    options.block_size = 0;
  } else if (given.block_size != 0) {
    options.block_size = given.block_size;
  }
  if (given.time_limit_ms > kMaxMilliseconds) {
    return absl::InvalidArgumentError("options: time_limit_ms is over a year");
  }
  if (given.time_limit_ms != 0) {
    options.time_limit = std::chrono::milliseconds(given.time_limit_ms);
  }
  options.by_extents = given.by_extents != 0;
  return options;
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_source_open(const char* address, const cbt_source_options* options,
                         cbt_cursor** cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (address == nullptr) return cbt::c::IsNull("address");
    cbt_source_options copy;
    if (absl::Status status = cbt::c::ReadOptions(options, "options", copy); !status.ok()) {
      return status;
    }
    const absl::StatusOr<cbt::SourceOptions> how = cbt::c::OptionsOf(copy);
    if (!how.ok()) return how.status();
    absl::StatusOr<cbt::OpenedSource> opened = copy.base == nullptr
                                                   ? cbt::OpenSource(address, *how)
                                                   : cbt::OpenDelta(copy.base, address, *how);
    if (!opened.ok()) return opened.status();
    return cbt::c::Return(std::move(opened->cursor), cursor);
  });
}
