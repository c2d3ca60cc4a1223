// The certificate authority of clients, as its file is now.
#ifndef CBT_RPC_TRANSPORT_CLIENT_CA_H_
#define CBT_RPC_TRANSPORT_CLIENT_CA_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/watched_file.h"

namespace cbt::rpc {

// gRPC reads the file again when it changes, and keeps the authority that it had while the file
// can't be read. Neither ends a connection that the old authority vouched for. Thread safe.
class ClientCa {
 public:
  // `text`: what the file at `path` held when gRPC was given it; `settle`: how long gRPC may take
  // to notice a change.
  ClientCa(std::string path, std::string text, std::chrono::milliseconds settle);

  // Whether who shows a certificate now may come in: the file can be read, holds a certificate, and
  // is what gRPC checks against.
  bool Trusted();

  enum class Change { kNone, kChanged, kUnusable };
  // What became of the file since the last call.
  Change TakeChange();

 private:
  using Clock = std::chrono::steady_clock;
  void Look();

  const std::string path_;
  const std::chrono::milliseconds settle_;
  std::mutex mutex_;
  std::string text_;
  FileState state_;
  bool usable_ = true;
  Change change_ = Change::kNone;
  Clock::time_point trusted_from_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CLIENT_CA_H_
