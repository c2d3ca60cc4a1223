// Programs that print credentials.
#include "kube/client/exec_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kube/client/run_program.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::kube {
namespace exec_plugin_test {

using test::TempDir;
using test::ValueOf;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kV1[] = "client.authentication.k8s.io/v1";

class ExecPluginTest : public testing::Test {
 protected:
  // A configuration whose plugin is this shell script.
  Config Script(const std::string& text) {
    dir_.Write("plugin", "#!/bin/sh\n" + text);
    chmod((dir_ / "plugin").c_str(), 0755);
    Config config;
    config.server = "https://example.com";
    config.exec = ExecPlugin{.command = dir_ / "plugin", .api_version = kV1};
    return config;
  }
  absl::Status ErrorOf(const std::string& text) {
    const absl::Status status = RunExecPlugin(Script(text), {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << text;
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr(dir_ / "plugin"), Not(HasSubstr("hunter2"))));
    return status;
  }

  const TempDir dir_;
};

TEST_F(ExecPluginTest, TokenAndExpiry) {
  const PluginCredentials credentials = ValueOf(RunExecPlugin(Script(R"(cat <<E
{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
 "status":{"token":"tok","expirationTimestamp":"2024-05-01T10:00:00Z"}}
E
)"),
                                                              {}));
  EXPECT_EQ(credentials.token.Reveal(), "tok");
  EXPECT_EQ(FormatTime(*credentials.expires), "2024-05-01T10:00:00Z");
}

TEST_F(ExecPluginTest, ArgumentsAndEnvironment) {
  Config config = Script(
      "printf '%s|' \"$@\" >\"$OUT\"; printf '%s' \"$KUBERNETES_EXEC_INFO\" >>\"$OUT\"\n"
      "if read line; then exit 9; fi\n"
      "printf '{\"kind\":\"ExecCredential\",\"apiVersion\":\"%s\",\"status\":{\"token\":\"t\"}}' "
      "\"$VERSION\"");
  config.exec->args = {"a b", "$(touch x)", ""};
  config.exec->env = {{"OUT", dir_ / "out"}, {"VERSION", kV1}};
  config.exec->provide_cluster_info = true;
  EXPECT_EQ(ValueOf(RunExecPlugin(config, {})).token.Reveal(), "t");
  EXPECT_EQ(test::ReadFile(dir_ / "out"),
            absl::StrCat("a b|$(touch x)||{\"apiVersion\":\"", kV1,
                         "\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false,"
                         "\"cluster\":{\"server\":\"https://example.com\"}}}"))
      << "without a shell";
}

TEST_F(ExecPluginTest, Failures) {
  EXPECT_THAT(ErrorOf("echo hunter2; exit 3").ToString(), HasSubstr("exit status 3"));
  EXPECT_THAT(ErrorOf("kill -9 $$").ToString(), HasSubstr("signal 9"));
  EXPECT_THAT(ErrorOf("echo hunter2").ToString(), HasSubstr("unusable: JSON at byte"));
  EXPECT_THAT(ErrorOf("").ToString(), HasSubstr("unusable"));
  EXPECT_THAT(ErrorOf("echo '{\"kind\":\"Other\"}'").ToString(), HasSubstr("ExecCredential"));
  EXPECT_THAT(ErrorOf("yes hunter2").ToString(), HasSubstr("more than 1048576 bytes"));
  Config config = Script("");
  config.exec->command = dir_ / "absent";
  config.exec->install_hint = "get it from the shop";
  const absl::Status absent = RunExecPlugin(config, {}).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(absent.ToString(), HasSubstr("get it from the shop"));
  config = Script("");
  config.exec->interactive = ExecPlugin::Interactive::kAlways;
  if (isatty(STDIN_FILENO) == 0) {
    EXPECT_THAT(RunExecPlugin(config, {}).status().ToString(), HasSubstr("terminal"));
  }
}

TEST_F(ExecPluginTest, TimeIsBoundedAndNothingIsLeftRunning) {
  Config config = Script(absl::StrCat("echo $$ >", dir_ / "pid", "\nsleep 1000 & wait"));
  config.exec->timeout = std::chrono::milliseconds(300);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(RunExecPlugin(config, {}).status().ToString(), HasSubstr("still running"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  const pid_t group = std::stoi(test::ReadFile(dir_ / "pid"));
  // The group may have a zombie of init's for a moment.
  for (int i = 0; i < 1000 && kill(-group, 0) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(kill(-group, 0), 0);
}

TEST_F(ExecPluginTest, ClosesItsOutputAndGoesOn) {
  Config config = Script("exec >&-; sleep 1000");
  config.exec->timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(RunExecPlugin(config, {}).status().ToString(), HasSubstr("still running"));
}

TEST_F(ExecPluginTest, AChildThatKeepsTheOutputOpenIsNotWaitedFor) {
  const Config config = Script("sleep 30 &\necho '{\"kind\":\"ExecCredential\",\"apiVersion\":\"" +
                               std::string(kV1) + "\",\"status\":{\"token\":\"t\"}}'\n");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ValueOf(RunExecPlugin(config, {})).token.Reveal(), "t");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(ExecPluginTest, StopEndsIt) {
  const Config config = Script("sleep 1000");
  std::stop_source stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request_stop();
  });
  EXPECT_EQ(RunExecPlugin(config, stop.get_token()).status().code(), absl::StatusCode::kCancelled);
  stopper.join();
}

TEST(ExecCredentialTest, Contents) {
  const ExecPlugin plugin{.api_version = kV1};
  const auto parse = [&](const std::string& status) {
    return ParseExecCredential(plugin, absl::StrCat(R"({"kind":"ExecCredential","apiVersion":")",
                                                    kV1, R"(","status":)", status, "}"));
  };
  EXPECT_OK(parse(R"({"clientCertificateData":"c","clientKeyData":"k"})"));
  for (const char* const status :
       {"null", "{}", R"({"token":""})", R"({"token":5})", R"({"clientCertificateData":"c"})",
        R"({"clientKeyData":"k","token":"t"})", R"({"token":"t","expirationTimestamp":"soon"})"}) {
    EXPECT_EQ(parse(status).status().code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_FALSE(ParseExecCredential(plugin,
                                   R"({"kind":"ExecCredential","apiVersion":
                                       "client.authentication.k8s.io/v1beta1",
                                       "status":{"token":"t"}})")
                   .ok())
      << "another version than was asked for";
}

}  // namespace exec_plugin_test
}  // namespace cbt::kube
