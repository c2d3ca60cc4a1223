// Files that name sources beside images, as the directory provider reads them.
#include "source/directory/volume_sources.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "cbt/change_map_file.h"
#include "cbt/source/directory_provider.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace volume_sources_test {

using test::ValueOf;

using absl::StatusCode;
using reference::Ranges;
using testing::HasSubstr;

class VolumeSourcesTest : public testing::Test {
 protected:
  VolumeSourcesTest() {
    std::filesystem::create_directories(dir_ / "root/vol");
    Write(".list.json",
          R"([{"offset":4096,"length":100,"exists":"true"},{"offset":65536,"length":4096}])");
    Write("delta.source",
          "# what changed\nbase monday\ntarget tuesday\n"
          "address .list.json\nfrom rbd-json\ncapacity 1M\n");
    Serve({});
  }

  void Serve(const DirectoryProviderOptions& options) {
    provider_ = ValueOf(MakeDirectoryProvider(dir_ / "root", options));
  }
  // The error of a delta whose source is at `address`.
  absl::Status Reached(const std::string& address, const std::string& from = "") {
    Write("delta.source", "base monday\ntarget tuesday\ncapacity 1M\naddress " + address + "\n" +
                              (from.empty() ? "" : "from " + from + "\n"));
    return Delta("monday", "tuesday").status();
  }

  void Write(const std::string& name, const std::string& text) {
    dir_.Write("root/vol/" + name, text);
  }
  absl::StatusOr<Ranges> Delta(const std::string& base, const std::string& target) {
    return Read(provider_->OpenDelta("vol/" + base, "vol/" + target, context_));
  }
  absl::StatusOr<Ranges> Allocated(const std::string& target) {
    return Read(provider_->OpenAllocated("vol/" + target, context_));
  }
  static absl::StatusOr<Ranges> Read(absl::StatusOr<MetadataSource> source) {
    if (!source.ok()) return source.status();
    return test::Drain(*source->cursor);
  }

  const test::TempDir dir_;
  const Secrets secrets_;
  const StreamContext context_{{}, secrets_};
  std::unique_ptr<SnapshotProvider> provider_;
};

const Ranges kListed = {{4096, 4096}, {65536, 4096}};

TEST_F(VolumeSourcesTest, TellsWithoutAnyImage) {
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), kListed);
  EXPECT_EQ(Delta("tuesday", "monday").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Delta("monday", "friday").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Allocated("tuesday").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(VolumeSourcesTest, TellsBesideImagesOfTheSameSize) {
  Write("monday.img", std::string(kMiB, 'm'));
  Write("tuesday.img", std::string(kMiB, 't'));
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), kListed);
  Write("tuesday.img", std::string(1 << 19, 't'));
  const absl::Status status = Delta("monday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("524288"));
}

TEST_F(VolumeSourcesTest, AllocationToo) {
  Write("alloc.source", "target tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n");
  EXPECT_EQ(ValueOf(Allocated("tuesday")), kListed);
}

// An unusable source must be an error even if images could answer.
TEST_F(VolumeSourcesTest, BrokenOnesAreNotReadAsNothing) {
  Write("monday.img", std::string(8192, 'm'));
  Write("wednesday.img", std::string(8192, 'w'));
  Write("broken.source", "target tuesday\nbase sunday\nadress x\n");
  EXPECT_EQ(ValueOf(Delta("monday", "wednesday")), (Ranges{{0, 8192}}));
  const absl::Status status = Delta("sunday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("broken.source: line 3"));
}

TEST_F(VolumeSourcesTest, WhatCannotBeOpenedIsNotReadAsNothing) {
  EXPECT_EQ(Delta("sunday", "tuesday").status().code(), StatusCode::kNotFound);
  dir_.WriteClosed("root/vol/closed.source");
  const absl::Status status = Delta("sunday", "tuesday").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("closed.source: "));
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), kListed);
}

TEST_F(VolumeSourcesTest, DamagedListsAndDoubleOnesAreErrors) {
  Write(".list.json", R"([{"offset":4096,"length":100,"exists":"true"},{"off)");
  EXPECT_EQ(Delta("monday", "tuesday").status().code(), StatusCode::kFailedPrecondition);
  Write(".list.json", "[]");
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), Ranges{});
  Write("again.source", "base monday\ntarget tuesday\naddress .list.json\n");
  EXPECT_THAT(std::string(Delta("monday", "tuesday").status().message()),
              HasSubstr("about the same snapshots"));
}

// Empty, truncated, or in another encoding: read as an image, it would be a tiny volume.
TEST_F(VolumeSourcesTest, E14AnEmptyListIsNoVolume) {
  Write("alloc.source", "target monday\naddress .blocks.json\n");
  const std::string list =
      R"({"BlockSize":524288,"VolumeSize":1,"Blocks":[{"BlockIndex":1},{"BlockIndex":2}]})";
  Write(".blocks.json", list);
  EXPECT_EQ(ValueOf(Allocated("monday")), (Ranges{{524288, 1048576}}));
  std::string wide;
  for (const char c : list) wide += {c, '\0'};
  std::vector<std::string> broken = {"\xff\xfe" + wide,    wide, "\xef\xbb\xbf" + list, " \n", "x",
                                     std::string(512, ' ')};
  for (size_t size = 0; size < list.size(); ++size) broken.push_back(list.substr(0, size));
  for (const std::string& text : broken) {
    Write(".blocks.json", text);
    const absl::Status status = Allocated("monday").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << text << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("alloc.source"));
  }
  // Content that looks like no list is an image only if the file says so.
  Write(".blocks.json", std::string(4096, '\1'));
  EXPECT_THAT(std::string(Allocated("monday").status().message()), HasSubstr("name the format"));
  Write("alloc.source", "target monday\naddress .blocks.json\nfrom image\n");
  EXPECT_EQ(ValueOf(Allocated("monday")), (Ranges{{0, 4096}}));
}

// A file cut at the end of a line can look complete; no prefix of this one does.
TEST_F(VolumeSourcesTest, E14NoBeginningOfAFileAnswers) {
  Write(".bits", std::string("\x03\x80", 2));
  // The first text is the documented order: it is incomplete without the address at its end.
  for (const std::string text :
       {"base monday\ntarget tuesday\nfrom bitmap:granularity=4K,order=msb\ncapacity 64K\n"
        "address .bits\n",
        "base monday\ntarget tuesday\naddress .bits\ncapacity 64K\n"
        "from bitmap:granularity=4K,order=msb\n"}) {
    for (size_t size = 0; size <= text.size(); ++size) {
      Write("delta.source", text.substr(0, size));
      const auto delta = Delta("monday", "tuesday");
      EXPECT_EQ(Allocated("tuesday").status().code(), StatusCode::kFailedPrecondition) << size;
      if (size == text.size()) {
        ASSERT_OK(delta);
        EXPECT_EQ(*delta, (Ranges{{24576, 12288}}));
      } else {
        EXPECT_EQ(delta.status().code(), StatusCode::kFailedPrecondition) << size;
      }
      if (size > 0 && text[size - 1] != '\n') {
        EXPECT_THAT(std::string(delta.status().message()),
                    HasSubstr("the last line has no newline"));
      }
    }
  }
}

TEST_F(VolumeSourcesTest, AKeyTwiceIsRefused) {
  const std::string text =
      "base monday\ntarget tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n"
      "base-capacity 1M\n";
  Write("delta.source", text);
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), kListed);
  for (const char* const more : {"base monday", "base sunday", "target tuesday", "address x",
                                 "from rbd-json", "capacity 1M", "base-capacity 2M"}) {
    Write("delta.source", text + more + "\n");
    const absl::Status status = Delta("monday", "tuesday").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << more;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 7: expected each key once"));
  }
}

// From a later base, the changes between the two bases would be missing.
TEST_F(VolumeSourcesTest, AListOfOtherSnapshotsIsRefused) {
  ChangeMap map = test::MapOf({1}, {kMiB, 4096});
  map.set_identity({"vol", "monday", "tuesday"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "root/vol/.listed"));
  Write("delta.source", "base monday\ntarget tuesday\naddress .listed\n");
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), (Ranges{{4096, 4096}}));
  // The storage's own snapshot names: the file maps them.
  Write("delta.source", "base s1\ntarget s2\naddress .listed\n");
  EXPECT_EQ(ValueOf(Delta("s1", "s2")), (Ranges{{4096, 4096}}));
  // Names of snapshots that exist here, as an image or a list.
  Write("monday.img", std::string(kMiB, 'm'));
  EXPECT_THAT(std::string(Delta("s1", "s2").status().message()),
              HasSubstr("delta.source: .listed names the base \"monday\", not \"s1\""));
  Write("delta.source", "base monday\ntarget s2\naddress .listed\n");
  EXPECT_EQ(ValueOf(Delta("monday", "s2")), (Ranges{{4096, 4096}}));
  Write("other.source", "target tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n");
  const absl::Status status = Delta("monday", "s2").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the target \"tuesday\", not \"s2\""));
  // Identified by ids, and of another volume.
  map.set_identity({"vol", "vol/monday", "vol/s2"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "root/vol/.listed"));
  EXPECT_EQ(ValueOf(Delta("monday", "s2")), (Ranges{{4096, 4096}}));
  map.set_identity({"vol", "vol/tuesday", "s2"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "root/vol/.listed"));
  EXPECT_THAT(std::string(Delta("monday", "s2").status().message()),
              HasSubstr("the base \"vol/tuesday\", not \"monday\""));
  map.set_identity({"other", "monday", "s2"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "root/vol/.listed"));
  EXPECT_THAT(std::string(Delta("monday", "s2").status().message()),
              HasSubstr(".listed is a map of the volume \"other\""));
}

TEST_F(VolumeSourcesTest, NothingOutsideOfTheRootIsRead) {
  dir_.Write("outside.json", "[]");
  for (const std::string& address :
       {dir_ / "outside.json", std::string("../../outside.json"), std::string("-")}) {
    Write("delta.source",
          "base monday\ntarget tuesday\naddress " + address + "\nfrom rbd-json\ncapacity 1M\n");
    EXPECT_EQ(Delta("monday", "tuesday").status().code(), StatusCode::kFailedPrecondition)
        << address;
  }
}

// A pipe with a silent writer blocks its reader, and every further stream blocks another thread.
TEST_F(VolumeSourcesTest, AttackQWhatCanMakeAReaderWaitIsNoSource) {
  const std::string pipe = dir_ / "root/vol/.pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  ASSERT_EQ(::symlink(".pipe", (dir_ / "root/vol/.link").c_str()), 0);
  for (const std::string address : {".pipe", ".link"}) {
    for (const std::string from : {"", "rbd-json", "bitmap:granularity=4096",
                                   "bitmap:base64,granularity=4096", "qcow2", "cbm"}) {
      auto answer = std::async(std::launch::async, [&] { return Reached(address, from); });
      const bool answered = answer.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
      EXPECT_TRUE(answered) << address << from;
      if (!answered) {
        ::close(writer);  // ends the wait
        return;
      }
      const absl::Status status = answer.get();
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("neither a regular"));
    }
  }
  ::close(writer);
  // The file that names the source too; other requests continue.
  Write("delta.source",
        "base monday\ntarget tuesday\naddress .list.json\nfrom rbd-json\ncapacity 1M\n");
  ASSERT_EQ(::mkfifo((dir_ / "root/vol/pipe.source").c_str(), 0600), 0);
  EXPECT_EQ(ValueOf(Delta("monday", "tuesday")), kListed);
  EXPECT_THAT(std::string(Delta("sunday", "tuesday").status().message()),
              HasSubstr("pipe.source: is neither a regular file nor a block device"));
}

// Anyone who can write to the root would choose what the server connects to and which keys it
// presents.
TEST_F(VolumeSourcesTest, AttackQWhatLiesOutsideOfTheRootHasToBeListed) {
  const auto is_listed = [this](const std::string& address, const std::string& from = "") {
    const absl::Status status = Reached(address, from);
    EXPECT_FALSE(status.ok()) << address;
    return !absl::StrContains(status.message(), "not listed (cbtctl serve --allow-source)");
  };
  const std::string socket = "nbd+unix:///?socket=" + (dir_ / "run/none");
  EXPECT_FALSE(is_listed(socket));
  EXPECT_FALSE(is_listed("nbd://127.0.0.1:1/x"));
  EXPECT_FALSE(is_listed("nbds://127.0.0.1:1"));
  EXPECT_FALSE(is_listed(dir_ / ".list.json", "rbd-json"));
  Serve({.allowed_sources = {dir_ / "run/", "nbd://127.0.0.1:1", "nbds://127.0.0.1:1/one",
                             "nbd+unix:///other?socket=/x/y", dir_ / "lists/one.json"}});
  for (const std::string& address :
       {socket, "nbds" + socket.substr(3), "nbd+unix:///name?socket=" + (dir_ / "run/a/b"),
        std::string("nbd://127.0.0.1:1"), std::string("nbd://127.0.0.1:1/any"),
        std::string("nbds://127.0.0.1:1/one"), std::string("nbds://127.0.0.1:1/one/two"),
        std::string("nbd+unix:///other?socket=/x/y")}) {
    EXPECT_TRUE(is_listed(address)) << address;
  }
  for (const std::string& address :
       {"nbd+unix:///?socket=" + (dir_ / "running"),
        "nbd+unix:///?socket=" + (dir_ / "run/../other"),
        "nbd+unix:///?socket=" + (dir_ / "run/%2e%2e/other"),
        "nbd+unix:///?socket=" + (dir_ / "run/a") + "&socket=/x",
        "nbd+unix:///?x=1&socket=" + (dir_ / "run/a"), std::string("nbd://127.0.0.1:10"),
        std::string("nbd://127.0.0.1"), std::string("nbd://127.0.0.1:1@other/x"),
        std::string("nbds://127.0.0.1:1"), std::string("nbds://127.0.0.1:1/ones"),
        std::string("nbd+unix:///others?socket=/x/y"), std::string("nbd+unix:///?socket=x/y")}) {
    EXPECT_FALSE(is_listed(address)) << address;
  }
  // Another export of a server with one allowed export, and keys.
  EXPECT_TRUE(is_listed("nbd://127.0.0.1:1", "nbd:export=any"));
  EXPECT_TRUE(is_listed(socket, "nbd:export=any"));
  EXPECT_FALSE(is_listed("nbds://127.0.0.1:1/one", "nbd:export=two"));
  EXPECT_FALSE(is_listed("nbd+unix:///other?socket=/x/y", "nbd:export=two"));
  for (const std::string key : {"tls-psk", "tls-certificates"}) {
    EXPECT_TRUE(is_listed("nbds" + socket.substr(3), "nbd:" + key + "=" + (dir_ / "run/keys")));
    for (const std::string& file : {dir_ / "keys", dir_ / "run/../keys", std::string("keys")}) {
      EXPECT_FALSE(is_listed("nbds" + socket.substr(3), "nbd:" + key + "=" + file)) << file;
    }
  }
  // Files: the listed one, and everything below a listed directory. Nothing may lead out of it.
  const std::string list = R"([{"offset":4096,"length":100,"exists":"true"}])";
  dir_.Write("lists/one.json", list);
  dir_.Write("lists/two.json", list);
  dir_.Write("run/three.json", list);
  ASSERT_EQ(::symlink("../lists/two.json", (dir_ / "run/link.json").c_str()), 0);
  const auto delta = [&](const std::string& path) {
    Write("delta.source",
          "base monday\ntarget tuesday\naddress " + path + "\nfrom rbd-json\ncapacity 1M\n");
    return Delta("monday", "tuesday");
  };
  for (const std::string name : {"lists/one.json", "run/three.json"}) {
    const auto found = delta(dir_ / name);
    ASSERT_OK(found);
    EXPECT_EQ(*found, (Ranges{{4096, 4096}}));
  }
  for (const std::string name : {"lists/two.json", "run/link.json", "run/../lists/one.json"}) {
    EXPECT_EQ(delta(dir_ / name).status().code(), StatusCode::kFailedPrecondition) << name;
  }
}

TEST_F(VolumeSourcesTest, WhatIsListedIsAPathOrAnAddress) {
  for (const std::string entry :
       {"", "relative", "/a/../b", "/a//b", "/a/./b", "http://x", "nbd://", "nbd+unix://", "./x"}) {
    const absl::Status status =
        MakeDirectoryProvider(dir_ / "root", {.allowed_sources = {entry}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << entry << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + entry + "': neither an absolute"));
  }
  for (const std::string entry :
       {"/", "/a", "/a/", "nbd://h", "nbds://h:1/", "nbd+unix:///?socket=/s"}) {
    EXPECT_OK(MakeDirectoryProvider(dir_ / "root", {.allowed_sources = {entry}})) << entry;
  }
  EXPECT_EQ(MakeDirectoryProvider(dir_ / "root", {.source_time = std::chrono::milliseconds(0)})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

// A sparse file costs its creator nothing and its reader days.
TEST_F(VolumeSourcesTest, AttackQNoFileIsReadForEver) {
  const std::string sparse = dir_ / "root/vol/.sparse";
  std::ofstream(sparse, std::ios::binary)
      << "rbd diff v2\nf" << std::string("\5\0\0\0\0\0\0\0\1\0\0\0a", 13);
  // The largest size that the file system allows.
  uint64_t size = kPiB;
  while (::truncate(sparse.c_str(), static_cast<off_t>(size)) != 0) size /= 2;
  ASSERT_GE(size, kTiB);
  Serve({.source_time = std::chrono::milliseconds(200)});
  // Empty records of unknown kind, and clear bits.
  for (const std::string& more :
       {std::string("from rbd-diff\n"),
        "from bitmap:granularity=64\ncapacity " + std::to_string(size * 512) + "\n"}) {
    Write("delta.source", "base monday\ntarget tuesday\naddress .sparse\n" + more);
    const absl::Status status = Delta("monday", "tuesday").status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << more << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("delta.source: exceeded the time limit"));
  }
}

// One range that stands for a gigabyte of map.
TEST_F(VolumeSourcesTest, SFAShortListMakesNoLargeMap) {
  const uint64_t capacity = uint64_t{1} << 54;
  for (const auto& [bytes, code] : {std::pair{capacity, StatusCode::kResourceExhausted},
                                    std::pair{uint64_t{kTiB}, StatusCode::kOk}}) {
    Write(".list.json",
          "[{\"offset\":0,\"length\":" + std::to_string(bytes) + ",\"exists\":\"true\"}]");
    Write("delta.source",
          "base monday\ntarget tuesday\naddress .list.json\nfrom rbd-json\ncapacity " +
              std::to_string(capacity) + "\n");
    const absl::Status status = Delta("monday", "tuesday").status();
    EXPECT_EQ(status.code(), code) << status;
  }
}

// What follows a NUL byte would be cut off, and a file that exists be read in place of another.
TEST_F(VolumeSourcesTest, SHANulByteCutsNoAddress) {
  ASSERT_OK(Delta("monday", "tuesday"));
  for (const std::string& line : {std::string("address .list.json\0.other\nfrom rbd-json\n", 39),
                                  std::string("address .list.json\nfrom rbd-json\0\n", 33),
                                  std::string("from rbd-json\n# \0\naddress .list.json\n", 37)}) {
    Write("delta.source", "base monday\ntarget tuesday\ncapacity 1M\n" + line);
    const absl::Status status = Delta("monday", "tuesday").status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("NUL byte"));
  }
  const absl::Status status =
      OpenSource(std::string(dir_ / "root/vol/.list.json") + std::string("\0x", 2), {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("NUL byte"));
}

// A client that leaves, and a server that shuts down, end what is being read for a stream.
TEST_F(VolumeSourcesTest, SGAStreamThatStopsStopsItsSource) {
  const std::string sparse = dir_ / "root/vol/.sparse";
  std::ofstream(sparse, std::ios::binary)
      << "rbd diff v2\nf" << std::string("\5\0\0\0\0\0\0\0\1\0\0\0a", 13);
  uint64_t size = kPiB;
  while (::truncate(sparse.c_str(), static_cast<off_t>(size)) != 0) size /= 2;
  std::filesystem::create_directories(dir_ / "run");
  // A server that accepts connections and says nothing.
  const std::string socket_path = dir_ / "run/silent";
  const int silent = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_path.size(), sizeof address.sun_path);
  std::copy(socket_path.begin(), socket_path.end(), address.sun_path);
  ASSERT_EQ(::bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(silent, 5), 0);
  Serve({.allowed_sources = {dir_ / "run"}});  // the time limit is ten minutes
  const std::string entries[] = {
      "address .sparse\nfrom rbd-diff\n",
      "address nbd+unix:///?socket=" + socket_path + "\nfrom nbd:depth=1\n"};
  for (const std::string& entry : entries) {
    SCOPED_TRACE(entry);
    Write("delta.source", "base monday\ntarget tuesday\n" + entry);
    std::stop_source stop;
    std::thread stopper([&stop] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      stop.request_stop();
    });
    const auto begin = std::chrono::steady_clock::now();
    const absl::Status status =
        provider_
            ->OpenDelta("vol/monday", "vol/tuesday",
                        {.stop = stop.get_token(), .secrets = context_.secrets})
            .status();
    const auto spent = std::chrono::steady_clock::now() - begin;
    stopper.join();
    if (absl::StrContains(status.message(), "built without libnbd")) continue;
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
    EXPECT_LT(spent, std::chrono::seconds(10)) << status;
  }
  ::close(silent);
}

TEST_F(VolumeSourcesTest, AttackQNoExportIsAskedForEver) {
  if (test::FindProgram("nbdkit").empty()) GTEST_SKIP() << "no nbdkit";
  const std::string socket = dir_ / "run/socket";
  std::filesystem::create_directories(dir_ / "run");
  test::ChildProcess server({"nbdkit", "-f", "-U", socket, "null", "9223372036854775807"},
                            dir_ / "log");
  Serve({.allowed_sources = {dir_ / "run"}, .source_time = std::chrono::milliseconds(200)});
  Write("alloc.source", "target tuesday\naddress nbd+unix:///?socket=" + socket + "\n");
  absl::Status status;
  do {  // until it accepts connections
    std::this_thread::yield();
    status = Allocated("tuesday").status();
  } while (absl::IsUnavailable(status) && server.running());
  if (absl::StrContains(status.message(), "built without libnbd")) GTEST_SKIP() << status;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
}

TEST_F(VolumeSourcesTest, Qcow2ImagesAreReadAsSuch) {
  const std::string directory = dir_ / "root/vol";
  const auto sh = [](const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str());  // NOLINT: a test's own words
  };
  if (sh("command -v qemu-img && command -v qemu-io") != 0) GTEST_SKIP() << "no qemu-img";
  ASSERT_EQ(sh("cd '" + directory +
               "' && qemu-img create -f qcow2 base.qcow2 4M && qemu-io -c "
               "'write 0 128k' base.qcow2 && qemu-img create -f qcow2 -b base.qcow2 -F qcow2 "
               "top.qcow2 && qemu-io -c 'write 1M 64k' top.qcow2"),
            0);
  EXPECT_EQ(ValueOf(Allocated("base")), (Ranges{{0, 131072}}));
  EXPECT_EQ(ValueOf(Allocated("top")), (Ranges{{0, 131072}, {kMiB, 65536}}));
  EXPECT_EQ(ValueOf(Delta("base", "top")), (Ranges{{kMiB, 65536}}));
  Write("raw.img", std::string(kMiB, 'r'));
  EXPECT_EQ(Delta("raw", "top").status().code(), StatusCode::kFailedPrecondition);
  // A backing file outside the root.
  ASSERT_EQ(sh("cd '" + directory +
               "' && mv base.qcow2 ../../ && qemu-img rebase -u -F qcow2 -b "
               "../../base.qcow2 top.qcow2"),
            0);
  EXPECT_EQ(Allocated("top").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(VolumeSourcesTest, AttackUTheVersionOfAListIsThatOfItsFileAndItsEntry) {
  const auto version = [this] {
    return ValueOf(provider_->OpenDelta("vol/monday", "vol/tuesday", context_)).version;
  };
  const std::string first = version();
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(version(), first);
  Write(".new.json",
        R"([{"offset":8192,"length":100,"exists":"true"},{"offset":65536,"length":4096}])");
  std::filesystem::rename(dir_ / "root/vol/.new.json", dir_ / "root/vol/.list.json");
  const std::string replaced = version();
  EXPECT_NE(replaced, first);
  Write("delta.source",
        "base monday\ntarget tuesday\naddress .list.json\nfrom rbd-json\ncapacity 2M\n");
  EXPECT_NE(version(), replaced);
}

}  // namespace volume_sources_test
}  // namespace cbt
