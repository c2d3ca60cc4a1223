// The file of a Unix socket that a server listens on, and the lock beside it.
#ifndef CBT_RPC_TRANSPORT_SOCKET_FILE_H_
#define CBT_RPC_TRANSPORT_SOCKET_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::rpc {

// Claims a socket path for one server. gRPC by itself removes whatever socket it finds at the path,
// so a second server would silently take the first one's clients.
class SocketFile {
 public:
  // Takes the lock `<path>.lock`, then looks at what is at `path`: nothing and a socket that nobody
  // listens on (which is removed) are fine.
  // Errors: INVALID_ARGUMENT when the path is too long for a socket, FAILED_PRECONDITION when
  //         another server holds it or it is no socket, UNAVAILABLE when the system refuses.
  static absl::StatusOr<std::unique_ptr<SocketFile>> Claim(const std::string& path);

  // Removes the socket and the lock.
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  // Gives the socket, which exists now, mode 0660.
  absl::Status SetMode();

 private:
  SocketFile(std::string path, std::string lock_path, OwnedDescriptor lock);

  const std::string path_;
  const std::string lock_path_;
  const OwnedDescriptor lock_;
  bool listening_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_SOCKET_FILE_H_
