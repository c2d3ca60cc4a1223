// A real control plane for tests: etcd and kube-apiserver on loopback, with RBAC, service-account
// keys and an aggregation layer.
//
// KUBEBUILDER_ASSETS names the directory of the programs, as for every Kubernetes project: etcd,
// kube-apiserver and kubectl. CBT_SNAPSHOT_CRDS names the directory of the CRDs of
// snapshot.storage.k8s.io, as external-snapshotter ships them; without it, `crds` in the directory
// of the programs or beside it is tried.
//
// There is no controller manager: no default service accounts, no deletion of namespaces, no
// garbage collection. A test creates what it needs, under names of its own, because all tests of a
// program share one control plane.
#ifndef CBT_TESTS_KUBE_SUPPORT_CONTROL_PLANE_H_
#define CBT_TESTS_KUBE_SUPPORT_CONTROL_PLANE_H_

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/kube/support/api_call.h"
#include "tests/kube/support/bound_process.h"
#include "tests/net/certificates.h"
#include "tests/support/temp_dir.h"

// First line of a test (or of SetUp()) that needs it.
#define CBT_NEED_CONTROL_PLANE()                                                                \
  if (!::cbt::test::ControlPlane::Available()) {                                                \
    GTEST_SKIP() << "KUBEBUILDER_ASSETS is not set: nothing is tried on a real kube-apiserver"; \
  }                                                                                             \
  static_assert(true, "")

// The same where the CRDs of VolumeSnapshot are needed too.
#define CBT_NEED_SNAPSHOT_CRDS()                                                                  \
  CBT_NEED_CONTROL_PLANE();                                                                       \
  if (::cbt::test::ControlPlane::SnapshotCrds().empty()) {                                        \
    GTEST_SKIP() << "CBT_SNAPSHOT_CRDS is not set: nothing is tried with VolumeSnapshot objects"; \
  }                                                                                               \
  static_assert(true, "")

namespace cbt::test {

struct KubectlResult {
  int code = -1;
  std::string output;  // of stdout
  std::string error;   // of stderr
};

// Functions throw std::runtime_error, with what the server said, where nothing else is stated.
// Thread-safe but for what stops and starts.
class ControlPlane {
 public:
  // Whether KUBEBUILDER_ASSETS is set.
  static bool Available();
  // The directory of the CRDs; empty without CRDs.
  static std::string SnapshotCrds();
  // The control plane of this program: started by the first call, which takes 3 to 5 s, and ended
  // with the program.
  static ControlPlane& Shared();

  // One of its own, for tests that need other flags. Blocks until it is ready.
  explicit ControlPlane(std::vector<std::string> apiserver_flags = {});
  ~ControlPlane() = default;
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // --- How it is reached.

  std::string url() const;                // https://127.0.0.1:PORT
  int port() const { return ports_[0]; }  // of the API server
  std::string ca_file() const;            // PEM, what signs the server's certificate
  std::string ca() const;                 // the same, its text
  // Member of system:masters, for Perform() and for a client certificate.
  const std::string& admin_token() const { return admin_token_; }
  const PemIdentity& admin_identity() const { return admin_; }
  // A kubeconfig file with the administrator's client certificate.
  std::string admin_kubeconfig() const { return directory_ / "admin.kubeconfig"; }
  // Writes a kubeconfig file with this token and returns its path. Each call another file.
  std::string TokenKubeconfig(const std::string& token, const std::string& name_space = "default");
  std::string directory() const { return directory_.path(); }
  // Signs certificates that the API server accepts for clients (CN user, O group).
  const TestAuthority& authority() const { return ca_; }

  // --- Requests as the administrator, or with another token. `path` begins with a slash.

  ApiReply Get(const std::string& path, const std::string& token = "") const;
  // Any method. While the server answers 429, as it does for some seconds after a start, or can't
  // be reached, it is asked again for up to 30 s; the last answer is returned.
  ApiReply Send(const std::string& method, const std::string& path, const std::string& json,
                const std::string& content_type = "application/json",
                const std::string& token = "") const;
  // The same, and it must succeed. Returns the answer's body.
  std::string Must(const std::string& method, const std::string& path, const std::string& json = "",
                   const std::string& content_type = "application/json") const;

  // --- What tests set up.

  // `kubectl ARGUMENTS...` as the administrator, or with another kubeconfig file.
  KubectlResult Kubectl(std::vector<std::string> arguments, const std::string& input = "",
                        const std::string& kubeconfig = "") const;
  // Applies objects in YAML or JSON.
  void Apply(const std::string& objects) const;
  // Succeeds if it is there already.
  void CreateNamespace(const std::string& name) const;
  void CreateServiceAccount(const std::string& name_space, const std::string& name) const;
  // A token by TokenRequest, of `seconds` (600 at least).
  std::string Token(const std::string& name_space, const std::string& account,
                    const std::vector<std::string>& audiences = {}, int seconds = 3600) const;
  // Lets the account do what the RBAC rules say, given as a JSON array: in one namespace, or in all
  // and on cluster-scoped objects if `in` is empty. `name` is that of the role and of its binding.
  void Allow(const std::string& name, const std::string& account_namespace,
             const std::string& account, const std::string& rules,
             const std::string& in = "") const;
  // Waits until the CRDs are served.
  void InstallSnapshotCrds() const;
  // Applies CRDs from a file or a directory, and waits until they are served.
  void InstallCrds(const std::string& path) const;

  // --- Faults. One thread at a time.

  // SIGTERM ends watches and drains; SIGKILL does not; SIGSTOP leaves connections open.
  void StopApiServer(int signal = SIGTERM);
  void PauseApiServer() { apiserver_->Signal(SIGSTOP); }
  void ContinueApiServer() { apiserver_->Signal(SIGCONT); }
  // On the same port, with the same state; returns when it is ready.
  void StartApiServer();
  void RestartApiServer(int signal = SIGTERM) {
    StopApiServer(signal);
    StartApiServer();
  }
  // Restarts the API server with a certificate of a new authority: ca_file(), ca() and the
  // administrator's kubeconfig follow. Client certificates and tokens stay what they are.
  void RotateAuthority();
  // Removes the history from etcd. The API server still has some in its caches until it restarts;
  // a watch of an older version is then answered with 410.
  void Compact() const;

  bool apiserver_running() { return apiserver_ != nullptr && apiserver_->running(); }

 private:
  void WriteFiles();
  // The server's certificate, and what its clients trust.
  void WriteServingFiles();
  void Start();
  void StartEtcd();
  void WaitFor(const char* program, BoundProcess& process, const ApiCall& call,
               const std::string& answer) const;
  std::string LogOf(const char* program) const;

  const std::string assets_;
  const std::vector<std::string> apiserver_flags_;
  const TestAuthority ca_{"kubernetes-ca"};
  std::optional<TestAuthority> new_ca_;  // of the server's certificate, once it was rotated
  const TestAuthority front_proxy_ca_{"front-proxy-ca"};
  PemIdentity admin_;
  std::string admin_token_;
  std::vector<int> ports_;  // API server, etcd, etcd's peers
  TempDir directory_;
  std::unique_ptr<BoundProcess> etcd_;
  std::unique_ptr<BoundProcess> apiserver_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_CONTROL_PLANE_H_
