#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <list>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "programs/volume/control.h"
#include "programs/volume/control_lines.h"

namespace cbt::volume {
namespace {

using Clock = LineChannel::Clock;

// A client that does not read its answer for so long is disconnected.
constexpr std::chrono::seconds kWriteLimit(10);
// The longest that a client can hold writes: kernels complain of a write that takes two minutes.
constexpr uint64_t kMostHoldSeconds = 60;

// Puts a page of `all` into `entries`.
template <typename Entry>
absl::Status Page(const std::vector<Entry>& all, const std::string& after,
                  std::vector<Entry>& entries, bool& more) {
  auto begin = all.begin();
  if (!after.empty()) {
    begin =
        std::find_if(all.begin(), all.end(), [&](const Entry& each) { return each.id == after; });
    if (begin == all.end()) {
      return absl::AbortedError(
          absl::StrCat("snapshot \"", after, "\" has gone: list from the beginning"));
    }
    ++begin;
  }
  const auto count = std::min<std::ptrdiff_t>(all.end() - begin, kMaxPage);
  entries.assign(begin, begin + count);
  more = begin + count != all.end();
  return absl::OkStatus();
}

ControlAnswer Carry(TrackedVolume& volume, const ControlRequest& request, bool allow_revert) {
  const auto one = [](absl::StatusOr<SnapshotInfo> info) {
    ControlAnswer answer{.status = info.status()};
    if (info.ok()) answer.snapshots.push_back(*std::move(info));
    return answer;
  };
  switch (request.kind) {
    case ControlRequest::Kind::kSnapshot:
      return one(volume.TakeSnapshot(request.id));
    case ControlRequest::Kind::kDelete:
      return {.status = volume.DeleteSnapshot(request.id, request.marks)};
    case ControlRequest::Kind::kList: {
      ControlAnswer answer;
      answer.status = Page(volume.snapshots(), request.after, answer.snapshots, answer.more);
      return answer;
    }
    case ControlRequest::Kind::kMarks: {
      ControlAnswer answer;
      answer.status = Page(volume.marks(), request.after, answer.marks.emplace(), answer.more);
      return answer;
    }
    case ControlRequest::Kind::kFind:
      return one(volume.FindSnapshot(request.id));
    case ControlRequest::Kind::kResize:
      return {.status = volume.Resize(request.capacity)};
    case ControlRequest::Kind::kRevert:
      if (!allow_revert) {
        return {.status = absl::FailedPreconditionError(
                    "this server reverts nothing: its volume may be mounted; unstage the volume "
                    "first, and serve it by itself")};
      }
      return {.status = volume.Revert(request.id)};
    case ControlRequest::Kind::kHold:  // the session's
    case ControlRequest::Kind::kStatus:
      break;
  }
  return {.status = absl::OkStatus(), .volume = volume.status()};
}

}  // namespace

class ControlServer::Core {
 public:
  Core(TrackedVolume& volume, const ControlServerOptions& options)
      : volume_(volume), options_(options) {}

  ~Core() {
    if (acceptor_.joinable()) {
      const uint64_t one = 1;
      static_cast<void>(Retry([&] { return ::write(wake_.number(), &one, sizeof(one)); }));
      acceptor_.join();
    }
    // Requests end, and their answers are still sent.
    for (Session& session : sessions_) ::shutdown(session.socket.number(), SHUT_RD);
    for (Session& session : sessions_) session.thread.join();
    if (bound_) ::unlink(options_.path.c_str());
  }

  absl::Status Start() {
    const absl::StatusOr<sockaddr_un> address = SocketAddress(options_.path);
    if (!address.ok()) return address.status();
    if (absl::Status status = MakeRoom(*address); !status.ok()) return status;
    listener_ = OwnedDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    wake_ = OwnedDescriptor(::eventfd(0, EFD_CLOEXEC));
    // The mode before the name: no one else can connect in between. Again after it, without the
    // process's mask.
    if (!listener_.has_value() || !wake_.has_value() ||
        ::fchmod(listener_.number(), options_.mode) != 0) {
      return FileError(options_.path, errno);
    }
    if (::bind(listener_.number(), reinterpret_cast<const sockaddr*>(&*address),
               sizeof(*address)) != 0) {
      return errno == EADDRINUSE ? Taken() : FileError(options_.path, errno);
    }
    bound_ = true;
    if (::chmod(options_.path.c_str(), options_.mode) != 0 ||
        ::listen(listener_.number(), 64) != 0) {
      return FileError(options_.path, errno);
    }
    acceptor_ = std::thread([this] { Accept(); });
    return absl::OkStatus();
  }

 private:
  struct Session {
    OwnedDescriptor socket;
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  absl::Status Taken() const {
    return absl::AlreadyExistsError(absl::StrCat(options_.path, ": is in use"));
  }

  // Removes a socket that no server listens at.
  absl::Status MakeRoom(const sockaddr_un& address) const {
    struct stat stat;
    if (::lstat(options_.path.c_str(), &stat) != 0) {
      return errno == ENOENT ? absl::OkStatus() : FileError(options_.path, errno);
    }
    if (!S_ISSOCK(stat.st_mode)) return Taken();
    const OwnedDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.has_value()) return FileError(options_.path, errno);
    if (::connect(probe.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0 ||
        errno != ECONNREFUSED) {
      return Taken();
    }
    return ::unlink(options_.path.c_str()) == 0 ? absl::OkStatus()
                                                : FileError(options_.path, errno);
  }

  void Accept() {
    for (;;) {
      pollfd waits[2] = {{.fd = listener_.number(), .events = POLLIN, .revents = 0},
                         {.fd = wake_.number(), .events = POLLIN, .revents = 0}};
      if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
      if (waits[1].revents != 0) return;
      OwnedDescriptor socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      const int error = errno;
      Reap();
      if (!socket.has_value()) {
        // Without descriptors or memory: the connection stays in the queue.
        if (error != EAGAIN && error != EINTR && error != ECONNABORTED) ::poll(&waits[1], 1, 100);
        continue;
      }
      if (sessions_.size() >= options_.max_clients) {
        LineChannel(socket.number(), kMaxRequestBytes)
            .Write(Encode(ControlAnswer{
                       .status = absl::ResourceExhaustedError("too many control connections")}),
                   Clock::now() + std::chrono::milliseconds(100))
            .IgnoreError();
        continue;
      }
      Admit(std::move(socket));
    }
  }

  void Admit(OwnedDescriptor socket) {
    Session& session = sessions_.emplace_back();
    session.socket = std::move(socket);
    try {
      session.thread = std::thread([this, &session] {
        Serve(session.socket.number());
        // First: a client that sees the end may connect again at once, and has a place then.
        session.ended.store(true);
        // The client sees the end now, not when the session is reaped.
        ::shutdown(session.socket.number(), SHUT_RDWR);
      });
    } catch (const std::system_error&) {
      sessions_.pop_back();  // no thread: the client sees the connection end
    }
  }

  void Reap() {
    for (auto session = sessions_.begin(); session != sessions_.end();) {
      if (!session->ended.load()) {
        ++session;
        continue;
      }
      session->thread.join();
      session = sessions_.erase(session);
    }
  }

  void Serve(int socket) noexcept {
    try {
      LineChannel channel(socket, kMaxRequestBytes);
      // Ends with the session, which ends when its time is over: what a client asks of it after the
      // hold has no answer, and so never counts as asked within it.
      std::optional<WriteHold> hold;
      Clock::time_point hold_end = Clock::time_point::max();
      for (;;) {
        const absl::StatusOr<std::string> line = channel.Read(
            std::min(hold_end, Clock::now() + std::chrono::seconds(options_.idle_seconds)));
        ControlAnswer answer;
        if (!line.ok()) {
          if (!absl::IsOutOfRange(line.status())) return;
          answer.status = absl::InvalidArgumentError(line.status().message());
        } else if (absl::StatusOr<ControlRequest> request = DecodeRequest(*line); !request.ok()) {
          answer.status = request.status();
        } else if (Clock::now() >= hold_end) {
          return;
        } else if (request->kind == ControlRequest::Kind::kHold) {
          if (!hold.has_value()) {
            hold_end =
                Clock::now() + std::chrono::seconds(std::min(request->seconds, kMostHoldSeconds));
            absl::StatusOr<WriteHold> held = volume_.HoldWrites();
            answer.status = held.status();
            if (held.ok()) hold.emplace(*std::move(held));
          }
        } else {
          answer = Carry(volume_, *request, options_.allow_revert);
        }
        const absl::Status sent = channel.Write(Encode(answer), Clock::now() + kWriteLimit);
        if (!sent.ok() || !line.ok()) return;
      }
    } catch (const std::bad_alloc&) {
      // The client sees the connection end, and may repeat its request.
    }
  }

  TrackedVolume& volume_;
  const ControlServerOptions options_;
  OwnedDescriptor listener_;
  OwnedDescriptor wake_;
  bool bound_ = false;
  std::thread acceptor_;
  std::list<Session> sessions_;  // of the acceptor's thread, then of the destructor's
};

ControlServer::ControlServer(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ControlServer::~ControlServer() = default;

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(
    TrackedVolume& volume, const ControlServerOptions& options) {
  auto core = std::make_unique<Core>(volume, options);
  if (absl::Status status = core->Start(); !status.ok()) return status;
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(core)));
}

}  // namespace cbt::volume
