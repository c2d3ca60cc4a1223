// Starting and stopping: addresses, socket files, TLS, options, identity, health.
#include "cbt/rpc/server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/version.h"
#include "csi.pb.h"
#include "net/address.h"
#include "rpc/contract/identity.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace server_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using testing::HasSubstr;

absl::StatusOr<MetadataSource> OneTuple(const FunctionProvider::Call&) {
  return Extents(CursorOver({{0, 1}}, 10));
}

absl::StatusOr<std::unique_ptr<rpc::Server>> Listen(SnapshotProvider& provider,
                                                    const std::string& address) {
  rpc::ServerOptions options;
  options.listen = address;
  return rpc::Server::Start(provider, options);
}

// Lists through our client.
absl::Status TryList(const std::string& address, const rpc::ClientTlsOptions& tls = {}) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = "s";
  request.tls = tls;
  request.timeout = std::chrono::seconds(10);
  request.retry_for = {};
  return rpc::RemoteCursor::Open(request).status();
}

bool Serves(const std::string& address) { return TryList(address).ok(); }

// --- addresses ---------------------------------------------------------------------------------

TEST(Address, Parses) {
  const auto parse = [](const std::string& text) {
    const absl::StatusOr<net::Address> address = net::ParseAddress(text);
    return address.ok() ? address->ToString() + " " + address->GrpcTarget() : "refused";
  };
  EXPECT_EQ(parse("unix:///csi/csi.sock"), "unix:///csi/csi.sock unix:/csi/csi.sock");
  EXPECT_EQ(parse("unix:/csi/csi.sock"), "unix:///csi/csi.sock unix:/csi/csi.sock");
  EXPECT_EQ(parse("unix:csi.sock"), "unix:csi.sock unix:csi.sock");
  EXPECT_EQ(parse("unix:///a b%41"), "unix:///a b%41 unix:/a%20b%2541");
  EXPECT_EQ(parse("localhost:50051"), "localhost:50051 localhost:50051");
  EXPECT_EQ(parse("0.0.0.0:0"), "0.0.0.0:0 0.0.0.0:0");
  EXPECT_EQ(parse("[::1]:443"), "[::1]:443 [::1]:443");
  for (const std::string bad : {"",
                                "unix:",
                                "unix://",
                                "unix:///",
                                "unix://host/path",
                                "unix:///a,b",
                                "localhost",
                                ":1",
                                "a:",
                                "a:b",
                                "a:-1",
                                "a:+1",
                                "a: 1",
                                "a:65536",
                                "a:99999999999",
                                "::1:1",
                                "[]:1",
                                "a/b:1",
                                "dns:///a:1",
                                "unix-abstract:x:1/",
                                "a b:1"}) {
    EXPECT_EQ(parse(bad), "refused") << bad;
  }
  EXPECT_EQ(parse(std::string("unix:///a\0b", 11)), "refused");
}

TEST(Server, TcpPorts) {
  FunctionProvider provider(OneTuple);
  auto first = Listen(provider, "127.0.0.1:0");
  ASSERT_OK(first);
  const int port = (*first)->port();
  EXPECT_GT(port, 0);
  const std::string address = "127.0.0.1:" + std::to_string(port);
  EXPECT_EQ((*first)->address(), address);
  EXPECT_TRUE(Serves(address));

  const auto second = Listen(provider, address);
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().ToString(), HasSubstr("in use"));
  EXPECT_TRUE(Serves(address));

  first->reset();
  const auto third = Listen(provider, address);
  EXPECT_OK(third);
  EXPECT_TRUE(Serves(address));
}

TEST(Server, AddressesThatAreNotHere) {
  FunctionProvider provider(OneTuple);
  EXPECT_EQ(Listen(provider, "203.0.113.7:0").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Listen(provider, "nonsense").status().code(), StatusCode::kInvalidArgument);
}

// --- socket files ------------------------------------------------------------------------------

mode_t ModeOf(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode : 0;
}

// A socket at `path` that this process listens on.
int ListenOn(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(fd, 5), 0);
  return fd;
}

TEST(Server, SocketHasItsModeAndIsRemoved) {
  const TempDir dir;
  const std::string path = dir / "s";
  FunctionProvider provider(OneTuple);
  for (const mode_t mask : {mode_t{0}, mode_t{077}}) {
    const mode_t before = umask(mask);
    {
      const auto server = Listen(provider, "unix://" + path);
      ASSERT_OK(server);
      EXPECT_EQ((*server)->port(), 0);
      EXPECT_EQ((*server)->address(), "unix://" + path);
      EXPECT_TRUE(S_ISSOCK(ModeOf(path)));
      EXPECT_EQ(ModeOf(path) & 07777, mode_t{0660});
      EXPECT_TRUE(std::filesystem::exists(path + ".lock"));
      EXPECT_TRUE(Serves((*server)->address()));
    }
    umask(before);
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  }
}

TEST(Server, StaleSocketsAreReplaced) {
  const TempDir dir;
  const std::string path = dir / "s";
  close(ListenOn(path));
  dir.Write("s.lock", "");  // its server was killed
  FunctionProvider provider(OneTuple);
  const auto server = Listen(provider, "unix://" + path);
  ASSERT_OK(server);
  EXPECT_TRUE(Serves((*server)->address()));
}

TEST(Server, SocketsInUseAreRefused) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  {
    const auto first = Listen(provider, "unix://" + (dir / "ours"));
    ASSERT_OK(first);
    for (int i = 0; i < 3; ++i) {
      const auto second = Listen(provider, "unix://" + (dir / "ours"));
      EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
    }
    EXPECT_TRUE(Serves((*first)->address()));
  }
  const int foreign = ListenOn(dir / "foreign");
  const auto refused = Listen(provider, "unix://" + (dir / "foreign"));
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("another server listens"));
  EXPECT_TRUE(S_ISSOCK(ModeOf(dir / "foreign")));
  EXPECT_FALSE(std::filesystem::exists(dir / "foreign.lock"));
  close(foreign);
}

TEST(Server, LockOfAnotherServerIsRespected) {
  const TempDir dir;
  const std::string lock = dir / "s.lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  FunctionProvider provider(OneTuple);
  EXPECT_EQ(Listen(provider, "unix://" + (dir / "s")).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(lock));
  close(fd);
  EXPECT_OK(Listen(provider, "unix://" + (dir / "s")));
}

TEST(Server, OtherFilesAreLeftAlone) {
  const TempDir dir;
  dir.Write("s", "precious");
  FunctionProvider provider(OneTuple);
  const auto refused = Listen(provider, "unix://" + (dir / "s"));
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(dir / "s"), 8u);
  std::filesystem::create_directory(dir / "d");
  EXPECT_EQ(Listen(provider, "unix://" + (dir / "d")).status().code(),
            StatusCode::kFailedPrecondition);
  std::filesystem::create_symlink(dir / "s", dir / "l");
  EXPECT_EQ(Listen(provider, "unix://" + (dir / "l")).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(Server, SocketPathsOfEveryKind) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  const size_t room = 107 - dir.path().size() - 1;
  for (const std::string& name : {std::string("a b"), std::string("100%41"), std::string("q?x#y"),
                                  std::string("ü:1"), std::string(room, 'x')}) {
    const auto server = Listen(provider, "unix://" + (dir / name));
    ASSERT_OK(server);
    EXPECT_TRUE(S_ISSOCK(ModeOf(dir / name))) << name;
    EXPECT_TRUE(Serves((*server)->address())) << name;
  }
  EXPECT_EQ(Listen(provider, "unix://" + (dir / std::string(room + 1, 'x'))).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Listen(provider, "unix://" + (dir / "no/such/folder")).status().code(),
            StatusCode::kUnavailable);
}

TEST(Server, StartsRaceForOneSocketAndOneWins) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  std::vector<std::future<absl::StatusOr<std::unique_ptr<rpc::Server>>>> starts;
  for (int i = 0; i < 6; ++i) {
    starts.push_back(
        std::async(std::launch::async, [&] { return Listen(provider, "unix://" + (dir / "s")); }));
  }
  std::vector<std::unique_ptr<rpc::Server>> servers;
  for (auto& start : starts) {
    auto server = start.get();
    if (server.ok()) {
      servers.push_back(*std::move(server));
    } else {
      EXPECT_EQ(server.status().code(), StatusCode::kFailedPrecondition);
    }
  }
  ASSERT_EQ(servers.size(), 1u);
  EXPECT_TRUE(Serves(servers.front()->address()));
}

// --- options -----------------------------------------------------------------------------------

TEST(Server, OptionsOutOfRangeAreInvalid) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  const auto start = [&](auto change) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    change(options);
    return rpc::Server::Start(provider, options).status().code();
  };
  using Options = rpc::ServerOptions;
  EXPECT_EQ(start([](Options&) {}), StatusCode::kOk);
  EXPECT_EQ(start([](Options& o) { o.service.stream.message_bytes = 4096; }), StatusCode::kOk);
  EXPECT_EQ(start([](Options& o) { o.service.stream.message_bytes = rpc::kMaxMessageBytes; }),
            StatusCode::kOk);
  for (const auto change :
       {+[](Options& o) { o.service.stream.message_bytes = 4095; },
        +[](Options& o) { o.service.stream.message_bytes = rpc::kMaxMessageBytes + 1; },
        +[](Options& o) { o.service.stream.messages_in_flight = 0; },
        +[](Options& o) { o.service.stream.threads = 0; },
        +[](Options& o) { o.service.stream.threads = 1'000'000; },
        +[](Options& o) { o.service.stream.max_streams = 0; },
        +[](Options& o) { o.service.stream.stall_timeout = milliseconds(0); },
        +[](Options& o) { o.connection.max_connections = 0; },
        +[](Options& o) { o.connection.handshake_time = milliseconds(0); },
        +[](Options& o) { o.tls.certificate = "x"; }, +[](Options& o) { o.tls.private_key = "x"; },
        +[](Options& o) { o.tls.client_ca = "x"; },
        +[](Options& o) { o.service.plugin_name = "no spaces"; }}) {
    EXPECT_EQ(start(change), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Identity, PluginNames) {
  for (const std::string& good : {std::string("a"), std::string("block.example.com"),
                                  std::string("a-b.c1"), std::string(63, 'x')}) {
    EXPECT_OK(rpc::CheckPluginName(good)) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string(64, 'x'), std::string("-a"), std::string("a-"),
        std::string("a..b"), std::string(".a"), std::string("a."), std::string("a-.b"),
        std::string("a.-b"), std::string("a_b"), std::string("é"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(rpc::CheckPluginName(bad).ok()) << bad;
  }
}

// --- identity and health -----------------------------------------------------------------------

// A unary call, as a stream of one message whose bytes are compared.
template <typename Message>
grpc::Status Unary(const Service& service, const std::string& path, const std::string& request,
                   Message& response) {
  RawCall call(service.channel, path, request, std::chrono::seconds(10));
  if (const auto bytes = call.Read()) {
    EXPECT_TRUE(response.ParseFromString(*bytes));
  }
  return call.Finish();
}

TEST(Identity, AnswersWhatTheContractSays) {
  const Service service(OneTuple);
  csi::v1::GetPluginInfoResponse info;
  ASSERT_OK(Unary(service, "/csi.v1.Identity/GetPluginInfo", "", info));
  EXPECT_EQ(info.name(), "libcbt.example.com");
  EXPECT_EQ(info.vendor_version(), kVersion);

  csi::v1::GetPluginCapabilitiesResponse capabilities;
  ASSERT_OK(Unary(service, "/csi.v1.Identity/GetPluginCapabilities", "", capabilities));
  ASSERT_EQ(capabilities.capabilities_size(), 1);
  EXPECT_EQ(capabilities.capabilities(0).service().type(),
            csi::v1::PluginCapability::Service::SNAPSHOT_METADATA_SERVICE);

  csi::v1::ProbeResponse probe;
  ASSERT_OK(Unary(service, "/csi.v1.Identity/Probe", "", probe));
  EXPECT_TRUE(probe.has_ready());
  EXPECT_TRUE(probe.ready().value());

  EXPECT_EQ(Unary(service, "/csi.v1.Identity/Probe", "\x0a", probe).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(Identity, TellsTheVendorsVersionAndPassesOverLaterFields) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.plugin_name = "block.example.com";
  options.service.vendor_version = "7.1-vendor";
  const auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  // Field 100, a varint, and field 101, a text.
  RawCall call(Connect((*server)->address()), "/csi.v1.Identity/GetPluginInfo",
               std::string("\xa0\x06\x01\xaa\x06\x01x", 7), std::chrono::seconds(10));
  csi::v1::GetPluginInfoResponse info;
  ASSERT_TRUE(info.ParseFromString(call.Read().value_or("no answer")));
  EXPECT_EQ(info.name(), "block.example.com");
  EXPECT_EQ(info.vendor_version(), "7.1-vendor");
  EXPECT_OK(call.Finish());
}

// grpc.health.v1.HealthCheckResponse: field 1, SERVING 1, NOT_SERVING 2.
std::string Health(const Service& service) {
  RawCall call(service.channel, "/grpc.health.v1.Health/Check", "", std::chrono::seconds(10));
  return call.Read().value_or("no answer");
}

TEST(Server, HealthFollowsTheDrain) {
  const auto trace = std::make_shared<CursorTrace>();
  Service service([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, trace, [](uint64_t position, ExtentBatch&) -> absl::StatusOr<uint64_t> {
          std::this_thread::sleep_for(milliseconds(1));
          return position;
        }));
  });
  EXPECT_EQ(Health(service), "\x08\x01");
  RawCall open(service.channel, kAllocatedPath, Ask{}.bytes());
  // Watches do not end by themselves; the shutdown must not wait for them.
  RawCall watch(service.channel, "/grpc.health.v1.Health/Watch", "");
  ASSERT_TRUE(watch.Read().has_value());
  ASSERT_TRUE(Eventually([&] { return service.server->open_streams() == 1; }));
  auto shutdown =
      std::async(std::launch::async, [&] { service.server->Shutdown(milliseconds(500)); });
  EXPECT_TRUE(Eventually([&] { return Health(service) == "\x08\x02"; }, milliseconds(400)));
  const Stopwatch stopwatch;
  shutdown.get();
  EXPECT_LT(stopwatch.elapsed(), std::chrono::seconds(3));
}

// --- TLS ---------------------------------------------------------------------------------------

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A CA, with certificates for 127.0.0.1 and for a client.
class Certificates {
 public:
  Certificates() {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=test-ca -keyout ca.key -out ca.crt");
    for (const std::string name : {"server", "client"}) {
      Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name +
          " -addext subjectAltName=IP:127.0.0.1 -keyout " + name + ".key -out " + name + ".csr");
      Run("x509 -req -days 2 -copy_extensions copy -CA ca.crt -CAkey ca.key -CAcreateserial -in " +
          name + ".csr -out " + name + ".crt");
    }
  }

  std::string operator[](const std::string& name) const { return Contents(dir_ / name); }

 private:
  void Run(const std::string& arguments) const {
    const std::string command =
        "cd '" + dir_.path() + "' && openssl " + arguments + " >openssl.log 2>&1";
    if (std::system(command.c_str()) != 0) {
      throw std::runtime_error(command + ":\n" + Contents(dir_ / "openssl.log"));
    }
  }

  const TempDir dir_;
};

TEST(Server, Tls) {
  const Certificates certificates;
  FunctionProvider provider(OneTuple);
  rpc::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.tls.certificate = certificates["server.crt"];
  options.tls.private_key = certificates["server.key"];
  rpc::ClientTlsOptions anonymous;
  anonymous.enabled = true;
  anonymous.ca = certificates["ca.crt"];
  rpc::ClientTlsOptions other_ca = anonymous;
  other_ca.ca = certificates["client.crt"];
  rpc::ClientTlsOptions known = anonymous;
  known.certificate = certificates["client.crt"];
  known.private_key = certificates["client.key"];
  {
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    const std::string& address = (*server)->address();
    EXPECT_OK(TryList(address, anonymous));
    EXPECT_EQ(TryList(address).code(), StatusCode::kUnavailable);
    EXPECT_EQ(TryList(address, other_ca).code(), StatusCode::kUnavailable);
  }
  options.tls.client_ca = certificates["ca.crt"];
  {
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    EXPECT_EQ(TryList((*server)->address(), anonymous).code(), StatusCode::kUnavailable);
    EXPECT_OK(TryList((*server)->address(), known));
  }
}

TEST(Server, TlsMaterialThatCantBeUsedIsInvalid) {
  const TempDir dir;
  FunctionProvider provider(OneTuple);
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.tls.certificate = "no certificate";
  options.tls.private_key = "no key";
  const auto server = rpc::Server::Start(provider, options);
  EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(server.status().ToString(), HasSubstr("tls: certificate"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace server_test
}  // namespace cbt::test
