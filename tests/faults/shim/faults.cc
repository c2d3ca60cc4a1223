// A preloaded library that makes a program's n-th call fail, fall short, be interrupted, or end the
// process.
//
//   FAULT_BELOW    the directory whose files count
//   FAULT_SOCKETS  1: sockets count too
//   FAULT_STDIN    1: standard input counts as a file
//   FAULT_KIND     a name in kFaults. Calls that cannot have this fault are not counted
//   FAULT_AT       the call to hit, from 1; killat: microseconds after the first call
//   FAULT_THEN     1: hit all later calls too
//   FAULT_FIRED    a file for the name of the call that was hit
//   FAULT_INODES   1: files of one name have one inode number in all directories, as a file and its
//                  snapshots have on some file systems
//   FAULT_COLD     1: getrusage() reports a voluntary context switch each time, as if no file
//                  were in the page cache; otherwise it never does
//   FAULT_COUNT    a file for the number of counted calls
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/faults/shim/calls.h"

namespace cbt::test {
namespace {

struct Fault {
  const char* name;
  int error;        // 0: does not fail the call
  unsigned traits;  // hits calls with one of these
};

constexpr unsigned kAny = kOnFile | kOnSocket;
constexpr Fault kFaults[] = {
    {"eio", EIO, kOnFile},
    {"enospc", ENOSPC, kTakesSpace},
    {"enomem", ENOMEM, kTakesMemory},
    {"emfile", EMFILE, kMakesDescriptor},
    {"reset", ECONNRESET, kOnConnection},
    {"eintr", EINTR, kInterruptible},
    {"short", 0, kMovesBytes},
    {"kill", 0, kAny},
    {"killafter", 0, kAny},
    {"killat", 0, kAny},
};

// The kernel ends the process, wherever it is by then.
void KillIn(long microseconds) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer;
  const itimerspec when{{}, {microseconds / 1000000, microseconds % 1000000 * 1000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &when, nullptr);
}

const char* Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

const Fault* Planned() {
  static const Fault* const planned = []() -> const Fault* {
    const char* const kind = Setting("FAULT_KIND");
    for (const Fault& fault : kFaults) {
      if (strcmp(fault.name, kind) == 0) return &fault;
    }
    return nullptr;
  }();
  return planned;
}

// Bypasses the wrappers, which would count it.
void WriteTo(const char* path, const char* text) {
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) return;
  syscall(SYS_write, file, text, strlen(text));
  syscall(SYS_close, file);
}

// A number that depends on the name alone.
ino_t InodeOf(int descriptor) {
  char link[32];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) abort();
  path[length] = '\0';
  ino_t number = 1;
  for (const char* letter = strrchr(path, '/'); *letter != '\0'; ++letter) {
    number = number * 31 + static_cast<unsigned char>(*letter);
  }
  return number;
}

std::atomic<long> calls{0};
std::atomic<const Attempt*> last{nullptr};  // the process ends after it

// The parent opened the file on standard input.
[[gnu::constructor]] void WatchInput() {
  if (strcmp(Setting("FAULT_STDIN"), "1") == 0) SetKind(0, DescriptorKind::kFile);
}

// The number of calls, for tests that pick some of many.
[[gnu::destructor]] void TellCount() {
  const char* const path = Setting("FAULT_COUNT");
  if (*path == '\0') return;
  char text[32];
  snprintf(text, sizeof(text), "%ld\n", calls.load());
  WriteTo(path, text);
}

}  // namespace

const char* WatchedDirectory() {
  static const char* const directory = Setting("FAULT_BELOW");
  return directory;
}

bool WatchSockets() {
  static const bool sockets = strcmp(Setting("FAULT_SOCKETS"), "1") == 0;
  return sockets;
}

Verdict Before(const Attempt& attempt) {
  static const long at = atol(Setting("FAULT_AT"));
  static const bool then = strcmp(Setting("FAULT_THEN"), "1") == 0;
  const Fault* const fault = Planned();
  if (fault == nullptr || (attempt.call.traits & fault->traits) == 0) return Verdict::kPass;
  const long number = ++calls;
  if (strcmp(fault->name, "killat") == 0) {
    if (number == 1) KillIn(at);
    return Verdict::kPass;
  }
  if (number == at) WriteTo(Setting("FAULT_FIRED"), attempt.call.name);
  if (number != at && !(then && at > 0 && number > at)) return Verdict::kPass;
  if (strcmp(fault->name, "kill") == 0) raise(SIGKILL);
  if (strcmp(fault->name, "killafter") == 0) last = &attempt;
  if (strcmp(fault->name, "short") == 0) return Verdict::kShort;
  if (fault->error == 0) return Verdict::kPass;
  errno = fault->error;
  return Verdict::kFail;
}

void After(const Attempt& attempt, long result) {
  static const bool inodes = strcmp(Setting("FAULT_INODES"), "1") == 0;
  if (inodes && result == 0 && attempt.status != nullptr && S_ISREG(attempt.status->st_mode)) {
    attempt.status->st_ino = InodeOf(attempt.descriptor);
  }
  if (last == &attempt) raise(SIGKILL);
}

}  // namespace cbt::test

// Decides here, and not by the machine's load, how a program treats files outside the page cache,
// so that every run makes the same calls.
extern "C" int getrusage(__rusage_who_t who, struct rusage* usage) noexcept {
  static const bool cold = strcmp(cbt::test::Setting("FAULT_COLD"), "1") == 0;
  static std::atomic<long> asked{0};
  const int result = CBT_REAL(getrusage)(who, usage);
  if (result == 0 && who == RUSAGE_THREAD) usage->ru_nvcsw = cold ? ++asked : 0;
  return result;
}
