#include "programs/driver/host/volume_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "programs/driver/system/process.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kStartPoll{20};
constexpr std::chrono::seconds kStartTime{30};
constexpr std::chrono::seconds kStopTime{30};

// The nbdkit that the file names, if it runs and serves exactly this socket; other programs may
// name the socket too. The descriptor is opened first: a number that has been given to another
// process can't pass the check and then be signalled.
OwnedDescriptor FindServer(const std::string& pid_file, const std::string& socket) {
  pid_t pid = 0;
  if (!absl::SimpleAtoi(FirstLine(pid_file), &pid) || pid <= 1) return {};
  OwnedDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.has_value()) return {};
  const std::vector<std::string> command = CommandOf(pid);
  if (command.empty()) return {};
  const std::string& program = command.front();
  const bool serves = program.substr(program.rfind('/') + 1) == "nbdkit" &&
                      std::find(command.begin(), command.end(), socket) != command.end();
  return serves ? std::move(process) : OwnedDescriptor();
}

bool WaitForEnd(const OwnedDescriptor& process, std::chrono::milliseconds time) {
  pollfd wait = {.fd = process.number(), .events = POLLIN, .revents = 0};
  return Retry([&] { return ::poll(&wait, 1, static_cast<int>(time.count())); }) > 0;
}

// The first process of a container is the parent of all that stay in the background.
void Reap(const OwnedDescriptor& process) {
  siginfo_t ended = {};
  if (process.has_value()) {
    ::waitid(P_PIDFD, static_cast<id_t>(process.number()), &ended, WEXITED | WNOHANG);
  }
}

}  // namespace

absl::Status VolumeServer::Start() {
  Reap(process_);
  const std::string control = paths_.ControlSocket(id_);
  const std::string socket = paths_.NbdSocket(id_);
  process_ = FindServer(paths_.PidFile(id_), socket);
  if (process_.has_value() && IsListening(control).value_or(false)) return absl::OkStatus();
  // One that is starting or ending.
  if (absl::Status ended = End(); !ended.ok()) return ended;
  const absl::StatusOr<std::string> started =
      CallProgram({"nbdkit", "--unix", socket, "--pidfile", paths_.PidFile(id_), plugin_,
                   "folder=" + paths_.Volume(id_), "control=" + control});
  if (!started.ok()) return started.status();
  const auto latest = std::chrono::steady_clock::now() + kStartTime;
  while (!IsListening(control).value_or(false)) {
    if (std::chrono::steady_clock::now() > latest) {
      return absl::UnavailableError("nbdkit has started, but does not answer at " + control);
    }
    std::this_thread::sleep_for(kStartPoll);
  }
  process_ = FindServer(paths_.PidFile(id_), socket);
  return process_.has_value() ? absl::OkStatus()
                              : absl::UnavailableError("nbdkit ended as soon as it had started");
}

absl::Status VolumeServer::End() {
  const std::string socket = paths_.NbdSocket(id_);
  process_ = FindServer(paths_.PidFile(id_), socket);
  if (process_.has_value()) {
    if (::syscall(SYS_pidfd_send_signal, process_.number(), SIGTERM, nullptr, 0) != 0 &&
        errno != ESRCH) {
      return FileError(paths_.PidFile(id_), errno);
    }
    if (!WaitForEnd(process_, kStopTime)) return absl::UnavailableError("nbdkit does not end");
    Reap(process_);
    process_ = {};
  } else if (const absl::StatusOr<bool> served = IsListening(paths_.ControlSocket(id_));
             !served.ok()) {
    return served.status();
  } else if (*served) {
    return absl::FailedPreconditionError(
        "the volume is served by a process that is not the driver's");
  }
  for (const std::string& file : {socket, paths_.ControlSocket(id_), paths_.PidFile(id_)}) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return FileError(file, errno);
  }
  return absl::OkStatus();
}

}  // namespace cbt::driver
