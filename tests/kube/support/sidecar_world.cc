#include "tests/kube/support/sidecar_world.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/kube/config.h"
#include "cbt/kube/object.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace {

constexpr char kSnapshots[] = "/apis/snapshot.storage.k8s.io/v1";
constexpr char kGroup[] = R"("apiVersion":"snapshot.storage.k8s.io/v1",)";

std::string NewName() {
  static std::atomic<int> number{0};
  return absl::StrCat("world-", ++number);
}

}  // namespace

SidecarWorld::SidecarWorld(ControlPlane& plane, SnapshotProvider& provider,
                           std::chrono::milliseconds stream_time)
    : plane_(plane), name_(NewName()), driver_(name_ + ".example.com"), stream_time_(stream_time) {
  plane_.InstallSnapshotCrds();
  plane_.InstallCrds(CBT_TEST_DEPLOY "/crd/snapshotmetadataservices.yaml");
  plane_.CreateNamespace(name_);
  plane_.CreateServiceAccount(name_, "sidecar");
  plane_.Allow(
      name_ + "-sidecar", name_, "sidecar",
      R"([{"apiGroups":["authentication.k8s.io"],"resources":["tokenreviews"],"verbs":["create"]},)"
      R"({"apiGroups":["authorization.k8s.io"],"resources":["subjectaccessreviews"],"verbs":["create"]},)"
      R"({"apiGroups":["snapshot.storage.k8s.io"],"resources":["volumesnapshots","volumesnapshotcontents","volumesnapshotclasses"],"verbs":["get","list","watch"]},)"
      R"({"apiGroups":["cbt.storage.k8s.io"],"resources":["snapshotmetadataservices"],"verbs":["get","list","watch"]}])");
  plane_.Apply(absl::StrCat("{", kGroup, R"("kind":"VolumeSnapshotClass","metadata":{"name":")",
                            name_, R"("},"driver":")", driver_, R"(","deletionPolicy":"Delete"})"));
  const PemIdentity identity = ca_.Issue();
  dir_.Write("tls.crt", identity.certificate);
  dir_.Write("tls.key", identity.key);
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir_ / "csi.sock");
  options.service.plugin_name = driver_;
  plugin_ = ValueOf(rpc::Server::Start(provider, options));
  StartSidecar("127.0.0.1:0");
  plane_.Apply(absl::StrCat(
      R"({"apiVersion":"cbt.storage.k8s.io/v1beta1","kind":"SnapshotMetadataService","metadata":{"name":")",
      driver_, R"("},"spec":{"audience":")", audience(), R"(","address":")", sidecar_address(),
      R"(","caCert":")", absl::Base64Escape(ca()), R"("}})"));
}

rpc::TlsOptions SidecarWorld::server_tls() const {
  rpc::TlsOptions tls;
  tls.certificate_file = dir_ / "tls.crt";
  tls.private_key_file = dir_ / "tls.key";
  return tls;
}

void SidecarWorld::StartSidecar(const std::string& listen) {
  kube::sidecar::Options options;
  options.relay.listen = listen;
  options.relay.plugin = "unix://" + (dir_ / "csi.sock");
  options.relay.tls = server_tls();
  options.relay.service.stream.total_time = stream_time_;
  options.cluster =
      ValueOf(kube::LoadDefaultConfig(plane_.TokenKubeconfig(plane_.Token(name_, "sidecar"))));
  sidecar_ = ValueOf(kube::sidecar::Sidecar::Start(std::move(options)));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!sidecar_->ready()) {
    if (std::chrono::steady_clock::now() >= until) {
      throw std::runtime_error("the sidecar does not get ready");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void SidecarWorld::RestartSidecar() {
  const std::string address = sidecar_address();
  sidecar_->Shutdown(std::chrono::milliseconds(0));
  sidecar_.reset();
  StartSidecar(address);
}

void SidecarWorld::AddSnapshot(const std::string& name, const std::string& handle,
                               int64_t created) {
  const std::string content = absl::StrCat(name_, "-", name);
  const std::string path = absl::StrCat(kSnapshots, "/namespaces/", name_, "/volumesnapshots");
  const std::string made = plane_.Must(
      "POST", path,
      absl::StrCat("{", kGroup, R"("kind":"VolumeSnapshot","metadata":{"name":")", name,
                   R"(","namespace":")", name_, R"("},"spec":{"volumeSnapshotClassName":")", name_,
                   R"(","source":{"persistentVolumeClaimName":"claim"}}})"));
  const kube::Object object = ValueOf(kube::Object::Parse(made));
  plane_.Must(
      "POST", absl::StrCat(kSnapshots, "/volumesnapshotcontents"),
      absl::StrCat(
          "{", kGroup, R"("kind":"VolumeSnapshotContent","metadata":{"name":")", content,
          R"("},"spec":{"deletionPolicy":"Delete","driver":")", driver_,
          R"(","source":{"volumeHandle":"volume"},"volumeSnapshotRef":{"kind":"VolumeSnapshot","namespace":")",
          name_, R"(","name":")", name, R"(","uid":")", std::string(object.uid()), R"("}}})"));
  constexpr char kMerge[] = "application/merge-patch+json";
  plane_.Must("PATCH", absl::StrCat(kSnapshots, "/volumesnapshotcontents/", content, "/status"),
              absl::StrCat(R"({"status":{"readyToUse":true,"snapshotHandle":")", handle,
                           R"(","creationTime":)", created, "}}"),
              kMerge);
  plane_.Must("PATCH", absl::StrCat(path, "/", name, "/status"),
              absl::StrCat(R"({"status":{"readyToUse":true,"boundVolumeSnapshotContentName":")",
                           content, "\"}}"),
              kMerge);
}

void SidecarWorld::AddClient(const std::string& account) {
  plane_.CreateServiceAccount(name_, account);
  plane_.Allow(
      absl::StrCat(name_, "-", account), name_, account,
      R"([{"apiGroups":["snapshot.storage.k8s.io"],"resources":["volumesnapshotcontents"],"verbs":["get"]},)"
      R"({"apiGroups":["cbt.storage.k8s.io"],"resources":["snapshotmetadataservices"],"verbs":["get"]}])");
  plane_.Allow(
      account, name_, account,
      absl::StrCat(
          R"([{"apiGroups":["snapshot.storage.k8s.io"],"resources":["volumesnapshots"],"verbs":["get"]},)",
          R"({"apiGroups":[""],"resources":["serviceaccounts/token"],"resourceNames":[")", account,
          R"("],"verbs":["create"]}])"),
      name_);
}

std::shared_ptr<kube::Client> SidecarWorld::ClientOf(const std::string& account) {
  return ValueOf(kube::Client::Create(
      ValueOf(kube::LoadDefaultConfig(plane_.TokenKubeconfig(plane_.Token(name_, account))))));
}

}  // namespace cbt::test
