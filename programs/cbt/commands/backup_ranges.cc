#include "programs/cbt/commands/backup_ranges.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/rpc/client.h"
#include "cbt/source/image.h"
#include "cbt/units.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

class DataRanges : public backup::RangeSource {
 public:
  explicit DataRanges(AllocatedFunction allocated) : allocated_(std::move(allocated)) {}

  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string&) override {
    return absl::FailedPreconditionError("neither --from-service nor --delta was given");
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() override { return allocated_(); }

 private:
  const AllocatedFunction allocated_;
};

class MapRanges final : public DataRanges {
 public:
  // `base`: the handle from which the map's changes start.
  MapRanges(AllocatedFunction allocated, ChangeMap map, std::string base)
      : DataRanges(std::move(allocated)), map_(std::move(map)), base_(std::move(base)) {}

  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base) override {
    if (base != base_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the changes are those since ", base_, ", and not since ", base));
    }
    return MakeChangeMapCursor(map_);
  }

 private:
  const ChangeMap map_;
  const std::string base_;
};

class ServiceRanges final : public backup::RangeSource {
 public:
  ServiceRanges(const RangeArguments& arguments, uint64_t capacity, std::string name)
      : arguments_(arguments), capacity_(capacity), name_(std::move(name)) {}

  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base) override {
    RemoteArguments remote = arguments_.remote;
    (remote.in_kube() ? remote.kube.base_handle : remote.base) = base;
    return Open(remote);
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() override {
    return Open(arguments_.remote);
  }

 private:
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Open(const RemoteArguments& remote) const {
    absl::StatusOr<rpc::ListRequest> request = RemoteRequest(remote, name_);
    if (!request.ok()) return request.status();
    request->require_proof = arguments_.prove;
    // A service that reports nothing may leave it out.
    if (!request->capacity.has_value()) request->capacity = capacity_;
    return rpc::RemoteCursor::Open(*request);
  }

  const RangeArguments& arguments_;
  const uint64_t capacity_;
  const std::string name_;
};

absl::StatusOr<Ranges> OpenMap(const RangeArguments& arguments, AllocatedFunction allocated) {
  Ranges ranges{.source = nullptr, .handle = arguments.handle};
  absl::StatusOr<ChangeMap> map;
  if (arguments.delta.size() == 2) {
    const absl::StatusOr<std::shared_ptr<const Image>> base = Image::Open(arguments.delta[0]);
    if (!base.ok()) return base.status();
    const absl::StatusOr<std::shared_ptr<const Image>> target = Image::Open(arguments.delta[1]);
    if (!target.ok()) return target.status();
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
        MakeImageDeltaCursor(*base, *target, {.block_size = kMiB});
    if (!cursor.ok()) return cursor.status();
    map = ChangeMap::FromCursor(**cursor);
  } else {
    MapInput input = arguments.map_input;
    input.purpose = SourcePurpose::kDelta;
    absl::StatusOr<AnyMap> read = ReadAnyMap(arguments.delta[0], input);
    if (!read.ok()) return read.status();
    map = std::move(read->map);
  }
  if (!map.ok()) return map.status();
  const ChangeMapIdentity& names = map->identity();
  std::string base = arguments.delta_base;
  if (base.empty()) base = names.base;
  if (base.empty()) {
    return UsageError("--delta-base",
                      "the input does not say since when: give the handle of that snapshot");
  }
  if (!names.base.empty() && base != names.base) {
    return UsageError("--delta-base", "the input says what changed since " + names.base);
  }
  if (!ranges.handle.has_value() && !names.target.empty()) ranges.handle = names.target;
  ranges.source =
      std::make_unique<MapRanges>(std::move(allocated), *std::move(map), std::move(base));
  return ranges;
}

absl::StatusOr<Ranges> OpenService(const RangeArguments& arguments, uint64_t capacity,
                                   const std::string& name) {
  Ranges ranges{.source = std::make_unique<ServiceRanges>(arguments, capacity, name),
                .handle = arguments.handle};
  RemoteArguments remote = arguments.remote;
  if (remote.in_kube()) {
    // A base is found by its name, and this snapshot's handle by asking for it as its own base.
    const absl::StatusOr<SnapshotName> snapshot = ParseKubeAddress(remote.address);
    if (!snapshot.ok()) return snapshot.status();
    remote.base = snapshot->name;
    const absl::StatusOr<rpc::ListRequest> request = RemoteRequest(remote, name);
    if (!request.ok()) return request.status();
    if (!ranges.handle.has_value()) ranges.handle = request->base_snapshot_id;
    return ranges;
  }
  const absl::StatusOr<rpc::ListRequest> request = RemoteRequest(remote, name);
  if (!request.ok()) return request.status();
  // Other contracts know the snapshot by a name, which may come to mean another one.
  const bool by_handle = remote.api == rpc::Api::kCsi;
  if (!ranges.handle.has_value() && by_handle) ranges.handle = remote.snapshot;
  return ranges;
}

}  // namespace

void AddRangeOptions(CLI::App& subcommand, RangeArguments& arguments) {
  CLI::Option* const service =
      subcommand
          .add_option("--from-service", arguments.remote.address,
                      "Service that knows what changed: unix:///path/to.sock, host:port or "
                      "k8s:NAMESPACE/SNAPSHOT")
          ->type_name("ADDR");
  AddRemoteOptions(subcommand, arguments.remote);
  // The repository's newest snapshot is the base.
  for (const char* option : {"--base", "--base-handle"}) {
    subcommand.remove_option(subcommand.get_option(option));
  }
  AddRetryOption(subcommand, arguments.remote);
  subcommand
      .add_flag("--prove", arguments.prove,
                "Use no answer of the service that is not proven complete, from its source")
      ->needs(service);
  CLI::Option* const delta =
      subcommand
          .add_option("--delta", arguments.delta,
                      "What changed, instead of a service: a map or list as `cbtctl map` reads "
                      "them, or the images of the two snapshots")
          ->type_name("FILE")
          ->expected(1, 2)
          ->excludes(service);
  subcommand
      .add_option("--delta-base", arguments.delta_base,
                  "Handle of the snapshot since which that changed; default: as the input says")
      ->type_name("HANDLE")
      ->needs(delta);
  AddMapInput(subcommand, arguments.map_input);
  subcommand.remove_option(subcommand.get_option("--as"));
}

void AddHandleOption(CLI::App& subcommand, RangeArguments& arguments) {
  subcommand
      .add_option_function<std::string>(
          "--handle", [&arguments](const std::string& handle) { arguments.handle = handle; },
          "Handle of this snapshot, from which the next backup goes on; default: --snapshot, or "
          "as the input says")
      ->type_name("HANDLE");
}

absl::StatusOr<Ranges> OpenRanges(const RangeArguments& arguments, uint64_t capacity,
                                  AllocatedFunction allocated, const std::string& name) {
  if (!arguments.remote.address.empty()) return OpenService(arguments, capacity, name);
  if (!arguments.delta.empty()) return OpenMap(arguments, std::move(allocated));
  return Ranges{std::make_unique<DataRanges>(std::move(allocated)), arguments.handle};
}

}  // namespace cbt::cli
