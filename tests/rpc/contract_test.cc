// Requests: our bytes and our reading of bytes against libprotobuf's.
#include "rpc/contract.h"

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
#include "support/generators.h"

namespace cbt::rpc {
namespace {

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

RC_GTEST_PROP(Contract, EncodesTheBytesOfLibprotobuf, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const GetMetadataDeltaRequest delta = AnyRequest(random);
  const std::map<std::string, std::string> secrets(delta.secrets().begin(), delta.secrets().end());
  const std::string base = delta.base_snapshot_id();
  RC_ASSERT(EncodeRequest(kCsiContract.delta, &base, delta.target_snapshot_id(),
                          static_cast<uint64_t>(delta.starting_offset()), delta.max_results(),
                          secrets) == Deterministic(delta));

  GetMetadataAllocatedRequest allocated;
  allocated.set_snapshot_id(delta.target_snapshot_id());
  allocated.set_starting_offset(delta.starting_offset());
  allocated.set_max_results(delta.max_results());
  *allocated.mutable_secrets() = delta.secrets();
  RC_ASSERT(EncodeRequest(kCsiContract.allocated, nullptr, allocated.snapshot_id(),
                          static_cast<uint64_t>(allocated.starting_offset()),
                          allocated.max_results(), secrets) == Deterministic(allocated));
}

// Bytes that libprotobuf takes must mean the same to us; of others nothing may crash.
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
      // libprotobuf drops the upper bits of field numbers that no message can have.
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

// libprotobuf says on stderr what it thinks of strings that are not UTF-8.
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

TEST(Contract, ChecksArguments) {
  const auto check = [](const MethodContract& method, MetadataRequest request) {
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
}

}  // namespace
}  // namespace cbt::rpc
