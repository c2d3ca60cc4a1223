#include "programs/driver/host/volume_host.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/driver/host/thread.h"
#include "programs/driver/system/mounts.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kFirstRestartPause{100};
constexpr std::chrono::milliseconds kLongestRestartPause{30'000};
// A server that ends sooner after its start, twice in a row, is started again after a pause.
constexpr std::chrono::seconds kShortLife{1};

absl::StatusOr<uint64_t> SizeOf(const std::string& socket) {
  const absl::StatusOr<NbdHandle> server = ConnectNbd(socket);
  if (!server.ok()) return server.status();
  const int64_t size = ::nbd_get_size(server->get());
  if (size < 0) return absl::UnavailableError(socket + ": the server gives no size");
  return static_cast<uint64_t>(size);
}

}  // namespace

// A volume, and the thread that watches its server. All but the watching and ReportAll() under
// `mutex`, which a call may hold for as long as a server takes to start.
class VolumeHost::Attached {
 public:
  Attached(VolumeHost& host, std::string volume)
      : host_(host), volume_(std::move(volume)), server_(host.paths_, volume_, host.server_) {}

  ~Attached() { StopWatching(); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  std::mutex mutex;

  absl::Status Serve(const ServeRequest& request) {
    // Before a watcher decides what to do about a server that has ended.
    const bool watched = Want(request.file);
    if (watched) {
      const VolumeHealth known = SettledHealth().value_or(VolumeHealth());
      if (!known.serving()) {
        return absl::UnavailableError("the volume's server can't be started: " + known.error);
      }
    }
    absl::Status served;
    if (watched) {
      served = request.file ? ShowFile(request, nullptr) : absl::OkStatus();
      if (absl::IsDataLoss(served)) ReportFailure(served);
      return served;
    }
    StopWatching();
    return Begin(request);
  }

  absl::Status Grow(uint64_t size) {
    const std::shared_ptr<FuseDisk> shown = disk();
    if (shown == nullptr || shown->ended() || shown->session().size >= size) {
      return absl::OkStatus();
    }
    const absl::StatusOr<uint64_t> served = SizeOf(socket());
    if (!served.ok()) return served.status();
    if (*served < size) {
      return absl::OutOfRangeError(
          absl::StrCat("the volume has ", *served, " bytes, its file can't have ", size));
    }
    // The driver, which keeps the session, knows first: a host that goes on with it must not have a
    // smaller file than the kernel knows of.
    FuseSession grown = shown->session();
    grown.size = size;
    ReportSession(grown);
    return shown->Grow(size);
  }

  absl::Status Stop() {
    const std::string directory = host_.paths_.FuseDirectory(volume_);
    const std::optional<VolumeHealth> known = SettledHealth();
    const bool lost =
        disk() == nullptr || disk()->ended() || !known.has_value() || !known->serving();
    // Lazily if no server can answer.
    const absl::Status unmounted = lost ? UnmountLazily(directory) : Unmount(directory);
    if (!unmounted.ok()) return unmounted;
    StopWatching();
    SetDisk(nullptr);
    FuseSession session;
    OwnedDescriptor connection;
    host_.Take(volume_, session, connection);
    if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) return FileError(directory, errno);
    ForgetHealth();
    return server_.End();
  }

  // True unless nothing is known of it that a later call or driver wants to know.
  bool wanted() const { return watching() || health().has_value(); }

  // The present state, for a new observer. Does not wait for a call that runs.
  void ReportAll() {
    const std::lock_guard lock(state_mutex_);
    if (disk_ != nullptr && !disk_->ended()) ReportDisk();
    if (health_.has_value()) {
      host_.CallObserver([this](HostObserver& observer) { observer.Changed(volume_, *health_); });
    }
  }

  void Drain() {
    const std::shared_ptr<FuseDisk> stopped = disk();
    if (stopped == nullptr) return;
    stopped->Stop();
    host_.CallObserver([&](HostObserver& observer) {
      observer.Kept(volume_, stopped->session(), OwnedDescriptor());
    });
  }

  // Ends the server in two steps, so that many end at the same time.
  void BeginEnd() {
    StopWatching();
    SetDisk(nullptr);
    server_.AskToEnd().IgnoreError();
  }
  void End(VolumeServer::Clock::time_point latest) { server_.End(latest).IgnoreError(); }

 private:
  using State = VolumeHealth::State;

  std::string socket() const { return host_.paths_.NbdSocket(volume_); }
  bool watching() const noexcept { return watcher_.joinable(); }
  std::shared_ptr<FuseDisk> disk() const {
    const std::lock_guard lock(state_mutex_);
    return disk_;
  }
  void SetDisk(std::shared_ptr<FuseDisk> disk) {
    const std::lock_guard lock(state_mutex_);
    disk_.swap(disk);
  }
  std::optional<VolumeHealth> health() const {
    const std::lock_guard lock(state_mutex_);
    return health_;
  }
  // Waits for a restart that is under way, which VolumeServer::Start() bounds: a server that ends
  // and is back at once is no reason to refuse a call.
  std::optional<VolumeHealth> SettledHealth() {
    std::unique_lock lock(state_mutex_);
    settled_.wait(lock, [this] { return !starting_; });
    return health_;
  }
  // Reports it if it is another than before. The observer is called with the lock held: what it
  // hears last is what is.
  void SetHealth(const VolumeHealth& health) {
    const std::lock_guard lock(state_mutex_);
    if (health_ == health) return;
    health_ = health;
    host_.CallObserver([&](HostObserver& observer) { observer.Changed(volume_, health); });
  }
  void ForgetHealth() {
    const std::lock_guard lock(state_mutex_);
    health_.reset();
    restart_ = false;
    host_.CallObserver([this](HostObserver& observer) { observer.Dropped(volume_); });
  }

  // From here on the server is started again if it ends, if `file`. False if no thread watches it.
  bool Want(bool file) {
    const std::lock_guard lock(state_mutex_);
    restart_ |= file;
    return watching() && !watching_ended_;
  }
  // What the watcher does about a server that has ended. False ends it.
  bool WantsRestart() {
    const std::lock_guard lock(state_mutex_);
    watching_ended_ = !restart_;
    starting_ = restart_;
    return restart_;
  }

  // No thread watches the server, and this process may not know of the volume.
  absl::Status Begin(const ServeRequest& request) {
    if (!health().has_value()) {
      // Reported to an observer that comes meanwhile, and to no other.
      const std::lock_guard lock(state_mutex_);
      health_ = VolumeHealth{.state = State::kWaiting, .error = "the volume is being attached"};
    }
    FuseSession session;
    OwnedDescriptor connection;
    const bool given = host_.Take(volume_, session, connection);
    Session earlier = {.session = session, .connection = std::move(connection)};
    absl::Status served = Resume(request, given ? &earlier : nullptr);
    if (served.ok()) return served;
    // Somebody may wait for the volume. Otherwise it is not attached, as before.
    if (request.again || given || disk() != nullptr) {
      ReportFailure(served);
    } else {
      ForgetHealth();
    }
    if (earlier.connection.has_value()) {
      host_.PutBack(volume_, earlier.session, std::move(earlier.connection));
    }
    return served;
  }

  void SetStarting(bool starting) {
    {
      const std::lock_guard lock(state_mutex_);
      starting_ = starting;
    }
    settled_.notify_all();
  }

  void ReportFailure(const absl::Status& why) {
    SetHealth({.state = absl::IsDataLoss(why) ? State::kFailed : State::kWaiting,
               .error = std::string(why.message())});
  }

  // A session of an earlier host. Without the connection once it has been used up.
  struct Session {
    FuseSession session;
    OwnedDescriptor connection;
  };

  absl::Status Resume(const ServeRequest& request, Session* earlier) {
    if (request.file && request.again && earlier == nullptr && disk() == nullptr) return Lost();
    // What the earlier host had passed on to a server could be carried out after the repetition
    // of it, and undo what was written since.
    absl::Status status;
    if (earlier != nullptr && !earlier->session.clean) status = server_.End();
    if (status.ok()) status = server_.Start();
    if (status.ok() && request.file) status = ShowFile(request, earlier);
    if (!status.ok()) return status;
    auto stop = std::make_unique<StopSignal>();
    stop_.swap(stop);
    watching_ended_ = false;
    status = StartThread(watcher_, [this] { Watch(); });
    if (status.ok()) SetHealth({});
    return status;
  }

  static absl::Status AttachedOtherwise() {
    return absl::FailedPreconditionError("the volume is attached in another way");
  }
  static absl::Status Lost() {
    return absl::DataLossError(
        "the connection of the volume's device has ended with its volume host and driver, and "
        "every "
        "request of the device fails: delete the Pods that use the volume, then it is staged "
        "again");
  }

  absl::Status ShowFile(const ServeRequest& request, Session* earlier) {
    const std::string directory = host_.paths_.FuseDirectory(volume_);
    if (const std::shared_ptr<FuseDisk> shown = disk(); shown != nullptr && !shown->ended()) {
      if (shown->session().read_only == request.read_only) return absl::OkStatus();
      return AttachedOtherwise();
    }
    if (earlier != nullptr) {
      if (earlier->session.read_only != request.read_only) return AttachedOtherwise();
      absl::Status adopted = Adopt(*earlier);
      if (!absl::IsFailedPrecondition(adopted)) return adopted;
      // Requests that wait must fail now: no answer can come. No other file takes the place of this
      // one while a device may be above it.
      earlier->connection = {};
      if (::umount2(directory.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW) != 0 && errno != EBUSY &&
          errno != EINVAL) {
        return FileError(directory, errno);
      }
      return absl::DataLossError(absl::StrCat(
          std::string(adopted.message()),
          ": every request of the volume's device fails; delete the Pods that use the volume, then "
          "it is staged again"));
    }
    if (request.again) return Lost();
    // The mount of a connection that was closed.
    if (absl::Status gone = UnmountLazily(directory); !gone.ok()) return gone;
    if (absl::Status made = MakeDirectory(directory, /*sync=*/false); !made.ok()) return made;
    const absl::StatusOr<uint64_t> size = SizeOf(socket());
    if (!size.ok()) return size.status();
    absl::StatusOr<std::unique_ptr<FuseDisk>> mounted =
        FuseDisk::Mount(directory, socket(), *size, request.read_only);
    if (!mounted.ok()) return mounted.status();
    Show(*std::move(mounted));
    return absl::OkStatus();
  }

  absl::Status Adopt(Session& earlier) {
    // Before anything is read: a host that is killed from here on may leave requests unanswered.
    FuseSession used = earlier.session;
    used.clean = false;
    ReportSession(used);
    absl::StatusOr<std::unique_ptr<FuseDisk>> adopted =
        FuseDisk::Adopt(earlier.connection, earlier.session, socket());
    if (!adopted.ok()) {
      ReportSession(earlier.session);
      return adopted.status();
    }
    earlier.connection = {};
    Show(*std::move(adopted));
    return absl::OkStatus();
  }

  void ReportSession(const FuseSession& session) {
    host_.CallObserver(
        [&](HostObserver& observer) { observer.Kept(volume_, session, OwnedDescriptor()); });
  }

  void Show(std::shared_ptr<FuseDisk> disk) {
    const std::lock_guard lock(state_mutex_);
    disk_ = std::move(disk);
    ReportDisk();
  }

  // Under state_mutex_.
  void ReportDisk() {
    if (absl::StatusOr<OwnedDescriptor> copy = disk_->Duplicate(); copy.ok()) {
      host_.CallObserver([&](HostObserver& observer) {
        observer.Kept(volume_, disk_->session(), *std::move(copy));
      });
    }
  }

  void StopWatching() {
    if (!watching()) return;
    stop_->Set();
    watcher_.join();
  }

  // Starts the server again whenever it ends, if that is wanted. At once, unless a start has failed
  // or servers end soon: the pauses grow with either.
  void Watch() {
    auto pause = kFirstRestartPause;
    auto started_at = VolumeServer::Clock::now();
    bool ended_soon = false;
    while (stop_->WaitUntilReadable(server_.ended())) {
      VolumeHealth health = this->health().value_or(VolumeHealth());
      const std::string ended = "the volume's server has ended";
      if (!WantsRestart()) {
        health.state = State::kFailed;
        health.error = ended + ", and its device with it: unpublish the volume and stage it again";
        return SetHealth(health);
      }
      const bool short_life = VolumeServer::Clock::now() - started_at < kShortLife;
      if (!short_life) pause = kFirstRestartPause;
      bool waits = short_life && ended_soon;
      ended_soon = short_life;
      health.state = waits ? State::kWaiting : State::kStarting;
      health.error = waits ? ended + " soon after its start, and is started again after a pause"
                           : ended + ", and is being started again";
      SetHealth(health);
      for (;; waits = true) {
        if (waits) {
          SetStarting(false);
          if (stop_->WaitFor(pause)) return;
          pause = std::min(2 * pause, kLongestRestartPause);
        }
        SetStarting(true);
        const absl::Status started = server_.Start();
        if (started.ok()) break;
        health.state = State::kWaiting;
        health.error = std::string(started.message());
        SetHealth(health);
      }
      started_at = VolumeServer::Clock::now();
      SetHealth({.state = State::kServing, .restarts = health.restarts + 1});
      SetStarting(false);
    }
  }

  VolumeHost& host_;
  const std::string volume_;
  VolumeServer server_;
  std::unique_ptr<StopSignal> stop_ = std::make_unique<StopSignal>();
  std::thread watcher_;

  mutable std::mutex state_mutex_;  // of what follows; taken after `mutex`
  std::shared_ptr<FuseDisk> disk_;
  std::optional<VolumeHealth> health_;  // nothing: not attached
  bool restart_ = false;
  bool watching_ended_ = false;
  bool starting_ = false;  // a server that has ended is being started, the health not yet known
  std::condition_variable settled_;
};

VolumeHost::VolumeHost(VolumePaths paths, ServerOptions server)
    : paths_(std::move(paths)), server_(std::move(server)) {}

VolumeHost::~VolumeHost() {
  SetObserver(nullptr);
  const std::vector<std::shared_ptr<Attached>> all = All();
  for (const std::shared_ptr<Attached>& attached : all) {
    const std::lock_guard lock(attached->mutex);
    attached->BeginEnd();
  }
  const auto latest = VolumeServer::Clock::now() + server_.end_time;
  for (const std::shared_ptr<Attached>& attached : all) {
    const std::lock_guard lock(attached->mutex);
    attached->End(latest);
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

void VolumeHost::Adopt(const std::string& volume, const FuseSession& session,
                       OwnedDescriptor connection) {
  const std::lock_guard lock(mutex_);
  // A session that this host has attached itself is newer.
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
    if (served.ok() || attached->wanted()) return served;
  }
  Forget(request.volume, std::move(attached));
  return served;
}

absl::Status VolumeHost::Grow(const std::string& volume, uint64_t size) {
  std::shared_ptr<Attached> attached = FindOrAdd(volume);
  absl::Status grown;
  {
    const std::lock_guard lock(attached->mutex);
    grown = attached->Grow(size);
    if (attached->wanted()) return grown;
  }
  Forget(volume, std::move(attached));
  return grown;
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
  for (const std::shared_ptr<Attached>& attached : All()) attached->ReportAll();
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
