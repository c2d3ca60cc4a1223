#include "programs/driver/host/volume_host.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/driver/system/mounts.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kFirstRestartPause{100};
constexpr std::chrono::milliseconds kLongestRestartPause{30'000};

absl::StatusOr<uint64_t> SizeOf(const std::string& socket) {
  const absl::StatusOr<NbdHandle> server = ConnectNbd(socket);
  if (!server.ok()) return server.status();
  const int64_t size = ::nbd_get_size(server->get());
  if (size < 0) return absl::UnavailableError(socket + ": the server gives no size");
  return static_cast<uint64_t>(size);
}

}  // namespace

// A volume, and the thread that watches its server. All but the watching under `mutex`.
class VolumeHost::Attached {
 public:
  Attached(VolumeHost& host, std::string volume)
      : host_(host), volume_(std::move(volume)), server_(host.paths_, volume_, host.plugin_) {}

  ~Attached() { StopWatching(); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  std::mutex mutex;

  absl::Status Serve(const ServeRequest& request) {
    FuseSession session;
    OwnedDescriptor connection;
    bool given = false;
    if (watcher_.joinable() && !health().serving) {
      if (disk_ != nullptr) {
        return absl::UnavailableError("the volume's server can't be started: " + health().error);
      }
      StopWatching();
    }
    if (!watcher_.joinable()) {
      given = host_.Take(volume_, session, connection);
      absl::Status started;
      // What the earlier host had passed on to a server could be carried out after the repetition
      // of it, and undo what was written since.
      if (given && !session.clean) started = server_.End();
      if (started.ok()) started = server_.Start();
      if (!started.ok()) {
        if (given) host_.PutBack(volume_, session, std::move(connection));
        return started;
      }
    }
    if (request.file) {
      const absl::Status shown =
          ShowFile(request.read_only, given ? &session : nullptr, std::move(connection));
      if (!shown.ok()) return shown;
    }
    if (!watcher_.joinable()) {
      stop_ = std::make_unique<StopSignal>();
      SetHealth({});
      watcher_ = std::thread([this, restart = request.file] { Watch(restart); });
    }
    return absl::OkStatus();
  }

  absl::Status Stop() {
    const std::string directory = host_.paths_.FuseDirectory(volume_);
    const bool lost = disk_ == nullptr || disk_->ended() || !serving();
    // Lazily if no server can answer.
    const absl::Status unmounted = lost ? UnmountLazily(directory) : Unmount(directory);
    if (!unmounted.ok()) return unmounted;
    StopWatching();
    disk_.reset();
    FuseSession session;
    OwnedDescriptor connection;
    host_.Take(volume_, session, connection);
    if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) return FileError(directory, errno);
    host_.CallObserver([this](HostObserver& observer) { observer.Dropped(volume_); });
    return server_.End();
  }

  bool watched() const noexcept { return watcher_.joinable(); }

  // The present state, for a new observer.
  void ReportAll(HostObserver& observer) {
    if (disk_ != nullptr && !disk_->ended()) {
      if (absl::StatusOr<OwnedDescriptor> copy = disk_->Duplicate(); copy.ok()) {
        observer.Kept(volume_, disk_->session(), *std::move(copy));
      }
    }
    if (watcher_.joinable()) observer.Changed(volume_, health());
  }

  void Drain() {
    if (disk_ == nullptr) return;
    disk_->Stop();
    host_.CallObserver([this](HostObserver& observer) {
      observer.Kept(volume_, disk_->session(), OwnedDescriptor());
    });
  }

  absl::Status End() {
    StopWatching();
    disk_.reset();
    return server_.End();
  }

 private:
  std::string socket() const { return host_.paths_.NbdSocket(volume_); }
  bool serving() const { return health().serving; }
  VolumeHealth health() const {
    const std::lock_guard lock(health_mutex_);
    return health_;
  }
  void SetHealth(const VolumeHealth& health) {
    {
      const std::lock_guard lock(health_mutex_);
      health_ = health;
    }
    host_.CallObserver([&](HostObserver& observer) { observer.Changed(volume_, health); });
  }

  absl::Status ShowFile(bool read_only, const FuseSession* session, OwnedDescriptor connection) {
    const std::string directory = host_.paths_.FuseDirectory(volume_);
    if (disk_ != nullptr && !disk_->ended()) {
      if (disk_->session().read_only == read_only) return absl::OkStatus();
      return absl::FailedPreconditionError("the volume is attached in another way");
    }
    if (session != nullptr && session->read_only == read_only) {
      absl::StatusOr<std::unique_ptr<FuseDisk>> adopted =
          FuseDisk::Adopt(std::move(connection), *session, socket());
      if (adopted.ok()) {
        Show(*std::move(adopted));
        return absl::OkStatus();
      }
      // Requests that wait must fail now: no answer can come.
      if (::umount2(directory.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW) != 0 && errno != EBUSY &&
          errno != EINVAL) {
        return FileError(directory, errno);
      }
    }
    // Of a connection that was closed.
    if (absl::Status gone = UnmountLazily(directory); !gone.ok()) return gone;
    if (absl::Status made = MakeFolder(directory, /*sync=*/false); !made.ok()) return made;
    const absl::StatusOr<uint64_t> size = SizeOf(socket());
    if (!size.ok()) return size.status();
    absl::StatusOr<std::unique_ptr<FuseDisk>> mounted =
        FuseDisk::Mount(directory, socket(), *size, read_only);
    if (!mounted.ok()) return mounted.status();
    Show(*std::move(mounted));
    return absl::OkStatus();
  }

  void Show(std::unique_ptr<FuseDisk> disk) {
    disk_ = std::move(disk);
    if (absl::StatusOr<OwnedDescriptor> copy = disk_->Duplicate(); copy.ok()) {
      host_.CallObserver([&](HostObserver& observer) {
        observer.Kept(volume_, disk_->session(), *std::move(copy));
      });
    }
  }

  void StopWatching() {
    if (!watcher_.joinable()) return;
    stop_->Set();
    watcher_.join();
  }

  // Starts the server again whenever it ends, if `restart`.
  void Watch(bool restart) {
    while (stop_->WaitUntilReadable(server_.ended())) {
      VolumeHealth health = this->health();
      health.serving = false;
      health.error = restart ? "the volume's server has ended, and is being started again"
                             : "the volume's server has ended, and its device with it: unpublish "
                               "the volume and stage it again";
      SetHealth(health);
      if (!restart) return;
      auto pause = kFirstRestartPause;
      for (;;) {
        const absl::Status started = server_.Start();
        if (started.ok()) break;
        health.error = std::string(started.message());
        SetHealth(health);
        if (stop_->WaitFor(pause)) return;
        pause = std::min(2 * pause, kLongestRestartPause);
      }
      SetHealth({.serving = true, .restarts = health.restarts + 1});
    }
  }

  VolumeHost& host_;
  const std::string volume_;
  VolumeServer server_;
  std::unique_ptr<FuseDisk> disk_;
  std::unique_ptr<StopSignal> stop_ = std::make_unique<StopSignal>();
  std::thread watcher_;
  mutable std::mutex health_mutex_;
  VolumeHealth health_;
};

VolumeHost::VolumeHost(VolumePaths paths, std::string plugin)
    : paths_(std::move(paths)), plugin_(std::move(plugin)) {}

VolumeHost::~VolumeHost() {
  SetObserver(nullptr);
  for (const auto& [volume, attached] : attached_) {
    const std::lock_guard lock(attached->mutex);
    attached->End().IgnoreError();
  }
}

std::shared_ptr<VolumeHost::Attached> VolumeHost::FindOrAdd(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Attached>& attached = attached_[volume];
  if (attached == nullptr) attached = std::make_shared<Attached>(*this, volume);
  return attached;
}

bool VolumeHost::Take(const std::string& volume, FuseSession& session,
                      OwnedDescriptor& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = given_.find(volume);
  if (found == given_.end()) return false;
  session = found->second.first;
  connection = std::move(found->second.second);
  given_.erase(found);
  return true;
}

void VolumeHost::Give(const std::string& volume, const FuseSession& session,
                      OwnedDescriptor connection) {
  const std::lock_guard lock(mutex_);
  // What this host attached itself is newer.
  if (attached_.contains(volume) || !connection.has_value()) return;
  given_.insert_or_assign(volume, std::pair(session, std::move(connection)));
}

void VolumeHost::PutBack(const std::string& volume, const FuseSession& session,
                         OwnedDescriptor connection) {
  const std::lock_guard lock(mutex_);
  given_.insert_or_assign(volume, std::pair(session, std::move(connection)));
}

template <typename Call>
void VolumeHost::CallObserver(Call call) {
  const std::lock_guard lock(observer_mutex_);
  if (observer_ != nullptr) call(*observer_);
}

std::vector<std::shared_ptr<VolumeHost::Attached>> VolumeHost::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Attached>> all;
  all.reserve(attached_.size());
  for (const auto& [volume, attached] : attached_) all.push_back(attached);
  return all;
}

void VolumeHost::Forget(const std::string& volume, std::shared_ptr<Attached> attached) {
  const std::lock_guard lock(mutex_);
  // Unless somebody else waits for it.
  if (attached.use_count() == 2) attached_.erase(volume);
}

absl::Status VolumeHost::Serve(const ServeRequest& request) {
  std::shared_ptr<Attached> attached = FindOrAdd(request.volume);
  absl::Status served;
  {
    const std::lock_guard lock(attached->mutex);
    served = attached->Serve(request);
    if (served.ok() || attached->watched()) return served;
  }
  Forget(request.volume, std::move(attached));
  return served;
}

absl::Status VolumeHost::Stop(const std::string& volume) {
  std::shared_ptr<Attached> attached = FindOrAdd(volume);
  {
    const std::lock_guard lock(attached->mutex);
    if (absl::Status stopped = attached->Stop(); !stopped.ok()) return stopped;
  }
  Forget(volume, std::move(attached));
  return absl::OkStatus();
}

void VolumeHost::SetObserver(HostObserver* observer) {
  {
    const std::lock_guard lock(observer_mutex_);
    observer_ = observer;
  }
  if (observer == nullptr) return;
  for (const std::shared_ptr<Attached>& attached : All()) {
    const std::lock_guard lock(attached->mutex);
    CallObserver([&](HostObserver& present) { attached->ReportAll(present); });
  }
}

void VolumeHost::Drain() {
  for (const std::shared_ptr<Attached>& attached : All()) {
    const std::lock_guard lock(attached->mutex);
    attached->Drain();
  }
}

size_t VolumeHost::count() const {
  const std::lock_guard lock(mutex_);
  return attached_.size() + given_.size();
}

}  // namespace cbt::driver
