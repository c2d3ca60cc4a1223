// The driver's side of its volume host.
#ifndef CBT_PROGRAMS_DRIVER_HOST_HOST_CLIENT_H_
#define CBT_PROGRAMS_DRIVER_HOST_HOST_CLIENT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/host/host_message.h"
#include "programs/driver/host/stop_signal.h"
#include "programs/driver/host/volume_host.h"

namespace cbt::driver {

struct HostClientOptions {
  std::string socket;  // of the host
  // The program and arguments of a host to start where none runs; empty: another one starts it.
  std::vector<std::string> program;
  // Called after every connection to a host, with what has been kept already given back: the place
  // to ask for all volumes that should be attached. From a thread of the client's, which waits for
  // it: it must return soon once connected() is false.
  std::function<void()> connected;
  // Called once for each change of what a volume's users notice: it is not served any more, or for
  // another reason, or it is served again. With an empty name, of the host itself: it does not
  // answer any more (kUnknown), or again. What a host says of volumes that were served all the time
  // is no change. From the client's thread; must return soon.
  std::function<void(const std::string& volume, const VolumeHealth& health)> changed;
};

// Keeps a duplicate of every FUSE connection that the host has, so that the host can end and go on
// with them, as the host keeps them while there is no driver. Thread safe.
class HostClient {
 public:
  explicit HostClient(HostClientOptions options) : options_(std::move(options)) {}
  // Connects, in the background. Returns once a host has answered, after 30 s at most. Call once.
  void Start();
  // The host goes on.
  ~HostClient();
  HostClient(const HostClient&) = delete;
  HostClient& operator=(const HostClient&) = delete;

  // As VolumeHost's. UNAVAILABLE while no host answers.
  absl::Status Serve(const ServeRequest& request) const;
  absl::Status Grow(const std::string& volume, uint64_t size) const;
  absl::Status Stop(const std::string& volume) const;

  enum class File : uint8_t {
    kShown,    // its requests are answered, or wait
    kGone,     // its connection was aborted or has ended: every request fails, for good
    kUnknown,  // the host has to say first
  };
  // The state of a volume's mounted file. Asks the kernel, and never waits.
  File file(const std::string& volume) const;
  // True while a host answers.
  bool connected() const;
  // The same, but waits up to 15 s for a host that is being started again.
  bool WaitUntilConnected() const;
  // The volume was attached before there was this client: until a host has said how it is, that is
  // not known.
  void Expect(const std::string& volume);
  // It turned out not to be attached.
  void Unexpect(const std::string& volume);
  // Nothing for a volume that is not attached.
  std::optional<VolumeHealth> health(const std::string& volume) const;
  // The same, after a start of its server that is under way, and once the host has said how the
  // volume is, if that comes within 15 s: what is back at once is no reason to refuse a call.
  std::optional<VolumeHealth> SettledHealth(const std::string& volume) const;
  // Volumes that are attached and not served at present, and how often servers were started again.
  size_t unserved() const;
  uint64_t restarts() const;

 private:
  absl::Status Call(const HostMessage& request) const;
  void Run();
  absl::StatusOr<OwnedDescriptor> Connect();
  absl::Status GiveBack(int socket);
  absl::Status WaitUntilReady(int socket);
  void Listen(int socket);
  void Learn(HostMessage message);
  void SetConnected(bool connected);
  void DoubtHealth();
  // `volume` empty: the host. Under mutex_: the health, with what can be seen from here.
  VolumeHealth Seen(const std::string& volume, const VolumeHealth& health) const;
  void Report(const std::string& volume, const VolumeHealth& health);

  const HostClientOptions options_;
  StopSignal stop_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool connected_ = false;
  int socket_ = -1;  // of the connection, to shut it down
  std::map<std::string, std::pair<FuseSession, OwnedDescriptor>> kept_;
  std::map<std::string, VolumeHealth> health_;
  std::map<std::string, VolumeHealth> reported_;  // of the client's thread; missing: is served
  uint64_t restarts_ = 0;
  std::thread thread_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_HOST_CLIENT_H_
