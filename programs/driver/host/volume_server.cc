#include "programs/driver/host/volume_server.h"

#include <fcntl.h>
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

bool WaitForEnd(const OwnedDescriptor& process, VolumeServer::Clock::time_point latest) {
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(latest - VolumeServer::Clock::now());
  const int wait_ms = static_cast<int>(std::max(time, std::chrono::milliseconds(0)).count());
  pollfd wait = {.fd = process.number(), .events = POLLIN, .revents = 0};
  return Retry([&] { return ::poll(&wait, 1, wait_ms); }) > 0;
}

// It is this process's child, or became that when an earlier host ended: the first process of a
// container is the parent of all whose own has ended.
void Reap(const OwnedDescriptor& process) {
  siginfo_t ended = {};
  if (process.has_value()) {
    ::waitid(P_PIDFD, static_cast<id_t>(process.number()), &ended, WEXITED | WNOHANG);
  }
}

// The host asks the kernel to spare it, and a child inherits that: no one is helped if the servers,
// which are started again, are spared in place of a Pod. A process may always be made less worthy.
void SetMemoryScore(const std::string& pid, const std::string& score) {
  if (score.empty()) return;
  const OwnedDescriptor file(OpenFile("/proc/" + pid + "/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.has_value()) {
    static_cast<void>(Retry([&] { return ::write(file.number(), score.data(), score.size()); }));
  }
}

}  // namespace

absl::Status VolumeServer::Launch() {
  // One thread for each request that a client sends at once; the host's clients send one.
  absl::StatusOr<ProgramResult> result =
      RunProgram({"nbdkit", "--threads=4", "--unix", paths_.NbdSocket(id_), "--pidfile",
                  paths_.PidFile(id_), options_.plugin, "directory=" + paths_.Volume(id_),
                  "control=" + paths_.ControlSocket(id_), "revert=false"},
                 options_.start_time);
  if (absl::IsDeadlineExceeded(result.status())) {
    return absl::UnavailableError(result.status().message());
  }
  if (!result.ok()) return result.status();
  output_ = std::move(result->file);
  return result->exit_status == 0 ? absl::OkStatus() : Failed();
}

absl::Status VolumeServer::Failed() const {
  return absl::UnavailableError("nbdkit can't serve the volume: " + said());
}

// The server that runs, no matter which process has started it.
void VolumeServer::Find() {
  Reap(process_);
  process_ = FindServer(paths_.PidFile(id_), paths_.NbdSocket(id_));
}

absl::Status VolumeServer::Start() {
  const std::string control = paths_.ControlSocket(id_);
  const auto latest = Clock::now() + options_.start_time;
  bool launched = false;
  for (;;) {
    // In this order: one that has ended since is still known to have been there.
    const bool there = !FirstLine(paths_.PidFile(id_)).empty();
    Find();
    if (process_.has_value()) {
      if (launched) SetMemoryScore(FirstLine(paths_.PidFile(id_)), options_.memory_score);
      if (IsListening(control).value_or(false)) return absl::OkStatus();
      // It is starting or ending.
      WaitForEnd(process_, Clock::now() + kStartPoll);
    } else if (!launched) {
      if (absl::Status removed = End(latest); !removed.ok()) return removed;
      if (absl::Status begun = Launch(); !begun.ok()) return begun;
      launched = true;
    } else if (there) {
      return Failed();
    } else {
      std::this_thread::sleep_for(kStartPoll);
    }
    if (Clock::now() > latest) {
      return absl::UnavailableError(
          "nbdkit has started, and has not opened the volume yet; it goes on");
    }
  }
}

std::string VolumeServer::said() const {
  return output_.has_value() ? Said(output_) : std::string();
}

absl::Status VolumeServer::AskToEnd() {
  Find();
  if (process_.has_value() &&
      ::syscall(SYS_pidfd_send_signal, process_.number(), SIGTERM, nullptr, 0) != 0 &&
      errno != ESRCH) {
    return FileError(paths_.PidFile(id_), errno);
  }
  return absl::OkStatus();
}

absl::Status VolumeServer::End(Clock::time_point latest) {
  const std::string socket = paths_.NbdSocket(id_);
  if (absl::Status asked = AskToEnd(); !asked.ok()) return asked;
  if (process_.has_value()) {
    if (!WaitForEnd(process_, latest)) {
      return absl::UnavailableError(
          absl::StrCat("nbdkit was asked to end and waits for a client that is connected to ",
                       socket, ": disconnect it"));
    }
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
