// Shared locks, which keep others from removing what is being read or written.
#ifndef CBT_REPOSITORY_LOCK_H_
#define CBT_REPOSITORY_LOCK_H_

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "repository/file_store.h"

namespace cbt::repository {

// What a file of a lock says.
struct LockFile {
  absl::Time time = absl::UnixEpoch();
  bool exclusive = false;
  std::string host = {};
  std::string user = {};
  uint64_t pid = 0;

  // As restic judges: older than half an hour, or of a process of this host that has ended.
  bool IsStale(absl::Time now, std::string_view host_name) const;
};

// Errors: DATA_LOSS.
absl::StatusOr<LockFile> DecodeLock(std::string_view json);
std::string EncodeLock(const LockFile& lock);

struct LockOptions {
  std::chrono::milliseconds refresh{std::chrono::minutes(5)};
  // A lock that could not be refreshed for so long is not made new any more.
  std::chrono::milliseconds expiry{std::chrono::seconds(1350)};
  // After so long others may take it for stale, as restic does, and remove what it protects.
  std::chrono::milliseconds stale{std::chrono::minutes(30)};
  // restic's pause between writing a lock and looking for others that were written meanwhile.
  std::chrono::milliseconds pause{200};
};

// A shared lock, refreshed until the destructor removes it.
class SharedLock {
 public:
  // `store` must outlive the lock.
  // Errors: FAILED_PRECONDITION that says who holds the repository exclusively, also where that lock
  //         is stale: only its owner, or `restic unlock`, can know that nothing is removed any more.
  static absl::StatusOr<std::unique_ptr<SharedLock>> Take(FileStore& store,
                                                          LockOptions options = {});
  // The same without the pause and the look after it, which Confirm() makes up for. Meanwhile files
  // may be read, but nothing may rely on what was read: an exclusive lock that was written at the
  // same time has not been seen.
  static absl::StatusOr<std::unique_ptr<SharedLock>> Begin(FileStore& store,
                                                           LockOptions options = {});
  // Waits for the rest of the pause. Errors: as Take().
  absl::Status Confirm();
  ~SharedLock();
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

  // OK while what this lock protects can't have been removed: call it before publishing a snapshot.
  // Errors: ABORTED if the lock was removed, or is so old that others may have taken it for stale;
  //         that of the store.
  absl::Status Check();

 private:
  SharedLock(FileStore& store, LockOptions options) : store_(store), options_(options) {}

  absl::Status Write();
  absl::Status CheckForExclusive();
  void Refresh();
  // Since the lock was written: by the clock that others judge it by, or more, if that was set back
  // or the machine slept. Requires: mutex_.
  absl::Duration Age() const;

  FileStore& store_;
  const LockOptions options_;
  std::chrono::steady_clock::time_point written_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  bool held_ = false;
  Id id_;
  absl::Time refreshed_ = absl::UnixEpoch();
  absl::Duration refreshed_boot_;  // the same since the machine was started
  std::thread thread_;
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_LOCK_H_
