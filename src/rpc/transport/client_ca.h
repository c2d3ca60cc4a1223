// The current state of the client CA's file.
#ifndef CBT_RPC_TRANSPORT_CLIENT_CA_H_
#define CBT_RPC_TRANSPORT_CLIENT_CA_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/watched_file.h"

namespace cbt::rpc {

// gRPC rereads the file when it changes, and keeps the previous CA while the file can't be read.
// Neither ends connections that the old CA admitted. Thread safe.
class ClientCa {
 public:
  // `text`: contents of `path` when it was passed to gRPC; `settle`: how long gRPC may take to
  // notice a change.
  ClientCa(std::string path, std::string text, std::chrono::milliseconds settle);

  // Whether new clients may be admitted: the file is readable, holds a certificate, and is the one
  // that gRPC checks against.
  bool Trusted();

  enum class Change { kNone, kChanged, kUnusable };
  // The change of the file since the last call.
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
