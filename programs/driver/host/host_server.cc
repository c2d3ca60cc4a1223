#include "programs/driver/host/host_server.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"
#include "programs/driver/host/host_message.h"
#include "programs/driver/host/stop_signal.h"
#include "programs/driver/host/thread.h"
#include "programs/driver/host/volume_host.h"
#include "programs/driver/state/catalog.h"
#include "programs/driver/state/volume_paths.h"
#include "programs/driver/system/process.h"

namespace cbt::driver {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxConnections = 64;
constexpr std::chrono::milliseconds kLockPoll{50};
constexpr std::chrono::milliseconds kRefusalTime{100};

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

// This process writes what the kernel wants to get rid of: its own memory must not wait for that.
// Needs CAP_SYS_RESOURCE; children inherit it.
void BecomeFlusher() { ::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0); }

constexpr char kMemoryScore[] = "/proc/self/oom_score_adj";

// Small, and of no use to anybody who has lost his disk by its end. The servers get the score from
// before: they are started again.
void AvoidKillForMemory() {
  const OwnedDescriptor file(OpenFile(kMemoryScore, O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kScore = "-999";
  if (file.has_value()) {
    static_cast<void>(Retry([&] { return ::write(file.number(), kScore.data(), kScore.size()); }));
  }
}

}  // namespace

class HostServer::Core {
 public:
  explicit Core(const HostOptions& options)
      : paths_(options.state_directory),
        path_(paths_.HostSocket()),
        host_(paths_, {.plugin = options.nbdkit_plugin, .memory_score = FirstLine(kMemoryScore)}) {}

  ~Core() { Shutdown(std::chrono::milliseconds(0)); }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  absl::Status Start(const std::string& state, std::chrono::milliseconds wait) {
    if (state.empty() || state.front() != '/') {
      return absl::InvalidArgumentError("state directory: expected an absolute path");
    }
    if (absl::Status made = MakeDirectory(state, /*sync=*/true); !made.ok()) return made;
    if (absl::Status claimed = Claim(state, wait); !claimed.ok()) return claimed;
    BecomeFlusher();
    AvoidKillForMemory();
    if (absl::Status listening = Listen(); !listening.ok()) return listening;
    return StartThread(acceptor_, [this] { Accept(); });
  }

  const std::string& path() const noexcept { return path_; }

  bool IsIdle(std::chrono::milliseconds time) const {
    const std::lock_guard lock(mutex_);
    return host_.count() == 0 && Clock::now() - last_seen_ > time &&
           std::all_of(connections_.begin(), connections_.end(),
                       [](const Connection& each) { return each.ended.load(); });
  }

  void Shutdown(std::chrono::milliseconds grace) {
    const std::lock_guard lock(shutdown_);
    if (!acceptor_.joinable()) return;
    const auto latest = Clock::now() + grace;
    while (host_.count() > 0 && !kept_ && Clock::now() < latest)
      std::this_thread::sleep_for(kLockPoll);
    stop_.Set();
    acceptor_.join();
    host_.Drain();
    host_.SetObserver(nullptr);
    std::list<Connection> connections;
    {
      const std::lock_guard connections_lock(mutex_);
      for (Connection& each : connections_) ::shutdown(each.socket.number(), SHUT_RD);
      connections.swap(connections_);
    }
    for (Connection& each : connections) each.thread.join();
    ::unlink(path_.c_str());
  }

 private:
  struct Connection {
    OwnedDescriptor socket;
    std::atomic<bool> ended = false;
    std::thread thread;
  };

  // Sends what happens to the driver that keeps the sessions.
  class Keeper final : public HostObserver {
   public:
    explicit Keeper(int socket) : socket_(socket) {}
    void Kept(const std::string& volume, const FuseSession& session,
              OwnedDescriptor connection) override {
      HostMessage message = EncodeSession("kept", volume, session);
      message.descriptor = std::move(connection);
      Send(message);
    }
    void Ready() { Send({.fields = {{"do", "ready"}}, .descriptor = {}}); }
    void Dropped(const std::string& volume) override {
      Send({.fields = {{"do", "dropped"}, {"volume", volume}}, .descriptor = {}});
    }
    void Changed(const std::string& volume, const VolumeHealth& health) override {
      Send({.fields = {{"do", "state"},
                       {"volume", volume},
                       {"serving", health.serving() ? "1" : ""},
                       {"starting", health.state == VolumeHealth::State::kStarting ? "1" : ""},
                       {"failed", health.state == VolumeHealth::State::kFailed ? "1" : ""},
                       {"restarts", absl::StrCat(health.restarts)},
                       {"error", health.error}},
            .descriptor = {}});
    }

   private:
    void Send(const HostMessage& message) {
      if (!SendMessage(socket_, message).ok()) ::shutdown(socket_, SHUT_RDWR);
    }
    const int socket_;
  };

  absl::Status Claim(const std::string& state, std::chrono::milliseconds wait) {
    const std::string path = state + "/host.lock";
    lock_ = OwnedDescriptor(OpenFile(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_.has_value()) return FileError(path, errno);
    const auto latest = Clock::now() + wait;
    while (::flock(lock_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return FileError(path, errno);
      if (Clock::now() >= latest) {
        return absl::UnavailableError(state + ": another volume host has this state directory");
      }
      std::this_thread::sleep_for(kLockPoll);
    }
    return absl::OkStatus();
  }

  absl::Status Listen() {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof(address.sun_path)) {
      return absl::InvalidArgumentError(path_ + ": too long for a socket");
    }
    path_.copy(address.sun_path, path_.size());
    listener_ =
        OwnedDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // The lock is ours: a socket there is of a host that was killed.
    if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return FileError(path_, errno);
    // The mode before the name: no other process can connect in between.
    if (!listener_.has_value() || ::fchmod(listener_.number(), 0600) != 0 ||
        ::bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
            0 ||
        ::chmod(path_.c_str(), 0600) != 0 || ::listen(listener_.number(), 64) != 0) {
      return FileError(path_, errno);
    }
    return absl::OkStatus();
  }

  void Accept() {
    while (stop_.WaitUntilReadable(listener_.number())) {
      OwnedDescriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      Reap();
      if (!socket.has_value()) {
        // Without descriptors or memory the connection stays in the queue.
        static_cast<void>(stop_.WaitFor(kLockPoll));
        continue;
      }
      try {
        Admit(std::move(socket));
      } catch (const std::exception&) {
        // The driver sees the connection end, and calls again.
      }
    }
  }

  void Admit(OwnedDescriptor socket) {
    ucred peer = {};
    socklen_t size = sizeof(peer);
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        (peer.uid != ::geteuid() && peer.uid != 0)) {
      return;
    }
    const std::lock_guard lock(mutex_);
    if (connections_.size() >= kMaxConnections) return;
    connections_.emplace_back();
    absl::Cleanup drop = [this] { connections_.pop_back(); };
    Connection& connection = connections_.back();
    connection.socket = std::move(socket);
    const absl::Status started = StartThread(connection.thread, [this, &connection] {
      Converse(connection.socket.number());
      const std::lock_guard ending(mutex_);
      connection.ended = true;
      last_seen_ = Clock::now();
    });
    if (started.ok()) {
      std::move(drop).Cancel();
      return;
    }
    // The driver hears why, and calls again. A socket that is closed with a request in it would
    // lose the answer.
    ReceiveMessage(connection.socket.number(), kRefusalTime).IgnoreError();
    SendMessage(connection.socket.number(), EncodeStatus(started)).IgnoreError();
  }

  void Reap() {
    const std::lock_guard lock(mutex_);
    connections_.remove_if([](Connection& each) {
      if (!each.ended) return false;
      each.thread.join();
      return true;
    });
  }

  // Requests of one connection, until it is closed. What one of them lacks must not end the
  // process, which all volumes need.
  void Converse(int socket) noexcept {
    try {
      Answer(socket);
    } catch (const std::exception& error) {
      Excuse(socket, error);
    }
    // The caller sees the end now, not when the connection is reaped.
    ::shutdown(socket, SHUT_RDWR);
  }

  static void Excuse(int socket, const std::exception& why) noexcept {
    try {
      SendMessage(
          socket,
          EncodeStatus(absl::ResourceExhaustedError(absl::StrCat("the volume host: ", why.what()))))
          .IgnoreError();
    } catch (const std::exception&) {
      // Not even memory for that.
    }
  }

  void Answer(int socket) {
    for (;;) {
      absl::StatusOr<HostMessage> request = ReceiveMessage(socket, std::chrono::milliseconds(0));
      if (!request.ok() || stop_.IsSet()) return;
      const std::string_view verb = request->Get("do");
      const std::string volume(request->Get("volume"));
      if (verb == "keep") return Keep(socket);
      HostMessage answer;
      if (!IsVolumeId(volume)) {
        answer = EncodeStatus(absl::InvalidArgumentError("volume: is no volume's id"));
      } else if (verb == "give") {
        const absl::StatusOr<FuseSession> session = DecodeSession(*request);
        if (session.ok()) host_.Adopt(volume, *session, std::move(request->descriptor));
        continue;
      } else if (!kept_ && (verb == "serve" || verb == "grow" || verb == "stop")) {
        // It may have to give back what an earlier host has left, which must not be begun anew.
        answer = EncodeStatus(
            absl::UnavailableError("no driver keeps what this volume host attaches; call again"));
      } else if (verb == "serve") {
        answer = EncodeStatus(host_.Serve({.volume = volume,
                                           .file = !request->Get("file").empty(),
                                           .read_only = !request->Get("read_only").empty(),
                                           .again = !request->Get("again").empty()}));
      } else if (verb == "grow") {
        uint64_t size = 0;
        answer = EncodeStatus(absl::SimpleAtoi(AbslView(request->Get("size")), &size)
                                  ? host_.Grow(volume, size)
                                  : absl::InvalidArgumentError("size: is no number"));
      } else if (verb == "stop") {
        answer = EncodeStatus(host_.Stop(volume));
      } else {
        answer = EncodeStatus(absl::UnimplementedError(
            absl::StrCat("the volume host does not know '", std::string(verb), "'")));
      }
      if (!SendMessage(socket, answer).ok()) return;
    }
  }

  // One driver at a time: a second one waits until the first has gone.
  void Keep(int socket) {
    const std::lock_guard lock(keeping_);
    Keeper keeper(socket);
    const absl::Cleanup gone = [this] {
      kept_ = false;
      host_.SetObserver(nullptr);
    };
    host_.SetObserver(&keeper);
    kept_ = true;
    // The driver has learned all there is, and what it gave before is known here.
    keeper.Ready();
    // The driver says nothing more: this ends with its process, or after the drain of a shutdown.
    while (ReceiveMessage(socket, std::chrono::milliseconds(0)).ok()) {
    }
  }

  const VolumePaths paths_;
  const std::string path_;
  OwnedDescriptor lock_;
  VolumeHost host_;
  OwnedDescriptor listener_;
  StopSignal stop_;
  std::mutex shutdown_;
  std::mutex keeping_;
  std::atomic<bool> kept_ = false;
  mutable std::mutex mutex_;
  std::list<Connection> connections_;
  Clock::time_point last_seen_ = Clock::now();
  std::thread acceptor_;
};

HostServer::HostServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
HostServer::~HostServer() = default;

absl::StatusOr<std::unique_ptr<HostServer>> HostServer::Start(const HostOptions& options,
                                                              std::chrono::milliseconds wait) {
  auto core = std::make_unique<Core>(options);
  if (absl::Status started = core->Start(options.state_directory, wait); !started.ok())
    return started;
  return std::unique_ptr<HostServer>(new HostServer(std::move(core)));
}

const std::string& HostServer::address() const noexcept { return core_->path(); }
bool HostServer::IsIdle(std::chrono::milliseconds time) const { return core_->IsIdle(time); }
void HostServer::Shutdown(std::chrono::milliseconds grace) { core_->Shutdown(grace); }

}  // namespace cbt::driver
