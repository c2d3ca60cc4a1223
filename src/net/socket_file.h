// The file of a Unix socket that a server listens on, and the lock beside it.
#ifndef CBT_NET_SOCKET_FILE_H_
#define CBT_NET_SOCKET_FILE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::net {

// Who may connect to a Unix socket.
inline constexpr mode_t kSocketMode = 0660;

// Claims a socket path for one server. gRPC itself removes any socket that it finds at the path, so
// a second server would silently take the first one's clients.
class SocketFile {
 public:
  // Locks `<path>.lock`, then checks `path`, which must not exist or be a stale socket, which is
  // removed.
  // Errors: INVALID_ARGUMENT if the path is too long for a socket, FAILED_PRECONDITION if another
  //         server holds it or it is not a socket, UNAVAILABLE if the system refuses.
  static absl::StatusOr<std::unique_ptr<SocketFile>> Claim(const std::string& path);

  // Removes the socket and the lock.
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  // Sets the mode of the socket, from which the process's mask may have taken bits. The socket must
  // exist.
  absl::Status SetMode();

  // Gives the socket to a group, whose members may then connect. The socket must exist.
  // Errors: UNAVAILABLE if the system refuses.
  absl::Status SetGroup(gid_t group);

 private:
  SocketFile(std::string path, std::string lock_path, OwnedDescriptor lock);

  const std::string path_;
  const std::string lock_path_;
  const OwnedDescriptor lock_;
  bool listening_ = false;
};

}  // namespace cbt::net

#endif  // CBT_NET_SOCKET_FILE_H_
