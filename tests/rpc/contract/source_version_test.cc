// A snapshot is replaced by another of the same size between two parts of one answer. The parts are
// of two snapshots and must not be combined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/source/directory_provider.h"
#include "cbt/units.h"
#include "cbt/wire/digest.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/resumption.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace source_version_test {

using absl::StatusCode;
using reference::Ranges;
using rpc::Completeness;
using testing::HasSubstr;

constexpr uint64_t kCapacity = kMiB;

// Answers with `first` until its stream breaks halfway, and with `later` from then on.
class Replaced {
 public:
  Replaced(std::string first, std::string later)
      : service([this, first = std::move(first), later = std::move(later)](
                    const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          const bool breaks = opened++ == 0;
          MetadataSource source = Extents(std::make_unique<ScriptedCursor>(
              kCapacity, 1, std::make_shared<CursorTrace>(),
              [breaks](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                if (position == 0) {
                  batch.push_back({0, 4096});
                  return 4096;
                }
                if (breaks) return absl::UnavailableError("the plugin goes away");
                if (position < 8192) batch.push_back({8192, 4096});
                return kCapacity;
              }));
          source.version = breaks ? first : later;
          return source;
        }) {}

  std::atomic<int> opened = 0;
  Service service;
};

rpc::ListRequest RequestTo(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = std::string("s");
  return request;
}

TEST(SourceVersion, AttackUAStreamIsNotGoneOnWithFromAnotherSnapshot) {
  for (const bool replaced : {true, false}) {
    const Replaced plugin("generation 1", replaced ? "generation 2" : "generation 1");
    const Listed listed = ListWhatComes(RequestTo(plugin.service.server->address()));
    EXPECT_EQ(plugin.opened, 2);
    if (replaced) {
      EXPECT_EQ(listed.status.code(), StatusCode::kAborted) << listed.status;
      EXPECT_THAT(listed.status.ToString(), HasSubstr("start again from 0"));
    } else {
      EXPECT_OK(listed.status);
      EXPECT_EQ(listed.tuples, (Ranges{{0, 4096}, {8192, 4096}}));
    }
  }
}

TEST(SourceVersion, AttackUARelayPassesItOn) {
  for (const bool replaced : {true, false}) {
    for (const rpc::Api api : {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession}) {
      for (const bool check : {true, false}) {
        const Replaced plugin("generation 1", replaced ? "generation 2" : "generation 1");
        const Sidecar sidecar(plugin.service.server->address(), check);
        rpc::ListRequest request = sidecar.Request(api);
        request.retry_for = std::chrono::seconds(60);
        const absl::Status status = ListWhatComes(request).status;
        EXPECT_EQ(plugin.opened, 2);
        EXPECT_EQ(status.code(), replaced ? StatusCode::kAborted : StatusCode::kOk) << status;
      }
    }
  }
}

// The server's version from call to call, and what its pages are read from.
class Changing {
 public:
  Changing()
      : provider([this](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          MetadataSource source = Extents(CursorOver({{0, 10}, {20, 10}, {40, 10}}, kCapacity));
          source.version = version;
          return source;
        }) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.apis = {rpc::Api::kCsi, rpc::Api::kPaged};
    server = ValueOf(rpc::Server::Start(provider, options));
  }

  TempDir dir;
  std::string version = "1";
  FunctionProvider provider;
  std::unique_ptr<rpc::Server> server;
};

TEST(SourceVersion, AttackUAPageTokenIsOfTheSnapshotThatItsPageWasReadFrom) {
  for (const bool relayed : {false, true}) {
    Changing plugin;
    std::unique_ptr<Sidecar> sidecar;
    rpc::ListRequest request = RequestTo(plugin.server->address());
    if (relayed) {
      sidecar = std::make_unique<Sidecar>(plugin.server->address());
      request = sidecar->Request(rpc::Api::kPaged);
    }
    request.api = rpc::Api::kPaged;
    request.max_results = 1;
    auto cursor = rpc::RemoteCursor::Open(request);
    ASSERT_OK(cursor);
    ExtentBatch batch;
    ASSERT_OK((*cursor)->Next(batch));
    ASSERT_OK((*cursor)->Next(batch));
    plugin.version = "2";
    absl::Status status;
    for (int i = 0; i < 3 && status.ok(); ++i) status = (*cursor)->Next(batch).status();
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("start without a token"));
    // Nor may a listing resume from its first page.
    status = (*cursor)->Seek(20);
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("start again from 0"));
    plugin.version = "1";
    EXPECT_OK((*cursor)->Seek(20));
  }
}

TEST(SourceVersion, AttackUAProgramThatGoesOnInAnotherProcessComparesItToo) {
  Changing plugin;
  rpc::ListRequest request = RequestTo(plugin.server->address());
  auto first = rpc::RemoteCursor::Open(request);
  ASSERT_OK(first);
  EXPECT_EQ((*first)->source_version().size(), 2 * rpc::kSourceVersionBytes);
  request.source_version = (*first)->source_version();
  request.starting_offset = 20;
  EXPECT_OK(ListWhatComes(request).status);
  plugin.version = "2";
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kAborted);
  // Without a version, the snapshot cannot be known to be the same.
  const FakeServer silent(Script{.messages = {Variable(kCapacity, {{20, 10}})}});
  request.address = silent.address();
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kAborted);
  request.source_version.clear();
  EXPECT_OK(ListWhatComes(request).status);
}

// What is behind the place is another after a call that breaks, and its version is the same.
class SwappedAtItsPlace {
 public:
  SwappedAtItsPlace()
      : service([this](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          const bool breaks = next_breaks.exchange(false);
          MetadataSource source = Extents(std::make_unique<ScriptedCursor>(
              kCapacity, 1, std::make_shared<CursorTrace>(),
              [breaks](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
                if (position == 0) {
                  batch.push_back({0, breaks ? 4096u : 1024u});
                  return 4096;
                }
                if (breaks) return absl::UnavailableError("the plugin goes away");
                if (position < 8192) batch.push_back({8192, 4096});
                return kCapacity;
              }));
          source.version = "nbd://127.0.0.1:1/export";
          source.may_change_unseen = true;
          return source;
        }) {}

  std::atomic<bool> next_breaks = false;
  Service service;
};

TEST(SourceVersion, LCASourceThatKnowsOnlyItsPlaceIsNotProven) {
  for (const bool breaks : {true, false}) {
    // Directly, and behind relays that decode messages and that do not.
    for (int way = 0; way < 3; ++way) {
      SwappedAtItsPlace plugin;
      std::unique_ptr<Sidecar> sidecar;
      rpc::ListRequest request = RequestTo(plugin.service.server->address());
      if (way > 0) {
        sidecar = std::make_unique<Sidecar>(plugin.service.server->address(), way == 1);
        request = sidecar->Request(rpc::Api::kCsi);
        request.retry_for = std::chrono::seconds(60);
      }
      request.require_proof = true;
      const Listed refused = ListWhatComes(request);
      EXPECT_EQ(refused.status.code(), StatusCode::kFailedPrecondition) << refused.status;
      EXPECT_THAT(refused.status.ToString(), HasSubstr("serve an image file or a change map"));
      EXPECT_TRUE(refused.tuples.empty());
      request.require_proof = false;
      plugin.next_breaks = breaks;
      const Listed listed = ListWhatComes(request);
      EXPECT_OK(listed.status);
      EXPECT_FALSE(plugin.next_breaks);
      EXPECT_EQ(listed.completeness, Completeness::kProvenForPlace) << way;
      // What a program keeps of it is no version to go on with.
      const auto cursor = rpc::RemoteCursor::Open(request);
      ASSERT_OK(cursor);
      EXPECT_TRUE((*cursor)->may_change_unseen());
      request.source_version = (*cursor)->source_version();
      request.starting_offset = 8192;
      const absl::Status later = ListWhatComes(request).status;
      EXPECT_EQ(later.code(), StatusCode::kFailedPrecondition) << later;
      EXPECT_THAT(later.ToString(), HasSubstr("start again from 0"));
    }
  }
}

// A server that proves each call, and says nothing of the state of its data.
TEST(SourceVersion, LCPartsWithoutAVersionAreNotProven) {
  for (const bool resumed : {true, false}) {
    StreamDigest digest;
    const uint64_t offset = resumed ? 8192 : 0;
    const uint64_t length = 4096;
    digest.Add({&offset, 1}, {&length, 1});
    Script whole{.messages = {Variable(kCapacity, {{offset, length}})}};
    whole.trailing =
        rpc::ProofMetadata(digest, resumed ? 4096 : 0,
                           rpc::StreamHeader{BlockMetadataType::kVariableLength, kCapacity});
    const Script broken{.messages = {Variable(kCapacity, {{0, 4096}})},
                        .status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "goes away")};
    const FakeServer server([&](const FakeServer::Request& asked) {
      return resumed && asked.starting_offset() == 0 ? broken : whole;
    });
    rpc::ListRequest request = RequestTo(server.address());
    request.require_proof = true;
    const Listed listed = ListWhatComes(request);
    if (resumed) {
      EXPECT_EQ(listed.status.code(), StatusCode::kFailedPrecondition) << listed.status;
      EXPECT_THAT(listed.status.ToString(), HasSubstr("reports no version"));
    } else {
      EXPECT_OK(listed.status);
      EXPECT_EQ(listed.completeness, Completeness::kProven);
    }
  }
}

TEST(SourceVersion, AttackUNothingOfWhatTheProviderSaysIsReadFromIt) {
  EXPECT_EQ(rpc::SourceVersionText(rpc::SourceVersion("a", "b", "inode 12"), false).size(), 32u);
  const std::vector<std::string> different = {
      rpc::SourceVersion("a", "b", "1"), rpc::SourceVersion("a", "b", "2"),
      rpc::SourceVersion("a", "b", ""),  rpc::SourceVersion(std::nullopt, "b", "1"),
      rpc::SourceVersion("", "b", "1"),  rpc::SourceVersion("", "b1", ""),
      rpc::SourceVersion("b", "a", "1")};
  for (size_t i = 0; i < different.size(); ++i) {
    EXPECT_EQ(different[i].size(), rpc::kSourceVersionBytes);
    for (size_t k = 0; k < i; ++k) EXPECT_NE(different[i], different[k]) << i << " " << k;
  }
}

// End to end: files, a restarted server, a client that seeks in a stream it holds.
TEST(SourceVersion, AttackUAnImageThatIsSwappedForOneOfItsSizeIsFound) {
  const TempDir dir;
  const std::string monday(64 * kKiB, 'a');
  std::string tuesday = monday;
  tuesday[5000] = 'b';
  std::string other = monday;
  other[50'000] = 'b';
  dir.Write("root/v/mon.img", monday);
  dir.Write("root/v/tue.img", tuesday);
  dir.Write("root/other", other);
  const auto provider = MakeDirectoryProvider(dir / "root");
  ASSERT_OK(provider);
  const rpc::ServerOptions options = {.listen = "unix://" + (dir / "s")};
  auto server = rpc::Server::Start(**provider, options);
  ASSERT_OK(server);
  rpc::ListRequest request = RequestTo((*server)->address());
  request.snapshot_id = std::string("v/tue");
  request.base_snapshot_id = std::string("v/mon");
  auto cursor = rpc::RemoteCursor::Open(request);
  ASSERT_OK(cursor);
  server->reset();
  server = rpc::Server::Start(**provider, options);
  ASSERT_OK(server);
  EXPECT_OK((*cursor)->Seek(8192));
  std::filesystem::rename(dir / "root/other", dir / "root/v/tue.img");
  EXPECT_EQ((*cursor)->Seek(8192).code(), StatusCode::kAborted);
}

}  // namespace source_version_test
}  // namespace cbt::test
