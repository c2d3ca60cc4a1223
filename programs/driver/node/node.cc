#include "programs/driver/node/node.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "cbt/change_map.h"
#include "programs/driver/node/file_system.h"
#include "programs/driver/system/mounts.h"
#include "programs/driver/system/program.h"
#include "programs/volume/volume_directory.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kFirstServePause{100};
constexpr std::chrono::milliseconds kLongestServePause{30'000};

constexpr char kDefaultFileSystem[] = "ext4";

absl::Status CheckPath(std::string_view what, const std::string& path) {
  if (path.empty())
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": is missing"));
  if (!path.starts_with('/') || path.size() > kMaxMapNameBytes ||
      path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": is no absolute path"));
  }
  return absl::OkStatus();
}

// Removes the file or the empty directory of a target.
absl::Status RemoveTarget(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR && errno != EPERM) return FileError(path, errno);
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return FileError(path, errno);
  return absl::OkStatus();
}

absl::Status MakeTarget(const std::string& path, bool block) {
  if (!block) return MakeDirectory(path, /*sync=*/false);
  const OwnedDescriptor file(OpenFile(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  return file.has_value() ? absl::OkStatus() : FileError(path, errno);
}

// True if the volume is staged in another way than the request asks for.
bool Differs(const NodeRecord& node, const Usage& usage) {
  if (node.block != usage.block || node.read_only != usage.read_only) return true;
  return !node.block && ((!usage.file_system.empty() && node.file_system != usage.file_system) ||
                         node.mount_options != usage.mount_options);
}

absl::Status IsForeign(const std::string& path) {
  return absl::FailedPreconditionError(
      path + ": something else than the volume is mounted there; unmount it");
}

// True if `path`, a mount point, shows the device or the file system on it.
absl::StatusOr<bool> Shows(const std::string& path, const NodeRecord& node,
                           const AttachedDevice& device) {
  if (!node.block) {
    const absl::StatusOr<std::optional<dev_t>> mounted = MountedAt(path);
    if (!mounted.ok()) return mounted.status();
    return *mounted == device.number();
  }
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) return FileError(path, errno);
  return S_ISBLK(file.st_mode) && file.st_rdev == device.number();
}

uint64_t Capped(uint64_t count, uint64_t unit) {
  constexpr uint64_t kMost = uint64_t{1} << 62;  // the contract's numbers are signed
  return unit == 0 || count > kMost / unit ? kMost : count * unit;
}

}  // namespace

struct Node::Locked {
  KeyLocks::Held held;
  Volume volume;
};

Node::Node(Store& store, NodeOptions options)
    : store_(store),
      options_(std::move(options)),
      host_({.socket = store.catalog().paths().HostSocket(),
             .program = options_.volume_host,
             .connected = [this] { ServeAttached(); },
             .changed = options_.changed}),
      attachment_(store.catalog().paths(), host_) {
  store_.SetFlush([this](const Volume& volume) { return Flush(volume); });
}

void Node::Start() {
  for (const Volume& volume : store_.catalog().AllVolumes()) {
    if (volume.node.has_value() && attachment_.IsAttached(volume.id).value_or(true)) {
      host_.Expect(volume.id);
    }
  }
  host_.Start();
}

// Also after the host was started again: it knows nothing then but what it was given back.
// A volume that can't be served at once is tried again: its users wait.
void Node::ServeAttached() {
  std::vector<std::string> waiting;
  for (const Volume& volume : store_.catalog().AllVolumes()) {
    if (volume.node.has_value()) waiting.push_back(volume.id);
  }
  const auto over = [this] { return ending_ || !host_.connected(); };
  std::chrono::milliseconds pause = kFirstServePause;
  for (;;) {
    std::erase_if(waiting, [&](const std::string& id) {
      if (over()) return false;
      const absl::Status served = ServeAgain(id);
      // The host reports what it fails at.
      return served.ok() || absl::IsNotFound(served) || absl::IsDataLoss(served);
    });
    if (waiting.empty()) return;
    for (auto slept = pause.zero(); slept < pause; slept += kFirstServePause) {
      if (over()) return;
      std::this_thread::sleep_for(kFirstServePause);
    }
    pause = std::min(2 * pause, kLongestServePause);
  }
}

absl::Status Node::ServeAgain(const std::string& id) {
  constexpr std::chrono::milliseconds kPause{100};
  for (;;) {
    const absl::StatusOr<Locked> locked = Lock(id);
    if (locked.ok()) {
      const std::optional<NodeRecord>& node = locked->volume.node;
      return node.has_value() ? attachment_.ServeAgain(id, *node) : absl::OkStatus();
    }
    // Another call works on it, and may have failed before there was a host.
    if (!absl::IsAborted(locked.status()) || ending_ || !host_.connected()) return locked.status();
    std::this_thread::sleep_for(kPause);
  }
}

absl::Status Node::CheckVolume(const std::string& id) const {
  const std::optional<Volume> volume = store_.catalog().FindVolume(id);
  return volume.has_value() && !volume->record.removed ? absl::OkStatus()
                                                       : store_.catalog().Absent(id);
}

absl::StatusOr<Node::Locked> Node::Lock(const std::string& id) {
  absl::StatusOr<KeyLocks::Held> held = store_.LockVolume(id);
  if (!held.ok()) return held.status();
  std::optional<Volume> volume = store_.catalog().FindVolume(id);
  if (!volume.has_value() || volume->record.removed) return store_.catalog().Absent(id);
  return Locked{.held = *std::move(held), .volume = *std::move(volume)};
}

absl::Status Node::Stage(const std::string& id, const std::string& staging, const Usage& usage) {
  if (absl::Status path = CheckPath("staging_target_path", staging); !path.ok()) return path;
  if (absl::Status known = CheckFileSystem(usage.file_system); !known.ok()) return known;
  absl::StatusOr<Locked> locked = Lock(id);
  if (!locked.ok()) return locked.status();
  const bool view = locked->volume.record.view;
  if (view && (!usage.read_only || !usage.block)) {
    return absl::FailedPreconditionError(
        "the volume is a snapshot that is only read, as a block device");
  }
  std::optional<NodeRecord> node = locked->volume.node;
  if (node.has_value()) {
    if (node->staging_path != staging) {
      return absl::FailedPreconditionError("the volume is staged at " + node->staging_path);
    }
    if (Differs(*node, usage)) {
      return absl::AlreadyExistsError("the volume is staged there in another way");
    }
  } else {
    // The kernel serves a view by itself.
    absl::StatusOr<std::string> nbd = view ? std::string() : Attachment::Choose(options_.device);
    if (!nbd.ok()) return nbd.status();
    node = NodeRecord{.staging_path = staging,
                      .block = usage.block,
                      .file_system = usage.file_system.empty() ? std::string(kDefaultFileSystem)
                                                               : usage.file_system,
                      .read_only = usage.read_only,
                      .mount_options = usage.mount_options,
                      .nbd_device = *std::move(nbd)};
    if (absl::Status kept = store_.SetNode(id, node); !kept.ok()) return kept;
  }
  if (absl::Status released = store_.ReleaseVolume(id); !released.ok()) return released;
  if (absl::Status dropped = DropDeadMounts(id, *node); !dropped.ok()) return dropped;
  if (node->block && !node->read_only) {
    // From here on anybody can write to it.
    if (absl::Status used = store_.SetContent(id, Content::kUsed); !used.ok()) return used;
  }
  const std::string chosen = node->nbd_device;
  const absl::StatusOr<AttachedDevice> device = attachment_.Attach(id, *node);
  // cppcheck-suppress knownConditionTrueFalse  // Attach() may change it
  if (node->nbd_device != chosen) {
    if (absl::Status kept = store_.SetNode(id, node); !kept.ok()) return kept;
  }
  if (!device.ok()) return device.status();
  return node->block ? absl::OkStatus() : MountFileSystem(locked->volume, *node, *device);
}

// Attach() makes a device above a dead server anew, perhaps under another number. What still shows
// the old one is of no use, and would show another volume once its number is given away.
absl::Status Node::DropDeadMounts(const std::string& id, const NodeRecord& node) const {
  const absl::StatusOr<bool> alive = attachment_.IsAlive(id, node);
  if (!alive.ok()) return alive.status();
  const absl::StatusOr<std::vector<AttachedDevice>> devices = attachment_.DevicesOf(id);
  if (!devices.ok()) return devices.status();
  if (*alive && !devices->empty()) return absl::OkStatus();
  if (node.block) {
    for (const Target& target : node.targets) {
      const absl::StatusOr<bool> mounted = IsMounted(target.path);
      if (!mounted.ok()) return mounted.status();
      if (*mounted) {
        return absl::FailedPreconditionError(
            absl::StrCat("the volume's device has ended, and ", target.path,
                         " shows it still; unpublish the volume there before it is staged again"));
      }
    }
    return absl::OkStatus();
  }
  const absl::StatusOr<std::optional<dev_t>> mounted = MountedAt(node.staging_path);
  if (!mounted.ok()) return mounted.status();
  if (!mounted->has_value()) return absl::OkStatus();
  const bool ours =
      IsDeviceGone(**mounted) ||
      std::any_of(devices->begin(), devices->end(), [&mounted](const AttachedDevice& device) {
        return device.number() == **mounted;
      });
  return ours ? UnmountLazily(node.staging_path) : IsForeign(node.staging_path);
}

// What mkfs has written goes, so that nothing that is there later can be taken for it. What can't go
// is recognised.
absl::Status Node::RecordFailedFormat(const std::string& id, const AttachedDevice& device) const {
  const absl::Status discarded = device.Discard();
  if (absl::Status flushed = device.Flush(); !flushed.ok()) return flushed;
  if (discarded.ok()) {
    const absl::StatusOr<bool> has_data =
        HasData(store_.catalog().VolumeDirectory(id) + "/" + volume::kDataName);
    if (has_data.ok() && !*has_data) return store_.SetContent(id, Content::kBlank);
  }
  const absl::StatusOr<volume::DataStamp> left = store_.StampData(id);
  return left.ok() ? store_.SetContent(id, Content::kFormatting, *left) : left.status();
}

// A file system is made only on a volume that cannot have been written to: its record says so, and
// every byte is zero. What mkfs itself has written is not the record's kBlank any more, so a mkfs
// that failed or was killed is done again only until the volume is handed out, and after a failure
// only on what it left.
absl::Status Node::ProvideFileSystem(const Volume& volume, const NodeRecord& node,
                                     const AttachedDevice& device) const {
  const std::string data = store_.catalog().VolumeDirectory(volume.id) + "/" + volume::kDataName;
  bool may_make = volume.record.content == Content::kFormatting;
  if (may_make && volume.record.left.has_value()) {
    const absl::StatusOr<volume::DataStamp> now = store_.StampData(volume.id);
    if (!now.ok()) return now.status();
    may_make = *now == *volume.record.left;
  }
  if (volume.record.content == Content::kBlank) {
    const absl::StatusOr<bool> has_data = HasData(data);
    if (!has_data.ok()) return has_data.status();
    may_make = !*has_data;
  }
  if (!may_make) {
    if (absl::Status used = store_.SetContent(volume.id, Content::kUsed); !used.ok()) return used;
    return CheckHolds(device.path(), node.file_system);
  }
  if (node.read_only) {
    return absl::FailedPreconditionError("the volume has no file system, and is read-only");
  }
  if (device.IsUsedAlone()) {  // perhaps by the mkfs of a driver that was killed
    return absl::FailedPreconditionError(device.path() + ": is in use, so no file system is made");
  }
  if (absl::Status begun = store_.SetContent(volume.id, Content::kFormatting); !begun.ok()) {
    return begun;
  }
  if (absl::Status made = MakeFileSystemOn(device.path(), node.file_system); !made.ok()) {
    RecordFailedFormat(volume.id, device).IgnoreError();
    return made;
  }
  if (absl::Status flushed = device.Flush(); !flushed.ok()) return flushed;
  return store_.SetContent(volume.id, Content::kUsed);
}

absl::Status Node::MountFileSystem(const Volume& volume, const NodeRecord& node,
                                   const AttachedDevice& device) const {
  const absl::StatusOr<std::optional<dev_t>> mounted = MountedAt(node.staging_path);
  if (!mounted.ok()) return mounted.status();
  if (mounted->has_value()) {
    if (**mounted != device.number()) return IsForeign(node.staging_path);
  } else {
    if (absl::Status there = ProvideFileSystem(volume, node, device); !there.ok()) return there;
    if (!node.read_only) {
      if (absl::Status grown = GrowUnmounted(device.path(), node.file_system); !grown.ok()) {
        return grown;
      }
    }
    if (absl::Status made = MakeDirectory(node.staging_path, /*sync=*/false); !made.ok())
      return made;
    std::vector<std::string> options = node.mount_options;
    options.emplace_back(node.read_only ? "ro" : "rw");
    // A restored volume has the identity of its source, which may be mounted too.
    if (node.file_system == "xfs") options.emplace_back("nouuid");
    const absl::StatusOr<std::string> done =
        CallProgram({"mount", "-t", node.file_system, "-o", absl::StrJoin(options, ","),
                     device.path(), node.staging_path});
    if (!done.ok()) return done.status();
  }
  // A volume may be larger than the one that its file system was made for.
  const bool grows = node.file_system == "xfs" && !node.read_only;
  return grows ? GrowMounted(device.path(), node.staging_path, node.file_system) : absl::OkStatus();
}

absl::Status Node::Unstage(const std::string& id, const std::string& staging) {
  if (absl::Status path = CheckPath("staging_target_path", staging); !path.ok()) return path;
  absl::StatusOr<Locked> locked = Lock(id);
  if (locked.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  if (!locked.ok()) return locked.status();
  const std::optional<NodeRecord>& node = locked->volume.node;
  if (!node.has_value() || node->staging_path != staging) return absl::OkStatus();
  if (!node->targets.empty()) {
    return absl::FailedPreconditionError("the volume is published at " +
                                         node->targets.front().path);
  }
  if (absl::Status server = attachment_.CheckServer(id, *node); !server.ok()) return server;
  if (!node->block) {
    if (absl::Status unmounted = Unmount(staging); !unmounted.ok()) return unmounted;
  }
  if (absl::Status detached = attachment_.Detach(id, *node); !detached.ok()) return detached;
  return store_.SetNode(id, std::nullopt);
}

absl::Status Node::Publish(const std::string& id, const std::string& staging,
                           const std::string& target, const Usage& usage, bool read_only) {
  if (absl::Status path = CheckPath("target_path", target); !path.ok()) return path;
  absl::StatusOr<Locked> locked = Lock(id);
  if (!locked.ok()) return locked.status();
  if (!locked->volume.node.has_value() ||
      (!staging.empty() && locked->volume.node->staging_path != staging)) {
    return absl::FailedPreconditionError("the volume is not staged there");
  }
  NodeRecord node = *locked->volume.node;
  if (node.block != usage.block) {
    return absl::InvalidArgumentError("volume_capability: the volume is staged in another mode");
  }
  read_only |= usage.read_only || usage.many_nodes;
  const absl::StatusOr<AttachedDevice> device = attachment_.DeviceToUse(id);
  if (absl::IsNotFound(device.status())) {
    return absl::FailedPreconditionError(device.status().message());
  }
  if (!device.ok()) return device.status();
  if (!node.block) {
    // The directory below the mount point is on the node's own disk.
    const absl::StatusOr<bool> staged = Shows(node.staging_path, node, *device);
    if (!staged.ok()) return staged.status();
    if (!*staged) {
      return absl::FailedPreconditionError(node.staging_path +
                                           ": the volume is not mounted there; stage it again");
    }
  }
  const auto known = std::find_if(node.targets.begin(), node.targets.end(),
                                  [&target](const Target& one) { return one.path == target; });
  if (known != node.targets.end()) {
    if (known->read_only != read_only) {
      return absl::AlreadyExistsError("the volume is published there in another way");
    }
  } else {
    if (usage.single_target && !node.targets.empty()) {
      return absl::FailedPreconditionError("the volume is published at " +
                                           node.targets.front().path + ", and may have one target");
    }
    node.targets.push_back({.path = target, .read_only = read_only});
    if (absl::Status kept = store_.SetNode(id, node); !kept.ok()) return kept;
  }
  const absl::StatusOr<bool> mounted = IsMounted(target);
  if (!mounted.ok()) return mounted.status();
  if (*mounted) {
    const absl::StatusOr<bool> ours = Shows(target, node, *device);
    if (!ours.ok()) return ours.status();
    return *ours ? absl::OkStatus() : IsForeign(target);
  }
  if (absl::Status made = MakeTarget(target, node.block); !made.ok()) return made;
  return BindMount(node.block ? device->path() : node.staging_path, target, read_only);
}

absl::Status Node::Unpublish(const std::string& id, const std::string& target) {
  if (absl::Status path = CheckPath("target_path", target); !path.ok()) return path;
  absl::StatusOr<Locked> locked = Lock(id);
  if (locked.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  if (!locked.ok()) return locked.status();
  if (!locked->volume.node.has_value()) return absl::OkStatus();
  NodeRecord node = *locked->volume.node;
  const auto known = std::find_if(node.targets.begin(), node.targets.end(),
                                  [&target](const Target& one) { return one.path == target; });
  if (known == node.targets.end()) return absl::OkStatus();
  if (absl::Status unmounted = Unmount(target); !unmounted.ok()) return unmounted;
  if (absl::Status removed = RemoveTarget(target); !removed.ok()) return removed;
  node.targets.erase(known);
  return store_.SetNode(id, node);
}

absl::StatusOr<VolumeStats> Node::Stats(const std::string& id, const std::string& path) const {
  if (absl::Status known = CheckVolume(id); !known.ok()) return known;
  const std::optional<Volume> volume = store_.catalog().FindVolume(id);
  if (!volume.has_value()) return store_.catalog().Absent(id);
  const absl::Status elsewhere = absl::NotFoundError("the volume is not at " + path);
  if (!volume->node.has_value() || !path.starts_with('/')) return elsewhere;
  const NodeRecord& node = *volume->node;
  VolumeStats stats = {.total_bytes = volume->record.capacity};
  if (node.block && path == node.staging_path) return stats;  // nothing is mounted there
  const absl::StatusOr<AttachedDevice> device = attachment_.DeviceOf(id);
  if (!device.ok()) return device.status();
  // A kubelet asks at paths of its own too: of a device that it bound again, of a subpath.
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) {
    return errno == ENOENT || errno == ENOTDIR ? elsewhere : FileError(path, errno);
  }
  if (node.block) {
    return S_ISBLK(file.st_mode) && file.st_rdev == device->number()
               ? absl::StatusOr<VolumeStats>(stats)
               : elsewhere;
  }
  if (file.st_dev != device->number()) return elsewhere;
  struct statvfs disk = {};
  if (::statvfs(path.c_str(), &disk) != 0) return FileError(path, errno);
  stats.total_bytes = Capped(disk.f_blocks, disk.f_frsize);
  stats.available_bytes = Capped(disk.f_bavail, disk.f_frsize);
  stats.used_bytes = Capped(disk.f_blocks - disk.f_bfree, disk.f_frsize);
  stats.has_inodes = true;
  stats.total_inodes = disk.f_files;
  stats.available_inodes = disk.f_favail;
  stats.used_inodes = disk.f_files - disk.f_ffree;
  return stats;
}

absl::StatusOr<uint64_t> Node::Expand(const std::string& id, const std::string& path) {
  absl::StatusOr<Locked> locked = Lock(id);
  if (!locked.ok()) return locked.status();
  const std::optional<NodeRecord>& node = locked->volume.node;
  if (!node.has_value()) return absl::NotFoundError("the volume is not at " + path);
  const uint64_t capacity = locked->volume.record.capacity;
  if (absl::Status grown = attachment_.Grow(id, capacity); !grown.ok()) return grown;
  const absl::StatusOr<AttachedDevice> device = attachment_.DeviceOf(id);
  if (!device.ok()) return device.status();
  if (!node->block) {
    if (absl::Status mounted = MountFileSystem(locked->volume, *node, *device); !mounted.ok()) {
      return mounted;
    }
    if (!node->read_only) {
      const absl::Status grown = GrowMounted(device->path(), node->staging_path, node->file_system);
      if (!grown.ok()) return grown;
    }
  }
  return capacity;
}

absl::Status Node::Flush(const Volume& volume) const {
  // Without a record of it too, which could have been lost.
  const absl::Status server =
      attachment_.CheckServer(volume.id, volume.node.value_or(NodeRecord()));
  if (!server.ok()) return server;
  const absl::StatusOr<std::vector<AttachedDevice>> devices = attachment_.DevicesOf(volume.id);
  if (!devices.ok()) return devices.status();
  if (devices->empty()) {
    const absl::StatusOr<bool> served = attachment_.IsServed(volume.id);
    if (!served.ok()) return served.status();
    // Without a server, nothing that a device holds back can reach the volume any more.
    if (!*served) return absl::OkStatus();
    return absl::UnavailableError(
        "the volume is served, but no device of this node is provably its own: what one holds back "
        "would be missing; stage the volume again");
  }
  for (const AttachedDevice& device : *devices) {
    if (!volume.node->block) {
      const absl::StatusOr<bool> flushed = FlushFileSystemOf(device.number());
      if (!flushed.ok()) return flushed.status();
      if (!*flushed && device.IsUsedAlone()) {
        return absl::UnavailableError(
            device.path() +
            ": its file system is mounted where the driver can't reach it: what it "
            "holds back would be missing; unmount it, or stage the volume again");
      }
    }
    if (absl::Status flushed = device.Flush(); !flushed.ok()) return flushed;
  }
  return absl::OkStatus();
}

}  // namespace cbt::driver
