// Kubeconfig files, the pod's files, and the choice between them.
#include "cbt/kube/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kube/client/kubeconfig.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::kube {
namespace config_test {

using test::TempDir;
using test::ValueOf;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr char kFull[] = R"(apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c
  cluster:
    server: https://example.com:6443
    certificate-authority: ca.crt
    tls-server-name: other
    proxy-url: http://proxy:3128
    extensions: [{name: x, extension: {}}]
users:
- name: u
  user:
    client-certificate: /abs/cert.pem
    client-key: keys/key.pem
    tokenFile: token
    as: someone
    as-uid: "7"
    as-groups: [g1, g2]
    as-user-extra: {scopes: [a, b]}
- name: e
  user:
    exec:
      command: ./plugin
      args: [login, --x]
      env: [{name: A, value: b}]
      apiVersion: client.authentication.k8s.io/v1
      interactiveMode: Never
      provideClusterInfo: true
contexts:
- name: one
  context: {cluster: c, user: u, namespace: prod}
- name: two
  context: {cluster: c, user: e}
- name: anonymous
  context: {cluster: c}
)";

absl::StatusOr<Config> ParseText(const std::string& text, const std::string& context = "") {
  return ParseKubeconfig({{"/dir/config", text}}, context);
}

TEST(KubeconfigTest, EveryField) {
  const Config config = ValueOf(ParseText(kFull));
  EXPECT_EQ(config.server, "https://example.com:6443");
  EXPECT_EQ(config.ca_file, "/dir/ca.crt") << "relative to the file";
  EXPECT_EQ(config.tls_server_name, "other");
  EXPECT_EQ(config.proxy_url, "http://proxy:3128");
  EXPECT_EQ(config.client_certificate_file, "/abs/cert.pem");
  EXPECT_EQ(config.client_key_file, "/dir/keys/key.pem");
  EXPECT_EQ(config.token_file, "/dir/token");
  EXPECT_EQ(config.as.user, "someone");
  EXPECT_EQ(config.as.uid, "7");
  EXPECT_THAT(config.as.groups, ElementsAre("g1", "g2"));
  EXPECT_THAT(config.as.extra, ElementsAre(Pair("scopes", ElementsAre("a", "b"))));
  EXPECT_EQ(config.name_space, "prod");
  EXPECT_FALSE(config.insecure_skip_tls_verify);

  const Config two = ValueOf(ParseText(kFull, "two"));
  EXPECT_EQ(two.name_space, "default");
  ASSERT_TRUE(two.exec);
  EXPECT_EQ(two.exec->command, "./plugin");
  EXPECT_EQ(two.exec->directory, "/dir");
  EXPECT_THAT(two.exec->args, ElementsAre("login", "--x"));
  EXPECT_THAT(two.exec->env, ElementsAre(Pair("A", "b")));
  EXPECT_TRUE(two.exec->provide_cluster_info);
  EXPECT_EQ(two.token_file, "");
  EXPECT_OK(ParseText(kFull, "anonymous"));
}

TEST(KubeconfigTest, DataWinsOverPaths) {
  const Config config = ValueOf(ParseText(R"(
current-context: x
clusters: [{name: c, cluster: {server: https://h, certificate-authority: ca,
            certificate-authority-data: Q0E=}}]
users: [{name: u, user: {client-certificate: c, client-certificate-data: Q0VSVA==,
         client-key: k, client-key-data: S0VZ, token: tok, username: a, password: b}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
)"));
  EXPECT_EQ(config.ca, "CA");
  EXPECT_EQ(config.ca_file, "");
  EXPECT_EQ(config.client_certificate, "CERT");
  EXPECT_EQ(config.client_certificate_file, "");
  EXPECT_EQ(config.client_key.Reveal(), "KEY");
  EXPECT_EQ(config.client_key_file, "");
  EXPECT_EQ(config.token.Reveal(), "tok");
  EXPECT_EQ(config.password.Reveal(), "b");
  const Config copy = config.Copy();
  EXPECT_EQ(copy.token.Reveal(), "tok");
  EXPECT_EQ(copy.client_key.Reveal(), "KEY");
}

TEST(KubeconfigTest, JsonIsYaml) {
  EXPECT_EQ(ValueOf(ParseText(R"({"current-context":"x",
      "clusters":[{"name":"c","cluster":{"server":"https://h"}}],
      "contexts":[{"name":"x","context":{"cluster":"c"}}]})"))
                .server,
            "https://h");
}

TEST(KubeconfigTest, FilesAreMergedAndTheFirstWins) {
  const Config config = ValueOf(ParseKubeconfig(
      {{"/a/config", "current-context: x\nusers: [{name: u, user: {tokenFile: t}}]\n"},
       {"/b/config",
        "current-context: y\nusers: [{name: u, user: {token: lost}}]\n"
        "clusters: [{name: c, cluster: {server: https://h, certificate-authority: ca}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"}},
      ""));
  EXPECT_EQ(config.token_file, "/a/t");
  EXPECT_EQ(config.ca_file, "/b/ca");
  EXPECT_TRUE(config.token.empty());
}

TEST(KubeconfigTest, ErrorsNameFileAndPlaceAndNoSecret) {
  const std::string head =
      "current-context: x\n"
      "contexts: [{name: x, context: {cluster: c, user: u}}]\n";
  const std::string cluster = "clusters: [{name: c, cluster: {server: https://h}}]\n";
  const struct {
    std::string text;
    std::string error;
  } kCases[] = {
      {"a: [hunter2", "/dir/config:1: not YAML"},
      {"a: *hunter2\n", "/dir/config:1: not YAML"},
      {"- hunter2\n", "/dir/config:1: expected a map"},
      {"kind: hunter2\n", "/dir/config:1: kind: expected Config"},
      {"apiVersion: v2\n", "/dir/config:1: apiVersion: expected v1"},
      {"", "/dir/config: no current-context"},
      {"current-context: y\n", "/dir/config: there is no context y"},
      {"current-context: [y]\n", "/dir/config:1: current-context: expected a text"},
      {"clusters: hunter2\n", "/dir/config:1: clusters: expected a list"},
      {"clusters: [{cluster: {}}]\n", "/dir/config:1: clusters[0]: has no name"},
      {"users: [{name: u, user: {}}, {name: u, user: {}}]\n",
       "/dir/config:1: users[1]: its name is given twice"},
      {head, "contexts[0].context.cluster: there is no such cluster"},
      {head + cluster, "/dir/config:2: contexts[0].context.user: there is no such user"},
      {head + "clusters: [{name: c, cluster: {}}]\nusers: [{name: u, user: {}}]\n",
       "clusters[0].cluster.server: is missing"},
      {head + cluster + "users:\n- name: u\n  user:\n    token: [hunter2]\n",
       "/dir/config:7: users[0].user.token: expected a text"},
      {head + cluster + "users:\n- name: u\n  user: {token: hunter2, token: hunter3}\n",
       "users[0].user.token: given twice"},
      {head + cluster + "users: [{name: u, user: {client-key-data: 'hunter2!'}}]\n",
       "users[0].user.client-key-data: expected base64"},
      {head + cluster + "users: [{name: u, user: {auth-provider: {name: gcp}}}]\n",
       "users[0].user.auth-provider: is not supported"},
      {head + cluster + "users: [{name: u, user: {exec: {}}}]\n",
       "users[0].user.exec.command: is missing"},
      {head + cluster +
           "users: [{name: u, user: {exec: {command: c, interactiveMode: Never, "
           "apiVersion: client.authentication.k8s.io/v1alpha1}}}]\n",
       "users[0].user.exec.apiVersion: expected client.authentication.k8s.io/v1"},
      {head + cluster +
           "users: [{name: u, user: {exec: {command: c, "
           "apiVersion: client.authentication.k8s.io/v1}}}]\n",
       "users[0].user.exec.interactiveMode: expected Never"},
      {head + cluster + "users: [{name: u, user: {as-groups: hunter2}}]\n",
       "users[0].user.as-groups: expected a list"},
      {head + "clusters: [{name: c, cluster: {server: https://h, insecure-skip-tls-verify: 1}}]\n" +
           "users: [{name: u, user: {}}]\n",
       "clusters[0].cluster.insecure-skip-tls-verify: expected true or false"},
      {head + "clusters: [{name: c, cluster: {server: https://h, certificate-authority: f, "
              "insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {}}]\n",
       "contradicts certificate-authority"},
  };
  for (const auto& one : kCases) {
    const absl::Status status = ParseText(one.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(one.error), HasSubstr("/dir/config"), Not(HasSubstr("hunter"))))
        << one.text;
  }
}

TEST(KubeconfigTest, DeepAndRepeatingFilesEnd) {
  EXPECT_FALSE(ParseText(std::string(100'000, '[')).ok());
  std::string bomb = "a0: &a0 [x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + before + ", *a" +
            before + "]\n";
  }
  EXPECT_FALSE(ParseText(bomb + "clusters: *a39\n").ok());
}

TEST(KubeconfigTest, LoadsFiles) {
  const TempDir dir;
  dir.Write("config", kFull);
  KubeconfigOptions options;
  options.files = {dir / "absent", dir / "config"};
  EXPECT_EQ(ValueOf(LoadKubeconfig(options)).ca_file, dir / "ca.crt");
  options.files = {dir / "absent"};
  EXPECT_EQ(LoadKubeconfig(options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(LoadKubeconfig(options).status().ToString(), HasSubstr(dir / "absent"));
  options.files = {dir.path()};
  EXPECT_FALSE(LoadKubeconfig(options).ok());
}

TEST(InClusterTest, ReadsThePodsFiles) {
  const TempDir dir;
  InClusterOptions options{.directory = dir.path(), .host = "10.0.0.1", .port = "443"};
  EXPECT_EQ(LoadInClusterConfig(options).status().code(), absl::StatusCode::kNotFound);
  dir.Write("token", "t");
  EXPECT_THAT(LoadInClusterConfig(options).status().ToString(), HasSubstr("ca.crt"));
  dir.Write("ca.crt", "c");
  EXPECT_EQ(ValueOf(LoadInClusterConfig(options)).name_space, "default");
  dir.Write("namespace", "ns\n");
  Config config = ValueOf(LoadInClusterConfig(options));
  EXPECT_EQ(config.server, "https://10.0.0.1:443");
  EXPECT_EQ(config.token_file, dir / "token");
  EXPECT_EQ(config.ca_file, dir / "ca.crt");
  EXPECT_EQ(config.name_space, "ns");
  options.host = "fd00::1";
  EXPECT_EQ(ValueOf(LoadInClusterConfig(options)).server, "https://[fd00::1]:443");
}

// Sets variables for the length of a test.
class DefaultConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"}) {
      const char* const value = std::getenv(name);
      before_.emplace_back(name, value == nullptr ? "" : value);
      unsetenv(name);
    }
    setenv("HOME", dir_.path().c_str(), 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        unsetenv(name.c_str());
      } else {
        setenv(name.c_str(), value.c_str(), 1);
      }
    }
  }

  const TempDir dir_;

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(DefaultConfigTest, TheNamedFileThenVariableThenHomeThenPod) {
  EXPECT_THAT(DefaultKubeconfigFiles(), ElementsAre(dir_ / ".kube/config"));
  EXPECT_EQ(LoadDefaultConfig().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(LoadDefaultConfig().status().ToString(),
              AllOf(HasSubstr(".kube/config"), HasSubstr("not in a pod")));
  dir_.Write(".kube/config", kFull);
  EXPECT_EQ(ValueOf(LoadDefaultConfig()).name_space, "prod");
  dir_.Write("other", std::string(kFull) + "\n");
  setenv("KUBECONFIG", (":" + (dir_ / "absent") + ":" + (dir_ / "other") + ":").c_str(), 1);
  EXPECT_THAT(DefaultKubeconfigFiles(), ElementsAre(dir_ / "absent", dir_ / "other"));
  EXPECT_EQ(ValueOf(LoadDefaultConfig("", "two")).ca_file, dir_ / "ca.crt");
  EXPECT_EQ(LoadDefaultConfig(dir_ / "named").status().code(), absl::StatusCode::kNotFound)
      << "a file that was named must be there";
}

}  // namespace config_test
}  // namespace cbt::kube
