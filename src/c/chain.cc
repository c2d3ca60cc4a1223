#include "cbt/c/chain.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c/handles.h"
#include "cbt/change_chain.h"

struct cbt_chain : cbt::c::Handle {
  explicit cbt_chain(std::unique_ptr<cbt::ChangeChain> made)
      : Handle(&kKind<cbt_chain>), chain(std::move(made)) {
    List();
  }

  // After each change.
  void List() { snapshots = chain->snapshots(); }

  const std::unique_ptr<cbt::ChangeChain> chain;
  std::vector<cbt::ChainSnapshot> snapshots;
};

namespace cbt::c {
namespace {

absl::StatusOr<ChainOptions> ChainOptionsOf(const cbt_chain_options* given) {
  cbt_chain_options copy;
  if (absl::Status status = ReadOptions(given, "options", copy); !status.ok()) return status;
  if (copy.reserved != 0) return TooNew("options");
  return ChainOptions{.sync = copy.no_sync == 0, .name = Text(copy.name)};
}

absl::Status ReturnChain(absl::StatusOr<std::unique_ptr<ChangeChain>> made, cbt_chain** chain) {
  if (!made.ok()) return made.status();
  *chain = new cbt_chain(*std::move(made));
  return absl::OkStatus();
}

// INT64_MIN stands for "not known" in manifests too.
std::optional<int64_t> TimeOf(int64_t time) {
  if (time == std::numeric_limits<int64_t>::min()) return std::nullopt;
  return time;
}

absl::Status CreateChain(const char* directory, const char* volume, const char* first_id,
                         const cbt_geometry* geometry, std::optional<int64_t> time,
                         const cbt_chain_options* options, cbt_chain** chain) {
  if (chain == nullptr) return IsNull("chain");
  *chain = nullptr;
  if (directory == nullptr) return IsNull("directory");
  if (first_id == nullptr) return IsNull("first_id");
  if (geometry == nullptr) return IsNull("geometry");
  const absl::StatusOr<ChainOptions> how = ChainOptionsOf(options);
  if (!how.ok()) return how.status();
  return ReturnChain(
      ChangeChain::Create(directory, Text(volume), geometry->granularity,
                          {.id = first_id, .capacity = geometry->capacity, .time = time}, *how),
      chain);
}

absl::Status AppendToChain(cbt_chain* chain, const cbt_map* map, std::optional<int64_t> time) {
  if (absl::Status status = Check(chain, "chain"); !status.ok()) return status;
  if (absl::Status status = Check(map, "map"); !status.ok()) return status;
  const absl::Status status = chain->chain->Append(map->map, time);
  // A change that failed only while being synced may be there.
  chain->List();
  return status;
}

}  // namespace
}  // namespace cbt::c

cbt_code cbt_chain_create(const char* directory, const char* volume, const char* first_id,
                          const cbt_geometry* geometry, const cbt_chain_options* options,
                          cbt_chain** chain, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&] {
    return cbt::c::CreateChain(directory, volume, first_id, geometry, std::nullopt, options, chain);
  });
}

cbt_code cbt_chain_create_at(const char* directory, const char* volume, const char* first_id,
                             const cbt_geometry* geometry, int64_t time,
                             const cbt_chain_options* options, cbt_chain** chain,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&] {
    return cbt::c::CreateChain(directory, volume, first_id, geometry, cbt::c::TimeOf(time), options,
                               chain);
  });
}

cbt_code cbt_chain_open(const char* directory, int32_t access, const cbt_chain_options* options,
                        cbt_chain** chain, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (chain == nullptr) return cbt::c::IsNull("chain");
    *chain = nullptr;
    if (directory == nullptr) return cbt::c::IsNull("directory");
    if (access != CBT_READ && access != CBT_CHANGE) {
      return absl::InvalidArgumentError("access: expected CBT_READ or CBT_CHANGE");
    }
    const absl::StatusOr<cbt::ChainOptions> how = cbt::c::ChainOptionsOf(options);
    if (!how.ok()) return how.status();
    return cbt::c::ReturnChain(
        cbt::ChangeChain::Open(directory,
                               access == CBT_CHANGE ? cbt::ChangeChain::Access::kChange
                                                    : cbt::ChangeChain::Access::kRead,
                               *how),
        chain);
  });
}

uint64_t cbt_chain_count(const cbt_chain* chain) noexcept {
  return cbt::c::Usable(chain) ? chain->snapshots.size() : 0;
}

cbt_code cbt_chain_snapshot_borrowed(const cbt_chain* chain, uint64_t index, const char** id,
                                     uint64_t* capacity, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(chain, "chain"); !status.ok()) return status;
    if (id == nullptr) return cbt::c::IsNull("id");
    *id = nullptr;
    if (index >= chain->snapshots.size()) {
      return absl::OutOfRangeError("index: the chain has no such snapshot");
    }
    *id = chain->snapshots[index].id.c_str();
    if (capacity != nullptr) *capacity = chain->snapshots[index].capacity;
    return absl::OkStatus();
  });
}

cbt_code cbt_chain_snapshot_time(const cbt_chain* chain, uint64_t index, int32_t* known,
                                 int64_t* time, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (known == nullptr || time == nullptr) return cbt::c::IsNull("known and time");
    *known = 0;
    *time = 0;
    if (absl::Status status = cbt::c::Check(chain, "chain"); !status.ok()) return status;
    if (index >= chain->snapshots.size()) {
      return absl::OutOfRangeError("index: the chain has no such snapshot");
    }
    const std::optional<int64_t>& taken = chain->snapshots[index].time;
    *known = taken.has_value() ? 1 : 0;
    *time = taken.value_or(0);
    return absl::OkStatus();
  });
}

cbt_code cbt_chain_append(cbt_chain* chain, const cbt_map* map, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&] { return cbt::c::AppendToChain(chain, map, std::nullopt); });
}

cbt_code cbt_chain_append_at(cbt_chain* chain, const cbt_map* map, int64_t time,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error,
                          [&] { return cbt::c::AppendToChain(chain, map, cbt::c::TimeOf(time)); });
}

cbt_code cbt_chain_remove(cbt_chain* chain, const char* id, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(chain, "chain"); !status.ok()) return status;
    if (id == nullptr) return cbt::c::IsNull("id");
    const absl::Status status = chain->chain->Remove(id);
    chain->List();
    return status;
  });
}

cbt_code cbt_chain_delta(const cbt_chain* chain, const char* base, const char* target,
                         cbt_cursor** cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (absl::Status status = cbt::c::Check(chain, "chain"); !status.ok()) return status;
    if (base == nullptr || target == nullptr) return cbt::c::IsNull("base and target");
    return cbt::c::Return(chain->chain->Delta(base, target), cursor);
  });
}

cbt_code cbt_chain_verify(const cbt_chain* chain, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(chain, "chain"); !status.ok()) return status;
    return chain->chain->Verify();
  });
}

void cbt_chain_free(cbt_chain* chain) noexcept { cbt::c::Free(chain); }
