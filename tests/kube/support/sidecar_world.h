// A plugin, the sidecar in front of it, and a control plane that knows both: for the library's own
// clients. Part of this process but for the control plane.
#ifndef CBT_TESTS_KUBE_SUPPORT_SIDECAR_WORLD_H_
#define CBT_TESTS_KUBE_SUPPORT_SIDECAR_WORLD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/server.h"
#include "programs/sidecar/sidecar.h"
#include "tests/kube/support/control_plane.h"
#include "tests/net/certificates.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

// Each world has a driver and a namespace of its own, so that several share a control plane. Throws
// std::runtime_error where the control plane says no.
class SidecarWorld {
 public:
  // `provider` must outlive it. `stream_time`: the sidecar's limit for a stream.
  SidecarWorld(ControlPlane& plane, SnapshotProvider& provider,
               std::chrono::milliseconds stream_time = std::chrono::minutes(10));

  const std::string& name_space() const noexcept { return name_; }
  const std::string& driver() const noexcept { return driver_; }
  std::string audience() const { return driver_; }
  std::string sidecar_address() const { return sidecar_->address(); }
  // Trusted by clients of the sidecar, and its certificate.
  std::string ca() const { return ca_.pem(); }
  rpc::TlsOptions server_tls() const;

  // A snapshot that is bound and ready. `created`: of its content, to order base and target.
  void AddSnapshot(const std::string& name, const std::string& handle, int64_t created = 1);

  // A service account in the world's namespace that may read its snapshots, and make tokens for
  // itself.
  void AddClient(const std::string& account);
  // A client of the API server with a token of that account.
  std::shared_ptr<kube::Client> ClientOf(const std::string& account);

  // Ends the sidecar's streams at once, and begins again at the same address.
  void RestartSidecar();

 private:
  void StartSidecar(const std::string& listen);

  ControlPlane& plane_;
  const std::string name_;
  const std::string driver_;
  const std::chrono::milliseconds stream_time_;
  const TestAuthority ca_;
  const TempDir dir_;
  std::unique_ptr<rpc::Server> plugin_;
  std::unique_ptr<kube::sidecar::Sidecar> sidecar_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_SIDECAR_WORLD_H_
