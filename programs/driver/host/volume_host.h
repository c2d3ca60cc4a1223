// Keeps volumes attached: their servers run and their files are there, whatever happens to the
// driver.
#ifndef CBT_PROGRAMS_DRIVER_HOST_VOLUME_HOST_H_
#define CBT_PROGRAMS_DRIVER_HOST_VOLUME_HOST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/host/fuse_disk.h"
#include "programs/driver/host/volume_server.h"
#include "programs/driver/state/volume_paths.h"

namespace cbt::driver {

struct ServeRequest {
  std::string volume;
  // Show it as a file, for a loop device; otherwise only its server is wanted, for the kernel's NBD
  // client.
  bool file = true;
  bool read_only = false;  // the file
  // Something uses the volume already, above the file of an earlier connection. Another file would
  // be of no use to it, and would look as if it were served: so only that connection is gone on
  // with. False: nothing does.
  bool again = false;
};

struct VolumeHealth {
  enum class State : uint8_t {
    kServing,
    kStarting,  // its server has ended and is being started again: what comes next comes soon
    kWaiting,   // its requests wait: for its server, or while it is being attached
    kFailed,  // its requests fail, for good: whatever uses it must be ended, and it be staged again
    kUnknown,  // a host has to say; used by drivers only
  };

  State state = State::kServing;
  uint64_t restarts = 0;   // of the server, since it was attached
  std::string error = {};  // why it is not served

  bool serving() const noexcept { return state == State::kServing; }
  friend bool operator==(const VolumeHealth&, const VolumeHealth&) = default;
};

// Receives a host's sessions and what changes. Called from several threads, one call at a time.
class HostObserver {
 public:
  virtual ~HostObserver() = default;
  // `connection` has no value if only the session has changed.
  virtual void Kept(const std::string& volume, const FuseSession& session,
                    OwnedDescriptor connection) = 0;
  virtual void Dropped(const std::string& volume) = 0;
  virtual void Changed(const std::string& volume, const VolumeHealth& health) = 0;
};

// Thread safe; calls for one volume wait for each other. Volumes are found by looking at the system
// where this process did not attach them itself.
class VolumeHost {
 public:
  VolumeHost(VolumePaths paths, ServerOptions server);
  // Ends all servers, and leaves files and devices as they are: requests wait for the next host if
  // somebody keeps the sessions, otherwise they fail.
  ~VolumeHost();
  VolumeHost(const VolumeHost&) = delete;
  VolumeHost& operator=(const VolumeHost&) = delete;

  // Serves the volume. A file outlives its server, which is started again whenever it ends. Without
  // a file, the server's clients have seen errors, and the next call starts it.
  // Errors: those of VolumeServer::Start() and FuseDisk::Mount(); DATA_LOSS with `again` if there
  //         is nothing to go on with. With `again`, the health has them too.
  absl::Status Serve(const ServeRequest& request);
  // Lets the volume's file have `size` bytes, which the volume has already. OK if it has no file,
  // or one that is not smaller. Errors: UNAVAILABLE while it is not served, OUT_OF_RANGE if the
  // volume is smaller.
  absl::Status Grow(const std::string& volume, uint64_t size);
  // Everything that was written to it must be flushed. OK if it is not attached.
  // Errors: FAILED_PRECONDITION while it is in use.
  absl::Status Stop(const std::string& volume);

  // A session that an earlier host has left, for Serve().
  void Adopt(const std::string& volume, const FuseSession& session, OwnedDescriptor connection);

  // Reports the present state to `observer`, then every change until SetObserver(nullptr) has
  // returned.
  void SetObserver(HostObserver* observer);
  // Answers what has been read and reads no more; the observer learns how that went.
  void Drain();
  // Volumes that are attached.
  size_t count() const;

 private:
  class Attached;

  std::shared_ptr<Attached> FindOrAdd(const std::string& volume);
  void Forget(const std::string& volume, std::shared_ptr<Attached> attached);
  std::vector<std::shared_ptr<Attached>> All() const;
  // The session that was given for the volume, if any.
  bool Take(const std::string& volume, FuseSession& session, OwnedDescriptor& connection);
  void PutBack(const std::string& volume, const FuseSession& session, OwnedDescriptor connection);
  template <typename Call>
  void CallObserver(Call call);

  const VolumePaths paths_;
  const ServerOptions server_;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Attached>> attached_;
  std::map<std::string, std::pair<FuseSession, OwnedDescriptor>> given_;

  std::mutex observer_mutex_;  // taken last
  HostObserver* observer_ = nullptr;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_VOLUME_HOST_H_
