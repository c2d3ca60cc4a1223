// Our encoding and decoding of requests against libprotobuf's.
#include "rpc/contract/contract.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>
#include <string>

#include "csi.pb.h"
#include "first_revision.pb.h"
#include "list_snapshot_deltas.pb.h"
#include "snapshotmetadata.pb.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::rpc {
namespace contract_test {

using csi::v1::GetMetadataAllocatedRequest;
using csi::v1::GetMetadataDeltaRequest;

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string AnyText(std::mt19937_64& random) {
  static const char* const kPieces[] = {"a", "/", "volume", "\0", "é", "漢", "𝄞", ".."};
  std::string text;
  for (uint64_t i = random() % 6; i > 0; --i) text += kPieces[random() % 8];
  return text;
}

GetMetadataDeltaRequest AnyRequest(std::mt19937_64& random) {
  GetMetadataDeltaRequest request;
  request.set_base_snapshot_id(AnyText(random));
  request.set_target_snapshot_id(AnyText(random));
  request.set_starting_offset(static_cast<int64_t>(random() >> (random() % 64)));
  request.set_max_results(static_cast<int32_t>(random() >> (32 + random() % 32)));
  for (uint64_t i = random() % 4; i > 0; --i) {
    (*request.mutable_secrets())[AnyText(random)] = AnyText(random);
  }
  return request;
}

template <typename Message>
std::string Deterministic(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

void ExpectSame(const MetadataRequest& ours, const GetMetadataDeltaRequest& theirs) {
  ASSERT_TRUE(ours.base_snapshot_id.has_value());
  EXPECT_EQ(*ours.base_snapshot_id, theirs.base_snapshot_id());
  EXPECT_EQ(ours.target_snapshot_id, theirs.target_snapshot_id());
  EXPECT_EQ(ours.starting_offset, theirs.starting_offset());
  EXPECT_EQ(ours.max_results, theirs.max_results());
  EXPECT_EQ(ours.secrets.size(), theirs.secrets().size());
  for (const auto& [key, value] : theirs.secrets()) EXPECT_EQ(ours.secrets.Get(key), value);
}

RC_GTEST_PROP(Contract, DecodesWhatLibprotobufEncodes, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const GetMetadataDeltaRequest request = AnyRequest(random);
  const auto decoded = DecodeRequest(kCsiContract.delta, Bytes(request.SerializeAsString()));
  RC_ASSERT(decoded.ok());
  ExpectSame(*decoded, request);
  RC_ASSERT(!testing::Test::HasFailure());
}

MetadataRequest Ours(const GetMetadataDeltaRequest& theirs, bool delta) {
  MetadataRequest request;
  if (delta) request.base_snapshot_id = theirs.base_snapshot_id();
  request.target_snapshot_id = theirs.target_snapshot_id();
  request.starting_offset = theirs.starting_offset();
  request.max_results = theirs.max_results();
  for (const auto& [key, value] : theirs.secrets()) request.secrets.Set(key, value);
  return request;
}

RC_GTEST_PROP(Contract, EncodesTheBytesOfLibprotobuf, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const GetMetadataDeltaRequest delta = AnyRequest(random);
  RC_ASSERT(EncodeRequest(kCsiContract.delta, Ours(delta, true)) == Deterministic(delta));

  GetMetadataAllocatedRequest allocated;
  allocated.set_snapshot_id(delta.target_snapshot_id());
  allocated.set_starting_offset(delta.starting_offset());
  allocated.set_max_results(delta.max_results());
  *allocated.mutable_secrets() = delta.secrets();
  RC_ASSERT(EncodeRequest(kCsiContract.allocated, Ours(delta, false)) == Deterministic(allocated));
}

// Both directions of the other contracts' requests.
RC_GTEST_PROP(Contract, SpeaksTheOtherContractsAsLibprotobufDoes, ()) {
  std::mt19937_64 random = test::AnyRandom();
  MetadataRequest ours = Ours(AnyRequest(random), true);
  ours.secrets = Secrets();
  const std::string token = AnyText(random);
  ours.token = Secret(token);
  ours.name_space = AnyText(random);
  ours.volume_id = AnyText(random);
  const auto check = [](const MethodContract& method, const MetadataRequest& request,
                        const auto& theirs) {
    RC_ASSERT(EncodeRequest(method, request) == Deterministic(theirs));
    const auto decoded = DecodeRequest(method, Bytes(theirs.SerializeAsString()));
    RC_ASSERT(decoded.ok());
    RC_ASSERT(EncodeRequest(method, *decoded) == Deterministic(theirs));
  };

  snapshotmetadata::GetMetadataDeltaRequest kubernetes;
  kubernetes.set_security_token(token);
  kubernetes.set_namespace_(ours.name_space);
  kubernetes.set_base_snapshot_id(*ours.base_snapshot_id);
  kubernetes.set_target_snapshot_name(ours.target_snapshot_id);
  kubernetes.set_starting_offset(ours.starting_offset);
  kubernetes.set_max_results(static_cast<int32_t>(ours.max_results));
  check(kKubernetesContract.delta, ours, kubernetes);

  GetDeltaRequest session;
  session.set_session_token(token);
  session.set_volume_id(ours.volume_id);
  session.set_base_snapshot(*ours.base_snapshot_id);
  session.set_target_snapshot(ours.target_snapshot_id);
  session.set_starting_byte_offset(static_cast<uint64_t>(ours.starting_offset));
  ours.max_results = static_cast<uint32_t>(random());
  session.set_max_results(static_cast<uint32_t>(ours.max_results));
  check(kSessionContract.delta, ours, session);

  csi::v1::ListSnapshotDeltasRequest paged;
  ours.max_results = static_cast<int32_t>(random());
  ours.page_token = AnyText(random);
  ours.secrets.Set("key", "value");
  paged.set_from_snapshot_id(*ours.base_snapshot_id);
  paged.set_to_snapshot_id(ours.target_snapshot_id);
  (*paged.mutable_secrets())["key"] = "value";
  paged.set_max_entries(static_cast<int32_t>(ours.max_results));
  paged.set_starting_token(ours.page_token);
  check(kPagedContract.delta, ours, paged);

  ours.base_snapshot_id.reset();
  snapshotmetadata::GetMetadataAllocatedRequest kubernetes_allocated;
  kubernetes_allocated.set_security_token(token);
  kubernetes_allocated.set_namespace_(ours.name_space);
  kubernetes_allocated.set_snapshot_name(ours.target_snapshot_id);
  kubernetes_allocated.set_starting_offset(ours.starting_offset);
  kubernetes_allocated.set_max_results(static_cast<int32_t>(ours.max_results));
  check(kKubernetesContract.allocated, ours, kubernetes_allocated);

  GetAllocatedRequest session_allocated;
  session_allocated.set_session_token(token);
  session_allocated.set_volume_id(ours.volume_id);
  session_allocated.set_snapshot(ours.target_snapshot_id);
  session_allocated.set_starting_offset(static_cast<uint64_t>(ours.starting_offset));
  ours.max_results = static_cast<uint32_t>(random());
  session_allocated.set_max_results(static_cast<uint32_t>(ours.max_results));
  check(kSessionContract.allocated, ours, session_allocated);
}

TEST(Contract, E17TypesOfTheFirstRevisionBeginAtZero) {
  EXPECT_EQ(static_cast<int>(TypeOnWire(kSessionContract, BlockMetadataType::kFixedLength)), 0);
  EXPECT_EQ(static_cast<int>(TypeOnWire(kSessionContract, BlockMetadataType::kVariableLength)), 1);
  EXPECT_EQ(static_cast<int>(TypeOnWire(kCsiContract, BlockMetadataType::kFixedLength)), 1);
  for (const BlockMetadataType type :
       {BlockMetadataType::kFixedLength, BlockMetadataType::kVariableLength}) {
    MetadataMessage message{.type = TypeOnWire(kSessionContract, type)};
    EXPECT_OK(TranslateType(kSessionContract, message));
    EXPECT_EQ(message.type, type);
  }
  MetadataMessage beyond{.type = BlockMetadataType{2}};
  EXPECT_EQ(TranslateType(kSessionContract, beyond).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Contract, E17UnsignedOffsetsPastAnyCapacityAreOutOfRange) {
  MetadataRequest request{.token = Secret("t"), .target_snapshot_id = "s"};
  request.starting_offset = INT64_MIN;  // 2^63 on the wire
  const absl::Status status = CheckRequest(kSessionContract.allocated, request);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("9223372036854775808"));
}

// Bytes that libprotobuf accepts must mean the same to us; other bytes must not crash.
RC_GTEST_PROP(Contract, MutatedBytesMeanWhatLibprotobufSays, ()) {
  std::mt19937_64 random = test::AnyRandom();
  for (int i = 0; i < 50; ++i) {
    std::string bytes = AnyRequest(random).SerializeAsString();
    for (uint64_t k = 1 + random() % 3; k > 0; --k) {
      const size_t at = bytes.empty() ? 0 : random() % bytes.size();
      switch (random() % 4) {
        case 0:
          if (!bytes.empty()) bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes += AnyRequest(random).SerializeAsString();
          break;
      }
    }
    const auto ours = DecodeRequest(kCsiContract.delta, Bytes(bytes));
    GetMetadataDeltaRequest theirs;
    if (theirs.ParseFromString(bytes)) {
      // libprotobuf drops the upper bits of invalid field numbers.
      if (ours.status().message().find("field number") != absl::string_view::npos) continue;
      RC_ASSERT(ours.ok());
      ExpectSame(*ours, theirs);
      RC_ASSERT(!testing::Test::HasFailure());
    } else if (!ours.ok()) {
      RC_ASSERT(ours.status().code() == absl::StatusCode::kInvalidArgument);
    }
  }
}

RC_GTEST_PROP(Contract, GarbageNeverCrashes, ()) {
  std::mt19937_64 random = test::AnyRandom();
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    for (const MethodContract* method : {&kCsiContract.allocated, &kCsiContract.delta}) {
      const auto ours = DecodeRequest(*method, Bytes(bytes));
      RC_ASSERT(ours.ok() || ours.status().code() == absl::StatusCode::kInvalidArgument);
    }
  }
}

// libprotobuf logs strings that are not UTF-8 on stderr.
class Quiet : public testing::Environment {
 public:
  void SetUp() override { google::protobuf::SetLogHandler(nullptr); }
};
[[maybe_unused]] const auto* const quiet = testing::AddGlobalTestEnvironment(new Quiet);

TEST(Contract, StringsMustBeUtf8) {
  for (const std::string bytes : {"\x0a\x01\xff", "\x22\x03\x0a\x01\xff", "\x22\x03\x12\x01\xff"}) {
    const auto decoded = DecodeRequest(kCsiContract.allocated, Bytes(bytes));
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(decoded.status().message()), testing::HasSubstr("UTF-8"));
  }
}

TEST(Contract, E19ErrorsOfTheDecoderHoldNothingOfTheRequest) {
  GetMetadataAllocatedRequest request;
  request.set_snapshot_id("s");
  (*request.mutable_secrets())["user"] = "canary";
  const std::string bytes = request.SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto decoded = DecodeRequest(kCsiContract.allocated, Bytes(bytes.substr(0, length)));
    if (!decoded.ok()) {
      EXPECT_THAT(decoded.status().ToString(), testing::Not(testing::HasSubstr("canary")));
    }
  }
}

// Map entries take a few bytes on the wire and far more in memory. Equal keys are counted, too.
TEST(Contract, TakesSoManySecretsAndNoMore) {
  for (const bool equal : {false, true}) {
    std::string bytes = "\x0a\x01s";
    for (size_t i = 0; i < kMaxSecrets; ++i) {
      const std::string key = equal ? "key" : std::to_string(1000 + i);
      const auto size = static_cast<char>(key.size());
      bytes += std::string("\x22") + static_cast<char>(size + 2) + "\x0a" + size + key;
    }
    const auto most = DecodeRequest(kCsiContract.allocated, Bytes(bytes));
    ASSERT_OK(most);
    EXPECT_EQ(most->secrets.size(), equal ? 1 : kMaxSecrets);
    const auto more =
        DecodeRequest(kCsiContract.allocated, Bytes(bytes + std::string("\x22\x00", 2)));
    EXPECT_EQ(more.status(), absl::InvalidArgumentError("request: more than 1024 secrets"));
  }
}

TEST(Contract, ChecksArguments) {
  const auto check = [](const MethodContract& method, const MetadataRequest& request) {
    return CheckRequest(method, request).code();
  };
  const MethodContract& allocated = kCsiContract.allocated;
  const MethodContract& delta = kCsiContract.delta;
  using absl::StatusCode;
  EXPECT_EQ(check(allocated, {.target_snapshot_id = "s"}), StatusCode::kOk);
  EXPECT_EQ(check(allocated, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(delta, {.base_snapshot_id = "b", .target_snapshot_id = "s"}), StatusCode::kOk);
  EXPECT_EQ(check(delta, {.base_snapshot_id = "", .target_snapshot_id = "s"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(delta, {.base_snapshot_id = "b"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(allocated, {.target_snapshot_id = "s", .max_results = -1}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(allocated, {.target_snapshot_id = "s", .max_results = INT32_MIN}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(allocated, {.target_snapshot_id = "s", .starting_offset = -1}),
            StatusCode::kOutOfRange);
  EXPECT_EQ(check(allocated, {.target_snapshot_id = "s", .starting_offset = INT64_MIN}),
            StatusCode::kOutOfRange);

  // Further requirements of the other contracts.
  const MethodContract& kubernetes = kKubernetesContract.allocated;
  EXPECT_EQ(check(kubernetes, {.name_space = "n", .target_snapshot_id = "s"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(kubernetes, {.token = Secret("t"), .target_snapshot_id = "s"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(kubernetes, {.token = Secret("t"), .name_space = "n", .target_snapshot_id = "s"}),
            StatusCode::kOk);
  EXPECT_EQ(check(kSessionContract.allocated, {.target_snapshot_id = "s"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check(kPagedContract.delta, {.base_snapshot_id = "b"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(kPagedContract.delta, {.target_snapshot_id = "s"}), StatusCode::kOk);
  EXPECT_EQ(check(kPagedContract.delta, {.target_snapshot_id = "s", .max_results = -1}),
            StatusCode::kInvalidArgument);
}

}  // namespace contract_test
}  // namespace cbt::rpc
