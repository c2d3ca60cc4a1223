#include "repository/lock.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "repository/host.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

constexpr uint64_t kMaxLockBytes = 64 * 1024;
constexpr size_t kMaxLocks = 10'000;
constexpr absl::Duration kStaleAfter = absl::Minutes(30);

bool IsRunning(uint64_t pid) {
  if (pid == 0 || pid > static_cast<uint64_t>(std::numeric_limits<pid_t>::max())) return false;
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

// Goes on while the machine sleeps, and can't be set.
absl::Duration SinceBoot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

bool LockFile::IsStale(absl::Time now, std::string_view host_name) const {
  return now - time > kStaleAfter || (host == host_name && !IsRunning(pid));
}

absl::StatusOr<LockFile> DecodeLock(std::string_view json) {
  std::string text(json);
  rapidjson::Document object;
  if (absl::Status parsed = ParseObject(text, object); !parsed.ok()) return parsed;
  const std::optional<absl::Time> time = ParseTimeText(TextOf(object, "time"));
  if (!time.has_value()) return absl::DataLossError("is a lock without a time");
  LockFile lock;
  lock.time = *time;
  lock.exclusive = BoolOf(object, "exclusive");
  lock.host = TextOf(object, "hostname");
  lock.user = TextOf(object, "username");
  lock.pid = NumberOf(object, "pid").value_or(0);
  return lock;
}

std::string EncodeLock(const LockFile& lock) {
  JsonBuilder json;
  json.BeginObject().Field("time", TimeText(lock.time)).Field("exclusive", lock.exclusive);
  json.Field("hostname", lock.host).Field("username", lock.user).Field("pid", lock.pid);
  return json.EndObject().Take();
}

absl::StatusOr<std::unique_ptr<SharedLock>> SharedLock::Begin(FileStore& store,
                                                              LockOptions options) {
  std::unique_ptr<SharedLock> lock(new SharedLock(store, options));
  if (absl::Status alone = lock->CheckForExclusive(); !alone.ok()) return alone;
  if (absl::Status written = lock->Write(); !written.ok()) return written;
  lock->written_ = std::chrono::steady_clock::now();
  lock->thread_ = std::thread([self = lock.get()] { self->Refresh(); });
  return lock;
}

absl::StatusOr<std::unique_ptr<SharedLock>> SharedLock::Take(FileStore& store,
                                                             LockOptions options) {
  absl::StatusOr<std::unique_ptr<SharedLock>> lock = Begin(store, options);
  if (!lock.ok()) return lock;
  if (absl::Status alone = (*lock)->Confirm(); !alone.ok()) return alone;
  return lock;
}

absl::Status SharedLock::Confirm() {
  // Of two who write their locks at once, each sees the other's after the pause.
  std::this_thread::sleep_until(written_ + options_.pause);
  return CheckForExclusive();
}

SharedLock::~SharedLock() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
  // A lock that stays is stale once the process has ended.
  if (held_) store_.Remove(FileKind::kLock, id_).IgnoreError();
}

absl::Status SharedLock::Write() {
  const absl::Time now = absl::Now();
  const absl::Duration boot = SinceBoot();
  const absl::StatusOr<Id> id =
      store_.Save(FileKind::kLock, EncodeLock({.time = now,
                                               .exclusive = false,
                                               .host = HostName(),
                                               .user = UserName(),
                                               .pid = static_cast<uint64_t>(::getpid())}));
  if (!id.ok()) return id.status();
  Id old;
  bool had = false;
  {
    const std::lock_guard lock(mutex_);
    old = id_;
    had = held_;
    id_ = *id;
    held_ = true;
    refreshed_ = now;
    refreshed_boot_ = boot;
  }
  // The new lock is there before the old one goes.
  if (had) store_.Remove(FileKind::kLock, old).IgnoreError();
  return absl::OkStatus();
}

absl::Duration SharedLock::Age() const {
  return std::max(absl::Now() - refreshed_, SinceBoot() - refreshed_boot_);
}

absl::Status SharedLock::CheckForExclusive() {
  const absl::StatusOr<std::vector<FileInfo>> files = store_.ListAll(FileKind::kLock, kMaxLocks);
  if (!files.ok()) return files.status();
  std::optional<Id> own;
  {
    const std::lock_guard lock(mutex_);
    if (held_) own = id_;
  }
  for (const FileInfo& file : *files) {
    if (file.id == own) continue;
    const absl::StatusOr<std::string> text = store_.Load(FileKind::kLock, file.id, kMaxLockBytes);
    if (absl::IsNotFound(text.status())) continue;  // removed meanwhile
    const absl::StatusOr<LockFile> other =
        text.ok() ? DecodeLock(*text) : absl::StatusOr<LockFile>(text.status());
    if (absl::IsDataLoss(other.status())) {
      return absl::FailedPreconditionError(absl::StrCat(
          store_.NameOf(FileKind::kLock, file.id),
          ": is a damaged lock, which may be exclusive; "
          "`restic unlock --remove-all` removes it, if nothing else uses the repository"));
    }
    if (!other.ok()) return other.status();
    if (!other->exclusive) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        store_.name(), ": is locked exclusively by ", other->user, "@", other->host, " (pid ",
        other->pid, ") since ", TimeText(other->time),
        other->IsStale(absl::Now(), HostName()) ? "; the lock is stale, `restic unlock` removes it"
                                                : "; try again when that has ended"));
  }
  return absl::OkStatus();
}

void SharedLock::Refresh() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, options_.refresh, [this] { return end_; })) {
    // An expired lock is not made new: others may have acted on its end already.
    if (Age() > absl::FromChrono(options_.expiry)) continue;
    lock.unlock();
    // Check() sees what was not refreshed, for want of memory too.
    try {
      Write().IgnoreError();
    } catch (const std::exception&) {
      // The next time perhaps.
    }
    lock.lock();
  }
}

absl::Status SharedLock::Check() {
  Id id;
  absl::Duration age;
  {
    const std::lock_guard lock(mutex_);
    id = id_;
    age = Age();
  }
  if (age > absl::FromChrono(options_.stale)) {
    return absl::AbortedError(
        absl::StrCat(store_.name(), ": the lock of this process could not be refreshed for ",
                     absl::FormatDuration(absl::Trunc(age, absl::Seconds(1))),
                     ", so that others may have removed what it relies on; start again"));
  }
  absl::StatusOr<std::string> text = store_.Load(FileKind::kLock, id, kMaxLockBytes);
  if (absl::IsNotFound(text.status())) {
    // The refresh may just have replaced it.
    const std::lock_guard lock(mutex_);
    // cppcheck-suppress knownConditionTrueFalse  // another thread refreshes
    if (id_ != id) return absl::OkStatus();
  }
  if (absl::IsNotFound(text.status())) {
    return absl::AbortedError(
        absl::StrCat(store_.name(), ": the lock of this process was removed",
                     age > absl::FromChrono(options_.expiry) ? " after it had expired" : "",
                     ", so that what it relies on may be gone; start again"));
  }
  return text.status();
}

}  // namespace cbt::repository
