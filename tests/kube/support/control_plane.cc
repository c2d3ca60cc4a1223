#include "tests/kube/support/control_plane.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/files.h"

extern char** environ;

namespace cbt::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kStartTime = seconds(120);  // a loaded machine
constexpr auto kRetryTime = seconds(30);

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Free when they were looked at; all different.
std::vector<int> FreePorts(size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (size_t i = 0; i < count; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(sockets.back(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(sockets.back(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no free port on 127.0.0.1");
    }
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int one : sockets) close(one);
  return ports;
}

std::string RandomToken() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&token, absl::Hex(random(), absl::kZeroPad8));
  return token;
}

std::string KubeconfigText(const std::string& url, const std::string& ca, const std::string& user,
                           const std::string& name_space) {
  return absl::StrCat(
      "apiVersion: v1\nkind: Config\nclusters:\n- name: test\n  cluster: {server: \"", url,
      "\", certificate-authority-data: ", absl::Base64Escape(ca),
      "}\nusers:\n- name: user\n  user: {", user,
      "}\ncontexts:\n- name: test\n  context: {cluster: test, user: user, namespace: ", name_space,
      "}\ncurrent-context: test\n");
}

// With the group of administrators in its subject, where `group` is set.
PemIdentity ClientIdentity(const TestAuthority& ca, const std::string& name,
                           const std::string& group) {
  return ca.Issue({.name = name, .organization = group, .alternatives = ""});
}

// Runs a program to its end, with files for its input and output.
int RunToEnd(std::vector<std::string> arguments, const std::string& input,
             const std::string& output, const std::string& error) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  const int started = posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (started != 0) throw std::runtime_error("can't start " + arguments.front());
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool ShallRetry(const ApiReply& reply) {
  return reply.code == 429 || reply.code == 0 || reply.code == 503;
}

}  // namespace

bool ControlPlane::Available() { return !Environment("KUBEBUILDER_ASSETS").empty(); }

std::string ControlPlane::SnapshotCrds() {
  if (const std::string directory = Environment("CBT_SNAPSHOT_CRDS"); !directory.empty())
    return directory;
  const std::filesystem::path assets = Environment("KUBEBUILDER_ASSETS");
  for (const auto& directory : {assets / "crds", assets / "../crds"}) {
    std::error_code ignored;
    if (!assets.empty() && std::filesystem::is_directory(directory, ignored))
      return directory.string();
  }
  return "";
}

ControlPlane& ControlPlane::Shared() {
  static ControlPlane plane;
  return plane;
}

ControlPlane::ControlPlane(std::vector<std::string> apiserver_flags)
    : assets_(Environment("KUBEBUILDER_ASSETS")),
      apiserver_flags_(std::move(apiserver_flags)),
      admin_(ClientIdentity(ca_, "admin", "system:masters")),
      admin_token_(RandomToken()) {
  // Another process may take a port between the look and its use.
  for (int attempt = 1;; ++attempt) {
    ports_ = FreePorts(3);
    try {
      Start();
      return;
    } catch (const std::runtime_error&) {
      apiserver_.reset();
      etcd_.reset();
      if (attempt == 3) throw;
      std::filesystem::remove_all(directory_ / "etcd");
    }
  }
}

std::string ControlPlane::url() const { return absl::StrCat("https://127.0.0.1:", ports_[0]); }

std::string ControlPlane::ca_file() const { return directory_ / "ca.crt"; }

void ControlPlane::WriteFiles() {
  const auto write = [&](const char* name, const PemIdentity& identity) {
    directory_.Write(absl::StrCat(name, ".crt"), identity.certificate);
    directory_.Write(absl::StrCat(name, ".key"), identity.key);
  };
  WriteServingFiles();
  directory_.Write("client-ca.crt", ca_.pem());
  directory_.Write("front-proxy-ca.crt", front_proxy_ca_.pem());
  write("front-proxy-client", ClientIdentity(front_proxy_ca_, "front-proxy-client", ""));
  // A certificate serves as the public key of tokens.
  write("service-accounts", ca_.Issue({.name = "service-accounts", .alternatives = ""}));
  directory_.Write("tokens.csv",
                   absl::StrCat(admin_token_, ",admin-token,admin-token,\"system:masters\"\n"));
}

void ControlPlane::WriteServingFiles() {
  const TestAuthority& authority = new_ca_.has_value() ? *new_ca_ : ca_;
  const PemIdentity identity =
      authority.Issue({.name = "kube-apiserver",
                       .alternatives = "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,"
                                       "DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.0.0.1"});
  directory_.Write("apiserver.crt", identity.certificate);
  directory_.Write("apiserver.key", identity.key);
  directory_.Write("ca.crt", ca());
  directory_.Write(
      "admin.kubeconfig",
      KubeconfigText(
          url(), ca(),
          absl::StrCat("client-certificate-data: ", absl::Base64Escape(admin_.certificate),
                       ", client-key-data: ", absl::Base64Escape(admin_.key)),
          "default"));
}

std::string ControlPlane::ca() const { return new_ca_.has_value() ? new_ca_->pem() : ca_.pem(); }

void ControlPlane::RotateAuthority() {
  StopApiServer();
  new_ca_.emplace("new-kubernetes-ca");
  WriteServingFiles();
  StartApiServer();
}

void ControlPlane::Start() {
  WriteFiles();
  StartEtcd();
  StartApiServer();
}

void ControlPlane::StartEtcd() {
  const std::string client = absl::StrCat("http://127.0.0.1:", ports_[1]);
  const std::string peer = absl::StrCat("http://127.0.0.1:", ports_[2]);
  etcd_ = std::make_unique<BoundProcess>(
      std::vector<std::string>{
          assets_ + "/etcd", "--name=test", "--data-dir=" + (directory_ / "etcd"),
          // What is lost with the machine is lost on purpose.
          "--unsafe-no-fsync", "--listen-client-urls=" + client,
          "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
          "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer},
      directory_ / "etcd.log");
  WaitFor("etcd", *etcd_, {.url = client + "/health", .timeout_ms = 2000}, "\"health\":\"true\"");
}

void ControlPlane::StartApiServer() {
  std::vector<std::string> arguments = {
      assets_ + "/kube-apiserver",
      absl::StrCat("--etcd-servers=http://127.0.0.1:", ports_[1]),
      "--bind-address=127.0.0.1",
      "--advertise-address=127.0.0.1",
      absl::StrCat("--secure-port=", ports_[0]),
      "--endpoint-reconciler-type=none",
      "--service-cluster-ip-range=10.0.0.0/24",
      "--tls-cert-file=" + (directory_ / "apiserver.crt"),
      "--tls-private-key-file=" + (directory_ / "apiserver.key"),
      "--client-ca-file=" + (directory_ / "client-ca.crt"),
      "--token-auth-file=" + (directory_ / "tokens.csv"),
      "--authorization-mode=Node,RBAC",
      "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
      "--service-account-key-file=" + (directory_ / "service-accounts.crt"),
      "--service-account-signing-key-file=" + (directory_ / "service-accounts.key"),
      "--requestheader-client-ca-file=" + (directory_ / "front-proxy-ca.crt"),
      "--requestheader-allowed-names=front-proxy-client",
      "--requestheader-username-headers=X-Remote-User",
      "--requestheader-group-headers=X-Remote-Group",
      "--requestheader-extra-headers-prefix=X-Remote-Extra-",
      "--proxy-client-cert-file=" + (directory_ / "front-proxy-client.crt"),
      "--proxy-client-key-file=" + (directory_ / "front-proxy-client.key"),
      // Tests end it often; nothing waits for load balancers here.
      "--shutdown-delay-duration=0s",
  };
  arguments.insert(arguments.end(), apiserver_flags_.begin(), apiserver_flags_.end());
  apiserver_ =
      std::make_unique<BoundProcess>(std::move(arguments), directory_ / "kube-apiserver.log");
  ApiCall call = {.url = url() + "/readyz", .token = admin_token_, .ca_file = ca_file()};
  call.timeout_ms = 5000;
  WaitFor("kube-apiserver", *apiserver_, call, "ok");
  // Made by a controller inside the server, soon after it says that it is ready.
  call.url = url() + "/api/v1/namespaces/default";
  WaitFor("kube-apiserver", *apiserver_, call, "\"default\"");
}

std::string ControlPlane::LogOf(const char* program) const {
  const std::string log = ReadFile(directory_ / absl::StrCat(program, ".log"));
  return log.substr(log.size() - std::min<size_t>(log.size(), 3000));
}

void ControlPlane::WaitFor(const char* program, BoundProcess& process, const ApiCall& call,
                           const std::string& answer) const {
  const auto until = steady_clock::now() + kStartTime;
  for (;;) {
    const ApiReply reply = Perform(call);
    if (reply.ok() && reply.body.find(answer) != std::string::npos) return;
    const bool ended = !process.running();
    if (ended || steady_clock::now() >= until) {
      throw std::runtime_error(absl::StrCat(program, ended ? " ended" : " does not get ready", ": ",
                                            reply.body, "\n", LogOf(program)));
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void ControlPlane::StopApiServer(int signal) {
  if (apiserver_ == nullptr) return;
  apiserver_->End(signal);
  apiserver_.reset();
}

std::string ControlPlane::TokenKubeconfig(const std::string& token, const std::string& name_space) {
  static std::atomic<int> number{0};
  const std::string name = absl::StrCat("user-", ++number, ".kubeconfig");
  directory_.Write(name, KubeconfigText(url(), ca(), "token: " + token, name_space));
  return directory_ / name;
}

ApiReply ControlPlane::Get(const std::string& path, const std::string& token) const {
  return Perform(
      {.url = url() + path, .token = token.empty() ? admin_token_ : token, .ca_file = ca_file()});
}

ApiReply ControlPlane::Send(const std::string& method, const std::string& path,
                            const std::string& json, const std::string& content_type,
                            const std::string& token) const {
  const auto until = steady_clock::now() + kRetryTime;
  for (;;) {
    ApiReply reply = Perform({.method = method,
                              .url = url() + path,
                              .body = json,
                              .content_type = content_type,
                              .token = token.empty() ? admin_token_ : token,
                              .ca_file = ca_file()});
    if (!ShallRetry(reply) || steady_clock::now() >= until) return reply;
    std::this_thread::sleep_for(milliseconds(100));
  }
}

std::string ControlPlane::Must(const std::string& method, const std::string& path,
                               const std::string& json, const std::string& content_type) const {
  ApiReply reply = Send(method, path, json, content_type);
  if (!reply.ok()) {
    throw std::runtime_error(
        absl::StrCat(method, " ", path, ": HTTP ", reply.code, ": ", reply.body));
  }
  return std::move(reply.body);
}

KubectlResult ControlPlane::Kubectl(std::vector<std::string> arguments, const std::string& input,
                                    const std::string& kubeconfig) const {
  const TempDir files;
  files.Write("in", input);
  arguments.insert(arguments.begin(),
                   {assets_ + "/kubectl", "--cache-dir=" + (directory_ / "kubectl-cache"),
                    "--kubeconfig=" + (kubeconfig.empty() ? admin_kubeconfig() : kubeconfig)});
  KubectlResult result;
  result.code = RunToEnd(std::move(arguments), files / "in", files / "out", files / "error");
  result.output = ReadFile(files / "out");
  result.error = ReadFile(files / "error");
  return result;
}

void ControlPlane::Apply(const std::string& objects) const {
  const KubectlResult result =
      Kubectl({"apply", "--server-side", "--force-conflicts", "-f", "-"}, objects);
  if (result.code != 0) throw std::runtime_error("kubectl apply: " + result.error);
}

void ControlPlane::CreateNamespace(const std::string& name) const {
  const ApiReply reply =
      Send("POST", "/api/v1/namespaces", absl::StrCat(R"({"metadata":{"name":")", name, "\"}}"));
  if (!reply.ok() && reply.code != 409) throw std::runtime_error("namespace: " + reply.body);
}

void ControlPlane::CreateServiceAccount(const std::string& name_space,
                                        const std::string& name) const {
  const ApiReply reply =
      Send("POST", absl::StrCat("/api/v1/namespaces/", name_space, "/serviceaccounts"),
           absl::StrCat(R"({"metadata":{"name":")", name, "\"}}"));
  if (!reply.ok() && reply.code != 409) throw std::runtime_error("service account: " + reply.body);
}

std::string ControlPlane::Token(const std::string& name_space, const std::string& account,
                                const std::vector<std::string>& audiences, int seconds) const {
  const std::string list =
      audiences.empty() ? "" : absl::StrCat("\"", absl::StrJoin(audiences, "\",\""), "\"");
  const std::string reply = Must(
      "POST",
      absl::StrCat("/api/v1/namespaces/", name_space, "/serviceaccounts/", account, "/token"),
      absl::StrCat(
          R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[)",
          list, R"(],"expirationSeconds":)", seconds, "}}"));
  static constexpr std::string_view kField = "\"token\":\"";
  const size_t begin = reply.find(kField);
  if (begin == std::string::npos) throw std::runtime_error("no token in the answer");
  const size_t from = begin + kField.size();
  return reply.substr(from, reply.find('"', from) - from);
}

void ControlPlane::Allow(const std::string& name, const std::string& account_namespace,
                         const std::string& account, const std::string& rules,
                         const std::string& in) const {
  const std::string kind = in.empty() ? "ClusterRole" : "Role";
  const std::string metadata =
      absl::StrCat(R"("metadata":{"name":")", name, "\"",
                   in.empty() ? "" : absl::StrCat(R"(,"namespace":")", in, "\""), "}");
  const std::string begin = R"({"apiVersion":"rbac.authorization.k8s.io/v1","kind":")";
  Apply(absl::StrCat(begin, kind, "\",", metadata, R"(,"rules":)", rules, "}\n---\n", begin, kind,
                     "Binding\",", metadata, R"(,"subjects":[{"kind":"ServiceAccount","name":")",
                     account, R"(","namespace":")", account_namespace,
                     R"("}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":")", kind,
                     R"(","name":")", name, "\"}}\n"));
}

void ControlPlane::InstallSnapshotCrds() const { InstallCrds(SnapshotCrds()); }

void ControlPlane::InstallCrds(const std::string& path) const {
  KubectlResult result =
      Kubectl({"apply", "--server-side", "--force-conflicts", "-f", path, "-o", "name"});
  if (result.code != 0) throw std::runtime_error("kubectl apply: " + result.error);
  std::vector<std::string> wait = {"wait", "--for=condition=Established", "--timeout=60s"};
  for (size_t begin = 0; begin < result.output.size();) {
    const size_t end = std::min(result.output.find('\n', begin), result.output.size());
    wait.push_back(result.output.substr(begin, end - begin));
    begin = end + 1;
  }
  result = Kubectl(std::move(wait));
  if (result.code != 0) throw std::runtime_error("kubectl wait: " + result.error);
}

void ControlPlane::Compact() const {
  const std::string etcd = absl::StrCat("http://127.0.0.1:", ports_[1]);
  const auto ask = [&](const char* path, const std::string& body) {
    const ApiReply reply = Perform({.method = "POST", .url = etcd + path, .body = body});
    if (!reply.ok()) throw std::runtime_error("etcd: " + reply.body);
    return reply.body;
  };
  const std::string state = ask("/v3/kv/range", R"({"key":"AA=="})");
  static constexpr std::string_view kField = "\"revision\":\"";
  const size_t from = state.find(kField);
  if (from == std::string::npos) throw std::runtime_error("etcd: no revision: " + state);
  const size_t begin = from + kField.size();
  const std::string revision = state.substr(begin, state.find('"', begin) - begin);
  ask("/v3/kv/compaction", absl::StrCat(R"({"revision":")", revision, R"(","physical":true})"));
}

}  // namespace cbt::test
