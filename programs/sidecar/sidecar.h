// A drop-in for the Go sidecar csi-snapshot-metadata: a relay in front of a plugin, whose access
// checks ask a Kubernetes API server.
#ifndef CBT_PROGRAMS_SIDECAR_SIDECAR_H_
#define CBT_PROGRAMS_SIDECAR_SIDECAR_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/sidecar/options.h"

namespace cbt::kube::sidecar {

// A running sidecar. Thread safe.
class Sidecar {
 public:
  // Starts everything, in this order: /health and metrics, the client of the API server and its
  // watches, the server, the look-out for the plugin. Neither the API server nor the plugin need be
  // there yet; until they are, requests get UNAVAILABLE.
  // Errors: INVALID_ARGUMENT for options that can't work, those of Relay::Start() and
  //         Client::Create(), UNAVAILABLE if the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<Sidecar>> Start(Options options);

  // Calls Shutdown() without grace unless it was called before.
  ~Sidecar();
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;

  // The plugin may be asked: what /health and grpc.health.v1 say.
  bool ready() const noexcept;
  // Why this sidecar can never serve; OK unless that is so. See PluginMonitor::failure().
  absl::Status failure() const;

  // Of the server; the port of the HTTP endpoint, or 0.
  const std::string& address() const noexcept;
  int port() const noexcept;
  int http_port() const noexcept;
  std::string driver() const;

  // As Relay::Shutdown(); /health says "not ready" from the beginning.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Sidecar(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_SIDECAR_H_
