// Answers that end with OK without a message, as plugins give them that have nothing to report: the
// reference driver of CSI sends a message only for blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/resumption.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/sidecar.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace no_message_test {

using absl::StatusCode;
using reference::Ranges;
using rpc::NoMessage;
using testing::HasSubstr;

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kCapacity = 256 * kBlock;

// What the reference driver sends of `changed` blocks: messages of `most` tuples, none that is
// empty, and OK at any offset.
Script HostPath(const std::vector<uint64_t>& changed, const FakeServer::Request& request,
                size_t most = 2) {
  Script script;
  Ranges tuples;
  for (const uint64_t block : changed) {
    if (static_cast<int64_t>(block * kBlock) < request.starting_offset()) continue;
    tuples.emplace_back(block * kBlock, kBlock);
    if (tuples.size() < most) continue;
    script.messages.push_back(Fixed(kCapacity, tuples));
    tuples.clear();
  }
  if (!tuples.empty()) script.messages.push_back(Fixed(kCapacity, tuples));
  return script;
}

rpc::ListRequest RequestTo(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = "s";
  request.retry_for = std::chrono::milliseconds(0);
  request.timeout = std::chrono::seconds(60);
  return request;
}

// A relay whose resolver knows how large snapshots are.
class SizeResolver final : public rpc::SnapshotResolver {
 public:
  explicit SizeResolver(std::optional<uint64_t> capacity) : capacity_(capacity) {}
  void Resolve(const rpc::SnapshotQuery& query, rpc::Done<rpc::ResolvedSnapshots> done) override {
    done(rpc::ResolvedSnapshots{
        .base_handle = query.base, .target_handle = query.target, .capacity = capacity_});
  }

 private:
  const std::optional<uint64_t> capacity_;
};

class SizedRelay : public AccessParts {
 public:
  SizedRelay(const std::string& plugin, std::optional<uint64_t> capacity, bool strict = false,
             bool check = true)
      : AccessParts(kToken), sizes_(capacity) {
    rpc::RelayOptions options;
    options.listen = "unix://" + (dir_ / "relay");
    options.plugin = plugin;
    options.require_message = strict;
    options.check_tuples = check;
    ApplyTo(options, &sizes_);
    relay_ = ValueOf(rpc::Relay::Start(options));
  }

  rpc::ListRequest Request(rpc::Api api = rpc::Api::kKubernetes) const {
    return RequestTo(relay_->address(), api, false);
  }

 private:
  const TempDir dir_;
  SizeResolver sizes_;
  std::unique_ptr<rpc::Relay> relay_;
};

// --- the client ----------------------------------------------------------------------------------

TEST(ClientNoMessage, FAIsAnEmptyAnswerOfTheCapacityThatIsKnown) {
  const FakeServer plugin(Script{});
  rpc::ListRequest request = RequestTo(plugin.address());
  request.capacity = kCapacity;
  for (const uint64_t offset : {uint64_t{0}, kBlock, kCapacity}) {
    request.starting_offset = offset;
    const auto cursor = rpc::RemoteCursor::Open(request);
    ASSERT_OK(cursor);
    EXPECT_EQ((*cursor)->capacity(), kCapacity);
    EXPECT_TRUE((*cursor)->capacity_known());
    ExtentBatch batch;
    const auto step = (*cursor)->Next(batch);
    ASSERT_OK(step);
    EXPECT_EQ(*step, Step::kComplete);
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ((*cursor)->completeness(), rpc::Completeness::kEnded);
  }
  request.starting_offset = kCapacity + 1;
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kOutOfRange);
}

// A cursor of a capacity that was never stated could be taken for that of the volume.
TEST(ClientNoMessage, FAWithoutACapacityIsTakenOnlyByThoseWhoSaySo) {
  const FakeServer plugin(Script{});
  rpc::ListRequest request = RequestTo(plugin.address());
  for (const auto unknown : {std::optional<uint64_t>(), std::optional<uint64_t>(0)}) {
    request.capacity = unknown;
    request.no_message = NoMessage::kNeedsCapacity;
    const absl::Status status = ListWhatComes(request).status;
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr("state the volume's capacity"));
    request.no_message = NoMessage::kAccepted;
    for (const uint64_t offset : {uint64_t{0}, 3 * kBlock}) {
      request.starting_offset = offset;
      const auto cursor = rpc::RemoteCursor::Open(request);
      ASSERT_OK(cursor);
      EXPECT_FALSE((*cursor)->capacity_known());
      EXPECT_EQ((*cursor)->capacity(), offset);
      ExtentBatch batch;
      EXPECT_EQ(ValueOf((*cursor)->Next(batch)), Step::kComplete);
      EXPECT_TRUE(batch.empty());
    }
    request.starting_offset = 0;
  }
}

TEST(ClientNoMessage, FAIsRefusedByThoseWhoRequireAMessageOrAProof) {
  const FakeServer plugin(Script{});
  rpc::ListRequest request = RequestTo(plugin.address());
  request.capacity = kCapacity;
  request.no_message = NoMessage::kRefused;
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kDataLoss);
  request.no_message = NoMessage::kAccepted;
  request.require_proof = true;
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kFailedPrecondition);
}

// OK alone is not enough where the server has said more.
TEST(ClientNoMessage, FAWhatContradictsItIsAnError) {
  StreamDigest one;
  const std::vector<uint64_t> number{1};
  one.Add(number, number);
  const FakeServer proven(Script{.trailing = rpc::ProofMetadata(one, 0, std::nullopt)});
  rpc::ListRequest request = RequestTo(proven.address());
  request.capacity = kCapacity;
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kDataLoss);

  const FakeServer replaced(Script{.initial = {{std::string(rpc::kSourceVersionKey), "other"}}});
  request.address = replaced.address();
  request.source_version = "one";
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kAborted);

  for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::INTERNAL}) {
    const FakeServer failed(Script{.status = {code, "no"}});
    request = RequestTo(failed.address());
    request.capacity = kCapacity;
    request.no_message = NoMessage::kAccepted;
    EXPECT_FALSE(ListWhatComes(request).status.ok());
  }
}

// The connection breaks after every message, the last one too: nothing is left then.
TEST(ClientNoMessage, FAResumptionsAfterTheLastBlockFinish) {
  for (const std::vector<uint64_t>& changed :
       {std::vector<uint64_t>{0, 1, 7}, {5, 255}, {3}, {254, 255}}) {
    for (const size_t most : {size_t{1}, size_t{2}}) {
      const FakeServer plugin([&](const FakeServer::Request& request) {
        Script script = HostPath(changed, request, most);
        if (!script.messages.empty()) {
          script.messages.resize(1);
          script.status = {grpc::StatusCode::UNAVAILABLE, "cut"};
        }
        return script;
      });
      rpc::ListRequest request = RequestTo(plugin.address());
      request.retry_for = std::chrono::seconds(60);
      const Listed listed = ListWhatComes(request);
      EXPECT_OK(listed.status);
      Ranges expected;
      for (const uint64_t block : changed) expected.emplace_back(block * kBlock, kBlock);
      EXPECT_EQ(listed.tuples, expected);
      request.no_message = NoMessage::kRefused;
      EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kDataLoss);
    }
  }
}

// A server that sends its version sends a message always: one without is another server.
TEST(ClientNoMessage, FAResumptionsOnAnotherSourceDoNot) {
  const FakeServer plugin([](const FakeServer::Request& request) {
    if (request.starting_offset() > 0) return Script{};
    return Script{.messages = {Fixed(kCapacity, {{0, kBlock}})},
                  .status = {grpc::StatusCode::UNAVAILABLE, "cut"},
                  .initial = {{std::string(rpc::kSourceVersionKey), "one"}}};
  });
  rpc::ListRequest request = RequestTo(plugin.address());
  request.retry_for = std::chrono::seconds(60);
  EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kAborted);
}

// --- the relay -----------------------------------------------------------------------------------

TEST(RelayNoMessage, FABlankVolumesAndEmptyDeltasAreAnswered) {
  const FakeServer plugin([](const FakeServer::Request& request) { return HostPath({}, request); });
  for (const bool check : {true, false}) {
    const SizedRelay relay(plugin.address(), kCapacity, false, check);
    for (const rpc::Api api : {rpc::Api::kKubernetes, rpc::Api::kSession}) {
      const auto cursor = rpc::RemoteCursor::Open(relay.Request(api));
      ASSERT_OK(cursor) << rpc::ApiName(api);
      EXPECT_EQ((*cursor)->capacity(), kCapacity);
      EXPECT_EQ((*cursor)->type(), BlockMetadataType::kVariableLength);
      const Listed listed = ListWhatComes(relay.Request(api));
      EXPECT_OK(listed.status);
      EXPECT_TRUE(listed.tuples.empty());
      // The relay can't prove what the plugin left out.
      EXPECT_EQ(listed.completeness, rpc::Completeness::kProvenFromRelay);
    }
  }
}

TEST(RelayNoMessage, FAWithoutACapacityThereIsNoMessageEither) {
  const FakeServer plugin([](const FakeServer::Request& request) { return HostPath({}, request); });
  const SizedRelay relay(plugin.address(), std::nullopt);
  for (const rpc::Api api : {rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kCsi}) {
    rpc::ListRequest request = relay.Request(api);
    EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kDataLoss);
    request.no_message = NoMessage::kAccepted;
    EXPECT_EQ(ListWhatComes(request).completeness, rpc::Completeness::kProvenFromRelay);
    request.require_proof = true;
    EXPECT_EQ(ListWhatComes(request).status.code(), StatusCode::kFailedPrecondition);
  }
  // A page can't be without a size.
  EXPECT_FALSE(ListWhatComes(relay.Request(rpc::Api::kPaged)).status.ok());
}

// At an offset, type and capacity of a message of the relay's own could differ from those that the
// client had before.
TEST(RelayNoMessage, FAResumptionsAreFinished) {
  const std::vector<uint64_t> changed{0, 1, 7, 200};
  const FakeServer plugin(
      [&](const FakeServer::Request& request) { return HostPath(changed, request); });
  for (const auto capacity : {std::optional<uint64_t>(), std::optional(kCapacity - kBlock)}) {
    const SizedRelay relay(plugin.address(), capacity);
    rpc::ListRequest request = relay.Request();
    const auto whole = rpc::RemoteCursor::Open(request);
    ASSERT_OK(whole);
    request.source_version = (*whole)->source_version();
    EXPECT_FALSE(request.source_version.empty());
    for (const uint64_t offset :
         {201 * kBlock, kCapacity - kBlock, kCapacity, kCapacity + kBlock}) {
      request.starting_offset = offset;
      request.no_message = NoMessage::kAccepted;
      const auto rest = rpc::RemoteCursor::Open(request);
      ASSERT_OK(rest) << offset;
      EXPECT_FALSE((*rest)->capacity_known());
      EXPECT_TRUE(ListWhatComes(request).tuples.empty());
    }
    // The cursor itself finishes, too.
    ASSERT_OK((*whole)->Seek(201 * kBlock));
    ExtentBatch batch;
    EXPECT_EQ(ValueOf((*whole)->Next(batch)), Step::kComplete);
    EXPECT_TRUE(batch.empty());
  }
}

TEST(RelayNoMessage, FAIsInternalForThoseWhoRequireAMessage) {
  const FakeServer plugin(Script{});
  for (const bool check : {true, false}) {
    const SizedRelay relay(plugin.address(), kCapacity, true, check);
    for (const rpc::Api api : {rpc::Api::kKubernetes, rpc::Api::kSession}) {
      rpc::ListRequest request = relay.Request(api);
      for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kCapacity}) {
        request.starting_offset = offset;
        const absl::Status status = ListWhatComes(request).status;
        EXPECT_EQ(status.code(), StatusCode::kInternal);
        EXPECT_THAT(status.ToString(), HasSubstr("without a message"));
      }
    }
  }
}

TEST(RelayNoMessage, FAWhatContradictsItIsInternal) {
  StreamDigest one;
  const std::vector<uint64_t> number{1};
  one.Add(number, number);
  const FakeServer proven(Script{.trailing = rpc::ProofMetadata(one, 0, std::nullopt)});
  const SizedRelay relay(proven.address(), kCapacity);
  EXPECT_EQ(ListWhatComes(relay.Request()).status.code(), StatusCode::kInternal);
  const std::string key(rpc::kSourceVersionKey);
  const FakeServer twice(Script{.initial = {{key, "a"}, {key, "b"}}});
  const SizedRelay other(twice.address(), kCapacity);
  EXPECT_EQ(ListWhatComes(other.Request()).status.code(), StatusCode::kInternal);
}

}  // namespace no_message_test
}  // namespace cbt::test
