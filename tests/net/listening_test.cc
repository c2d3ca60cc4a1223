// Addresses that a server cannot listen on: the operator's error message, and what must stay.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/socket_file.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace listening_test {

using absl::StatusCode;
using net::SocketFile;
using testing::HasSubstr;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int Bound(const std::string& path, int type) {
  const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  const sockaddr_un address = AddressOf(path);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

bool IsSocket(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

// Leaves the process `more` free descriptors for its lifetime.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    // The lowest free number; everything below it is in use.
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    rlimit fewer = before_;
    fewer.rlim_cur = static_cast<rlim_t>(next + more);
    setrlimit(RLIMIT_NOFILE, &fewer);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

TEST(SocketFiles, OfOtherKindsAreLeftAlone) {
  const TempDir dir;
  const std::string path = dir / "s";
  const int fd = Bound(path, SOCK_DGRAM);
  const absl::Status status = SocketFile::Claim(path).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("listen: " + path + ": "));
  EXPECT_TRUE(IsSocket(path));
  // The lock is released with the attempt.
  EXPECT_THAT(dir.Names(), testing::ElementsAre("s"));
  close(fd);
}

// A server too busy to accept is still running.
TEST(SocketFiles, OfABusyServerAreInUse) {
  const TempDir dir;
  const std::string path = dir / "s";
  const int server = Bound(path, SOCK_STREAM);
  ASSERT_EQ(listen(server, 0), 0);
  const sockaddr_un address = AddressOf(path);
  std::vector<int> waiting;
  int result = 0;
  while (result == 0 && waiting.size() < 100) {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    result = connect(waiting.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  ASSERT_EQ(errno, EAGAIN);
  const absl::Status status = SocketFile::Claim(path).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("another server listens on this socket"));
  EXPECT_TRUE(IsSocket(path));
  for (const int fd : waiting) close(fd);
  close(server);
}

TEST(SocketFiles, InDirectoriesThatAreNoneAreUnavailable) {
  const TempDir dir;
  dir.Write("file", "");
  for (const std::string& path : {dir / "none/s", dir / "file/s"}) {
    const absl::Status status = SocketFile::Claim(path).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(path + ".lock: "));
  }
  EXPECT_THAT(dir.Names(), testing::ElementsAre("file"));
}

TEST(SocketFiles, ThatVanishBeforeTheyGetTheirModeAreAnError) {
  const TempDir dir;
  const std::string path = dir / "s";
  {
    const auto claimed = SocketFile::Claim(path);
    ASSERT_OK(claimed);
    const absl::Status status = (*claimed)->SetMode();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.ToString(), HasSubstr("No such file"));
  }
  EXPECT_TRUE(dir.Names().empty());
}

TEST(SocketFiles, CanBeGivenToAGroup) {
  const TempDir dir;
  const std::string path = dir / "s";
  const auto claimed = SocketFile::Claim(path);
  ASSERT_OK(claimed);
  EXPECT_EQ((*claimed)->SetGroup(getegid()).code(), StatusCode::kUnavailable);  // no socket yet
  const int server = Bound(path, SOCK_STREAM);
  EXPECT_OK((*claimed)->SetMode());
  // Only root may give it to a group that it is not in.
  const gid_t group = geteuid() == 0 ? 65532 : getegid();
  EXPECT_OK((*claimed)->SetGroup(group));
  struct stat present = {};
  ASSERT_EQ(stat(path.c_str(), &present), 0);
  EXPECT_EQ(present.st_gid, group);
  EXPECT_EQ(present.st_uid, geteuid());
  EXPECT_EQ(present.st_mode & 0777, 0660);
  close(server);
}

// The socket cannot be probed then, so it must not be removed.
TEST(SocketFiles, StayWhenThereAreNoDescriptors) {
  const TempDir dir;
  const std::string path = dir / "s";
  close(Bound(path, SOCK_STREAM));
  for (const int more : {0, 1}) {
    absl::Status status;
    {
      const FewDescriptors few(more);
      status = SocketFile::Claim(path).status();
    }
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << more << ": " << status;
    EXPECT_THAT(status.ToString(), HasSubstr("Too many open files"));
    EXPECT_TRUE(IsSocket(path));
  }
  const auto claimed = SocketFile::Claim(path);
  EXPECT_OK(claimed);
  EXPECT_FALSE(IsSocket(path));
}

TEST(TcpAddresses, ThatCantBeBoundSayWhy) {
  const auto probe = [](const std::string& text) {
    const auto address = net::ParseAddress(text);
    EXPECT_OK(address);
    return net::ProbeTcpAddress(*address);
  };
  EXPECT_OK(probe("127.0.0.1:0"));
  // A label has at most 63 characters: this name is not looked up.
  const std::string name = std::string(64, 'x') + ".example.com";
  absl::Status status = probe(name + ":0");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("listen: " + name + ":0: "));
  // A documentation address that no machine has.
  EXPECT_EQ(probe("203.0.113.7:0").code(), StatusCode::kUnavailable);
  {
    const FewDescriptors few(0);
    status = probe("127.0.0.1:0");
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("Too many open files"));
}

TEST(TcpAddresses, WithHalfABracketAreRefused) {
  for (const char* text : {"[::1:443", "::1]:443", "[:443", "]:443"}) {
    EXPECT_EQ(net::ParseAddress(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

// gRPC decodes the path, so every character it would interpret is encoded.
TEST(SocketPaths, ReachGrpcAsTheyAre) {
  const auto target = [](const std::string& text) { return net::ParseAddress(text)->GrpcTarget(); };
  EXPECT_EQ(target("unix:///a~b_c-d.e"), "unix:/a~b_c-d.e");
  EXPECT_EQ(target("unix:///a?b#c%d"), "unix:/a%3Fb%23c%25d");
  EXPECT_EQ(target("unix:///\xc3\xa9"), "unix:/%C3%A9");
}

}  // namespace listening_test
}  // namespace cbt::test
