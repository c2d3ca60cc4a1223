// A client of a volume's NBD server that outlives the server.
#ifndef CBT_PROGRAMS_DRIVER_HOST_NBD_CONNECTION_H_
#define CBT_PROGRAMS_DRIVER_HOST_NBD_CONNECTION_H_

#include <libnbd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "programs/driver/host/stop_signal.h"

namespace cbt::driver {

struct CloseNbd {
  void operator()(nbd_handle* handle) const noexcept { ::nbd_close(handle); }
};
using NbdHandle = std::unique_ptr<nbd_handle, CloseNbd>;

// Connects to the server at the Unix socket `path`. Errors: UNAVAILABLE.
absl::StatusOr<NbdHandle> ConnectNbd(const std::string& path);

// For one thread. A request that the server did not answer before it ended is made again once
// another server listens at the path, however long that takes: reads and writes of a block device
// can be repeated, and an error would cost the device its users.
class NbdConnection {
 public:
  // The result of a request that was given up because of the stop signal: neither done nor failed.
  static constexpr int kAbandoned = -1;

  // `stop` must outlive the object.
  NbdConnection(std::string path, const StopSignal& stop) : path_(std::move(path)), stop_(stop) {}

  // Connects unless there is a connection, and waits for a server. A request that is read after it
  // has returned true is rarely left unanswered. False because of the stop signal.
  bool Ready();

  // Each returns 0, an error number of the server's, or kAbandoned. Offsets and lengths in bytes. A
  // connection has the size that the volume had when it was made: for what is beyond, another one
  // is.
  int Read(uint64_t offset, std::span<uint8_t> bytes);
  int Write(uint64_t offset, std::span<const uint8_t> bytes);
  int Flush();
  // The range reads as zeros afterwards. `allocate`: and keeps its space.
  int Zero(uint64_t offset, uint64_t length, bool allocate);

 private:
  // `end`: of what the request is about, bytes.
  template <typename Request>
  int Do(uint64_t end, Request request);
  bool Connect();

  const std::string path_;
  const StopSignal& stop_;
  NbdHandle handle_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_NBD_CONNECTION_H_
