// A volume as a file that outlives the process that shows it.
#ifndef CBT_PROGRAMS_DRIVER_HOST_FUSE_DISK_H_
#define CBT_PROGRAMS_DRIVER_HOST_FUSE_DISK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "programs/driver/host/nbd_connection.h"
#include "programs/driver/host/stop_signal.h"

namespace cbt::driver {

// What a process must know to go on with a FuseDisk, beside its descriptor.
struct FuseSession {
  uint64_t size = 0;  // of the file, bytes
  bool read_only = false;
  // The kernel repeats what an earlier process had read but not answered (Linux 6.9).
  bool resends = false;
  // Nothing was left unanswered.
  bool clean = false;
};

// A file system with one file, `disk`, whose bytes an NBD server has. Speaks FUSE's protocol itself
// (linux/fuse.h, versions 7.31 and later): libfuse can't go on with a connection that another
// process has opened. As long as any process has the descriptor of the connection, the mount, its
// open files and the loop devices above it wait for answers instead of failing.
//
// Uses four threads, each with a buffer of 1 MiB and a connection to the server.
class FuseDisk {
 public:
  static constexpr char kFileName[] = "disk";

  // Mounts at `directory`, which exists; needs CAP_SYS_ADMIN. `socket`: of the NBD server; `size`:
  // of the volume, bytes.
  // Errors: FAILED_PRECONDITION without FUSE or if the kernel's is too old, RESOURCE_EXHAUSTED
  //         without threads, file errors.
  static absl::StatusOr<std::unique_ptr<FuseDisk>> Mount(const std::string& directory,
                                                         const std::string& socket, uint64_t size,
                                                         bool read_only);
  // Goes on with a connection whose process has ended, with a duplicate of it. Once it has returned
  // OK the session is not clean any more: the process that keeps it must know before.
  // Errors: FAILED_PRECONDITION if requests may have been lost, as the kernel can't repeat them and
  //         their senders would never get an answer, or if the connection was aborted. After
  //         others, such as RESOURCE_EXHAUSTED, nothing has been read: call again.
  static absl::StatusOr<std::unique_ptr<FuseDisk>> Adopt(const OwnedDescriptor& connection,
                                                         const FuseSession& session,
                                                         const std::string& socket);
  // Stops answering. Does not unmount: unless another process has the descriptor, all requests fail
  // from then on.
  ~FuseDisk();
  FuseDisk(const FuseDisk&) = delete;
  FuseDisk& operator=(const FuseDisk&) = delete;

  // As the destructor, and says how it went: `clean` is set in session() if every request that was
  // read has been answered. Waits for requests that the server is at.
  void Stop();

  // The volume has at least `size` bytes, and the file from here on as well; it never gets smaller.
  // The kernel learns of it when it next looks at the file's attributes.
  // Errors: as FileError(), where the kernel goes on with the attributes that it has.
  absl::Status Grow(uint64_t size);

  // A duplicate, for another process to keep. Errors: as FileError().
  absl::StatusOr<OwnedDescriptor> Duplicate() const;
  FuseSession session() const;
  // It was unmounted, or its connection was aborted.
  bool ended() const noexcept { return HasEnded(connection_); }
  // The same of any duplicate. Asks the kernel, and never waits.
  static bool HasEnded(const OwnedDescriptor& connection) noexcept;

 private:
  struct Worker;

  FuseDisk(OwnedDescriptor connection, const FuseSession& session, std::string socket);

  absl::Status Negotiate();
  // Starts all of them or none. They read once `begin` has returned OK.
  template <typename Begin>
  absl::Status StartWorkers(Begin begin);
  void Work(Worker& worker);
  // Answers the request in the worker's buffer.
  void Handle(Worker& worker, size_t bytes);
  void Reply(uint64_t unique, int error, std::span<const uint8_t> body) const;

  const OwnedDescriptor connection_;
  FuseSession session_;  // but for the size
  std::atomic<uint64_t> size_;
  const std::string socket_;
  StopSignal stop_;
  std::atomic<bool> abandoned_ = false;
  std::mutex starting_;  // held until all workers have been started
  std::vector<std::unique_ptr<Worker>> buffers_;
  std::vector<std::thread> workers_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_FUSE_DISK_H_
