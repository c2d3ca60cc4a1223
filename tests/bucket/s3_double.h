// s3_double.py in a process of its own.
#ifndef CBT_TESTS_BUCKET_S3_DOUBLE_H_
#define CBT_TESTS_BUCKET_S3_DOUBLE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "bucket/s3.h"

namespace cbt::bucket::test_support {

inline constexpr char kAccess[] = "AKTEST";
inline constexpr char kSecret[] = "secret/key+of=the test";
inline constexpr char kToken[] = "session-token-0123456789";

class Double {
 public:
  explicit Double(int page = 1000) {
    int to[2];
    int from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      const std::string pages = std::to_string(page);
      ::execl(CBT_TEST_PYTHON, CBT_TEST_PYTHON, "-B", CBT_TEST_FOLDER "/s3_double.py", kAccess,
              kSecret, kToken, "bucket", pages.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    port_ = Line();
  }
  ~Double() {
    std::fclose(to_);
    std::fclose(from_);
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Double(const Double&) = delete;
  Double& operator=(const Double&) = delete;

  std::string Say(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
    return Line();
  }
  // Of the requests after the next `skip`.
  void Fault(const std::string& kind, const std::string& method, int count, int skip = 0) {
    EXPECT_EQ(Say(absl::StrCat("fault ", kind, " ", method, " ", count, " ", skip)), "ok");
  }
  S3Place Place() const {
    return {
        .endpoint = "http://127.0.0.1:" + port_,
        .bucket = "bucket",
        .credentials = {
            .access_key = kAccess, .secret_key = Secret(kSecret), .session_token = Secret(kToken)}};
  }

 private:
  std::string Line() {
    char line[256];
    if (std::fgets(line, sizeof(line), from_) == nullptr) return "the double has ended";
    const std::string text(line);
    return text.substr(0, text.find('\n'));
  }

  pid_t child_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string port_;
};

}  // namespace cbt::bucket::test_support

#endif  // CBT_TESTS_BUCKET_S3_DOUBLE_H_
