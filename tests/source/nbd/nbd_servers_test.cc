// The cursor against real servers: qemu-nbd and nbdkit on the test's own sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "cbt/source/nbd.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "tests/reference/volume.h"
#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/numbers.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace nbd_servers_test {

using absl::StatusCode;
using reference::Ranges;
using test::ChildProcess;
using test::ValueOf;

class NbdServersTest : public testing::Test {
 protected:
  // Returns false, and skips the test, if a program is missing.
  static bool Have(std::initializer_list<const char*> programs) {
    for (const char* program : programs) {
      if (test::FindProgram(program).empty()) return false;
    }
    return !absl::IsUnimplemented(NbdExport::Open("nbd+unix:///?socket=none").status());
  }

  std::string Path(const std::string& name) const { return directory_ / name; }

  // Starts a server and waits until it accepts connections.
  absl::StatusOr<std::shared_ptr<const NbdExport>> Serve(std::vector<std::string> command,
                                                         const std::string& uri,
                                                         const NbdExportOptions& options = {}) {
    server_ = std::make_unique<ChildProcess>(std::move(command), Path("log"));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      auto nbd_export = NbdExport::Open(uri, options);
      if (nbd_export.ok() || !absl::IsUnavailable(nbd_export.status())) return nbd_export;
      const bool refused = nbd_export.status().message().find("connect") == std::string::npos;
      if (!server_->running() || refused || std::chrono::steady_clock::now() > end) {
        std::stringstream log;
        log << std::ifstream(Path("log")).rdbuf();
        return absl::UnavailableError(nbd_export.status().ToString() + "; " + log.str());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::string SocketUri(const std::string& scheme = "nbd+unix",
                        const std::string& user = "") const {
    return scheme + "://" + user + "/?socket=" + Path("socket");
  }

  absl::StatusOr<std::shared_ptr<const NbdExport>> ServeQemu(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"qemu-nbd", "--read-only", "--persistent", "--shared=4",
                                         "--format=qcow2", "--socket=" + Path("socket")});
    return Serve(std::move(arguments), SocketUri());
  }

  absl::StatusOr<std::shared_ptr<const NbdExport>> ServeNbdkit(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"nbdkit", "-f", "-r", "-U", Path("socket")});
    return Serve(std::move(arguments), SocketUri());
  }

  // Runs qemu-io's commands on an image, in order.
  void Io(const std::string& image, const std::vector<std::string>& commands) const {
    std::vector<std::string> arguments = {"qemu-io", "-f", "qcow2", "-d", "unmap"};
    for (const std::string& command : commands) {
      arguments.insert(arguments.end(), {"-c", command});
    }
    arguments.push_back(image);
    ASSERT_EQ(test::Run(arguments), 0);
  }

  // Random writes, zeroes and discards in multiples of 4 KiB.
  static std::vector<std::string> AnyCommands(std::mt19937_64& random, uint64_t size, int count) {
    std::vector<std::string> commands;
    for (int i = 0; i < count; ++i) {
      const uint64_t offset = random() % (size / 4096) * 4096;
      const uint64_t length = std::min(size - offset, (1 + random() % 100) * 4096);
      const char* const verbs[] = {"write -q -P 7", "write -q -P 7", "write -q -z", "discard -q"};
      commands.push_back(std::string(verbs[random() % 4]) + " " + std::to_string(offset) + " " +
                         std::to_string(length));
    }
    return commands;
  }

  // The entries of qemu-img's map for which `wanted` returns true, merged.
  template <typename Wanted>
  Ranges Map(const std::string& image, Wanted wanted) const {
    EXPECT_EQ(test::Run({"qemu-img", "map", "--output=json", "-f", "qcow2", image}, Path("map")),
              0);
    std::ifstream file(Path("map"));
    Ranges ranges;
    size_t lines = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.find("\"start\"") == std::string::npos) continue;
      ++lines;
      const uint64_t start = test::NumberOf(line, "\"start\":");
      const uint64_t length = test::NumberOf(line, "\"length\":");
      const uint64_t depth = test::NumberOf(line, "\"depth\":");
      const bool present = line.find("\"present\": true") != std::string::npos;
      const bool zero = line.find("\"zero\": true") != std::string::npos;
      if (!wanted(depth, present, zero)) continue;
      if (!ranges.empty() && ranges.back().first + ranges.back().second == start) {
        ranges.back().second += length;
      } else {
        ranges.emplace_back(start, length);
      }
    }
    EXPECT_GT(lines, 0u);
    return ranges;
  }

  static void ExpectAnswer(const std::shared_ptr<const NbdExport>& nbd_export,
                           const NbdOptions& options, const Ranges& expected) {
    auto cursor = MakeNbdCursor(nbd_export, options);
    ASSERT_OK(cursor);
    const auto all = test::Drain(**cursor, 100);
    ASSERT_OK(all);
    EXPECT_EQ(*all, expected);
    test::SeededRandom random(7);
    const uint64_t size = (*cursor)->capacity();
    std::vector<uint64_t> offsets = {0, size};
    for (int i = 0; i < 20 && size > 0; ++i) offsets.push_back(random() % size);
    for (size_t i = 0; i < std::min<size_t>(expected.size(), 20); ++i) {
      offsets.push_back(expected[i].first);
      offsets.push_back(expected[i].first + expected[i].second - 1);
    }
    for (const uint64_t offset : offsets) {
      const auto rest = test::DrainFrom(**cursor, offset, 100);
      ASSERT_OK(rest);
      EXPECT_EQ(*rest, reference::CutAt(expected, offset)) << "from " << offset;
    }
  }

  test::TempDir directory_;
  std::unique_ptr<ChildProcess> server_;
};

NbdOptions Context(const std::string& context, uint32_t deepest = 1) {
  NbdOptions options;
  options.context = context;
  options.deepest_changed = deepest;
  return options;
}

TEST_F(NbdServersTest, QemuAllocation) {
  if (!Have({"qemu-nbd", "qemu-img", "qemu-io"})) GTEST_SKIP() << "no libnbd or no qemu-utils";
  test::SeededRandom random(1);
  const std::string image = Path("a.qcow2");
  ASSERT_EQ(test::Run({"qemu-img", "create", "-f", "qcow2", image, "3G"}), 0);
  Io(image, AnyCommands(random, 3072 * kMiB, 60));
  const auto nbd_export = ServeQemu({image});
  ASSERT_OK(nbd_export);
  EXPECT_EQ((*nbd_export)->size(), 3072 * kMiB);
  const Ranges expected = Map(image, [](auto, bool, bool zero) { return !zero; });
  EXPECT_GT(expected.size(), 10u);
  ExpectAnswer(*nbd_export, {}, expected);
  NbdOptions small;
  small.request_bytes = 7 * kMiB + 1;
  ExpectAnswer(*nbd_export, small, expected);
}

TEST_F(NbdServersTest, QemuDirtyBitmap) {
  if (!Have({"qemu-nbd", "qemu-img", "qemu-io"})) GTEST_SKIP() << "no libnbd or no qemu-utils";
  const std::string image = Path("b.qcow2");
  constexpr uint64_t kSize = 64 * kMiB;
  ASSERT_EQ(test::Run({"qemu-img", "create", "-f", "qcow2", image, "64M"}), 0);
  test::SeededRandom random(2);
  Io(image, AnyCommands(random, kSize, 30));
  ASSERT_EQ(test::Run({"qemu-img", "bitmap", "--add", "-g", "65536", image, "b0"}), 0);
  Ranges written;
  std::vector<std::string> commands;
  for (int i = 0; i < 40; ++i) {
    const uint64_t offset = random() % (kSize / 512) * 512;
    const uint64_t length = std::min(kSize - offset, (1 + random() % 1000) * 512);
    commands.push_back("write -q " + std::to_string(offset) + " " + std::to_string(length));
    written.emplace_back(offset, length);
  }
  Io(image, commands);
  ASSERT_EQ(test::Run({"qemu-img", "bitmap", "--disable", image, "b0"}), 0);
  const Ranges expected = reference::RunsOf(
      reference::RoundedOutward(reference::BytesOf(written, static_cast<size_t>(kSize)), 65536));

  const auto nbd_export = ServeQemu({"--bitmap=b0", "--export-name=disk", image});
  EXPECT_EQ(nbd_export.status().code(), StatusCode::kNotFound) << "the URI names no export";
  NbdExportOptions options;
  options.export_name = "disk";
  const auto named = NbdExport::Open(SocketUri(), options);
  ASSERT_OK(named);
  ExpectAnswer(*named, Context("qemu:dirty-bitmap:b0"), expected);
  const absl::Status status = MakeNbdCursor(*named, Context("qemu:dirty-bitmap:b1")).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("qemu:dirty-bitmap:b0"), std::string::npos) << status;
}

TEST_F(NbdServersTest, QemuAllocationDepthIsTheDeltaOfOverlays) {
  if (!Have({"qemu-nbd", "qemu-img", "qemu-io"})) GTEST_SKIP() << "no libnbd or no qemu-utils";
  test::SeededRandom random(3);
  const std::string images[] = {Path("base.qcow2"), Path("middle.qcow2"), Path("top.qcow2")};
  ASSERT_EQ(test::Run({"qemu-img", "create", "-f", "qcow2", images[0], "48M"}), 0);
  Io(images[0], AnyCommands(random, 48 * kMiB, 40));
  for (size_t i = 1; i < 3; ++i) {
    ASSERT_EQ(test::Run({"qemu-img", "create", "-f", "qcow2", "-F", "qcow2", "-b", images[i - 1],
                         images[i]}),
              0);
    Io(images[i], AnyCommands(random, 48 * kMiB, 12));
  }
  const auto nbd_export = ServeQemu({"--allocation-depth", images[2]});
  ASSERT_OK(nbd_export);
  for (uint32_t deepest = 1; deepest <= 3; ++deepest) {
    const Ranges expected = Map(
        images[2], [&](uint64_t depth, bool present, bool) { return present && depth < deepest; });
    EXPECT_GT(expected.size(), 3u);
    ExpectAnswer(*nbd_export, Context("qemu:allocation-depth", deepest), expected);
  }
}

TEST_F(NbdServersTest, NbdkitCannedExtents) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "no libnbd or no nbdkit";
  test::SeededRandom random(4);
  std::string list;
  Ranges expected;
  uint64_t at = 0;
  while (at < 20 * kTiB) {
    const uint64_t scale = uint64_t{1} << (random() % 38);
    const uint64_t length = std::min(20 * kTiB - at, 1 + random() % (512 * scale));
    const uint64_t type = random() % 4;
    list += std::to_string(at) + " " + std::to_string(length) + " " + std::to_string(type) + "\n";
    if (type < 2) {
      if (!expected.empty() && expected.back().first + expected.back().second == at) {
        expected.back().second += length;
      } else {
        expected.emplace_back(at, length);
      }
    }
    at += length;
  }
  directory_.Write("ext.txt", list);
  const auto nbd_export =
      ServeNbdkit({"--filter=extentlist", "memory", "size=20T", "extentlist=" + Path("ext.txt")});
  ASSERT_OK(nbd_export);
  EXPECT_EQ((*nbd_export)->size(), 20 * kTiB);
  auto cursor = MakeNbdCursor(*nbd_export);
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(test::Drain(**cursor, 100)), expected);
  for (int i = 0; i < 30; ++i) {
    // Near the end: each pass over 20 TiB takes one request per GiB.
    const uint64_t offset = 20 * kTiB - 1 - random() % (kTiB / 16);
    EXPECT_EQ(ValueOf(test::DrainFrom(**cursor, offset, 100)), reference::CutAt(expected, offset));
  }
  // A second cursor uses its own connection.
  auto second = MakeNbdCursor(*nbd_export);
  ASSERT_OK(second);
  EXPECT_EQ(ValueOf(test::DrainFrom(**second, 20 * kTiB - kMiB, 100)),
            reference::CutAt(expected, 20 * kTiB - kMiB));
}

TEST_F(NbdServersTest, NbdkitThatWantsRequestsAligned) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "no libnbd or no nbdkit";
  directory_.Write("ext.txt", "0 64K 0\n64K 64K 3\n128K 4K 2\n900K 100K 1\n");
  const auto nbd_export = ServeNbdkit({"--filter=blocksize-policy", "--filter=extentlist", "memory",
                                       "size=1M", "extentlist=" + Path("ext.txt"),
                                       "blocksize-minimum=4096", "blocksize-error-policy=error"});
  ASSERT_OK(nbd_export);
  NbdOptions options;
  options.request_bytes = 10'000;
  ExpectAnswer(*nbd_export, options, {{0, 65536}, {900 * 1024, 100 * 1024}});
}

// 8 EiB, a GiB at a time: only a time limit ends it.
TEST_F(NbdServersTest, SHAnEndlessExportEndsWithItsTime) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "no libnbd or no nbdkit";
  ASSERT_OK(ServeNbdkit({"null", "size=9223372036854775807"}));
  const auto begin = std::chrono::steady_clock::now();
  const auto source = OpenSource(SocketUri(), {.purpose = SourcePurpose::kAllocated,
                                               .time_limit = std::chrono::milliseconds(300)});
  ASSERT_OK(source);
  const auto all = test::Drain(*source->cursor);
  EXPECT_EQ(all.status().code(), StatusCode::kDeadlineExceeded) << all.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(NbdServersTest, NbdkitFailuresAreErrors) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "no libnbd or no nbdkit";
  {
    const auto nbd_export = ServeNbdkit({"--no-sr", "memory", "size=1M"});
    EXPECT_EQ(nbd_export.status().code(), StatusCode::kFailedPrecondition) << nbd_export.status();
  }
  server_.reset();
  std::filesystem::remove(Path("socket"));
  {
    const auto nbd_export = ServeNbdkit({"eval", "get_size=echo 1M", "can_extents=exit 0",
                                         "pread=exit 1", "extents=echo 'EIO too bad' >&2; exit 1"});
    ASSERT_OK(nbd_export);
    auto cursor = MakeNbdCursor(*nbd_export);
    ASSERT_OK(cursor);
    const auto all = test::Drain(**cursor);
    EXPECT_EQ(all.status().code(), StatusCode::kUnavailable) << all.status();
  }
  server_.reset();
  std::filesystem::remove(Path("socket"));
  {
    const auto nbd_export = ServeNbdkit({"memory", "size=100G"});
    ASSERT_OK(nbd_export);
    auto cursor = MakeNbdCursor(*nbd_export);
    ASSERT_OK(cursor);
    ExtentBatch batch;
    ASSERT_OK((*cursor)->Next(batch));
    ASSERT_LT((*cursor)->covered(), (*cursor)->capacity());
    server_.reset();  // killed
    EXPECT_EQ(test::Drain(**cursor).status().code(), StatusCode::kUnavailable);
  }
}

// A port of 127.0.0.1 that was free a moment ago.
std::string FreePort() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  bind(probe, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length);
  close(probe);
  return std::to_string(ntohs(address.sin_port));
}

TEST_F(NbdServersTest, OverTcp) {
  if (!Have({"nbdkit"})) GTEST_SKIP() << "no libnbd or no nbdkit";
  const std::string port = FreePort();
  directory_.Write("ext.txt", "0 64K 2\n64K 64K 0\n");
  const auto nbd_export =
      Serve({"nbdkit", "-f", "-r", "-i", "127.0.0.1", "-p", port, "--filter=extentlist", "memory",
             "size=1M", "extentlist=" + Path("ext.txt")},
            "nbd://127.0.0.1:" + port + "/");
  ASSERT_OK(nbd_export);
  ExpectAnswer(*nbd_export, {}, {{65536, 65536}});
}

TEST_F(NbdServersTest, OverTlsWithSharedKeys) {
  if (!Have({"nbdkit", "psktool"})) GTEST_SKIP() << "no libnbd, nbdkit or psktool";
  ASSERT_EQ(test::Run({"psktool", "-u", "alice", "-p", Path("keys")}), 0);
  ASSERT_EQ(test::Run({"psktool", "-u", "alice", "-p", Path("others")}), 0);
  NbdExportOptions options;
  options.tls_psk_file = Path("keys");
  options.tls_username = "alice";
  const std::vector<std::string> command = {
      "nbdkit", "-f",     "-r", "-U", Path("socket"), "--tls=require", "--tls-psk=" + Path("keys"),
      "memory", "size=1M"};
  const auto nbd_export = Serve(command, SocketUri("nbds+unix", "alice@"), options);
  ASSERT_OK(nbd_export);
  ExpectAnswer(*nbd_export, {}, {});
  options.tls_psk_file = Path("others");
  EXPECT_FALSE(NbdExport::Open(SocketUri("nbds+unix", "alice@"), options).ok());
  EXPECT_FALSE(NbdExport::Open(SocketUri()).ok()) << "without TLS";
}

TEST_F(NbdServersTest, OverTlsWithCertificates) {
  if (!Have({"nbdkit", "openssl"})) GTEST_SKIP() << "no libnbd, nbdkit or openssl";
  const auto certify = [this](const std::string& directory) {
    std::filesystem::create_directories(Path(directory));
    const std::string in = Path(directory) + "/";
    ASSERT_EQ(test::Run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                         "-keyout", in + "server-key.pem", "-out", in + "server-cert.pem"}),
              0);
    std::filesystem::copy(in + "server-cert.pem", in + "ca-cert.pem");
  };
  certify("one");
  certify("two");
  const std::string port = FreePort();
  const std::string uri = "nbds://127.0.0.1:" + port + "/";
  NbdExportOptions options;
  options.tls_certificates = Path("one");
  const auto nbd_export =
      Serve({"nbdkit", "-f", "-r", "-i", "127.0.0.1", "-p", port, "--tls=require",
             "--tls-certificates=" + Path("one"), "memory", "size=1M"},
            uri, options);
  ASSERT_OK(nbd_export);
  ExpectAnswer(*nbd_export, {}, {});
  options.tls_certificates = Path("two");
  EXPECT_FALSE(NbdExport::Open(uri, options).ok()) << "signed by another authority";
}

}  // namespace nbd_servers_test
}  // namespace cbt
