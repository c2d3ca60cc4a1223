// Our encoding against libprotobuf's, both ways.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "csi.pb.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace protobuf_test {

using Response = csi::v1::GetMetadataDeltaResponse;

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A value of any magnitude that fits the wire.
uint64_t AnyValue(std::mt19937_64& random) { return random() >> (1 + random() % 64 % 63); }

MetadataMessage AnyMessage(std::mt19937_64& random) {
  MetadataMessage message;
  message.type = static_cast<BlockMetadataType>(random() % 3);
  message.capacity = random() % 4 == 0 ? 0 : AnyValue(random);
  message.tuples.resize(random() % 40);
  for (size_t i = 0; i < message.tuples.size(); ++i) {
    message.tuples.set(
        i, {random() % 6 == 0 ? 0 : AnyValue(random), random() % 6 == 0 ? 0 : AnyValue(random)});
  }
  return message;
}

Response ToProtobuf(const MetadataMessage& message) {
  Response response;
  response.set_block_metadata_type(static_cast<csi::v1::BlockMetadataType>(message.type));
  response.set_volume_capacity_bytes(static_cast<int64_t>(message.capacity));
  for (size_t i = 0; i < message.tuples.size(); ++i) {
    const Extent tuple = message.tuples[i];
    auto* metadata = response.add_block_metadata();
    metadata->set_byte_offset(static_cast<int64_t>(tuple.offset));
    metadata->set_size_bytes(static_cast<int64_t>(tuple.length));
  }
  return response;
}

std::string Encode(const MetadataMessage& message) {
  std::string out(kMaxHeaderBytes + message.tuples.size() * kMaxTupleBytes, '\0');
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  const size_t header = EncodeHeader(message.type, message.capacity, bytes);
  const EncodedTuples tuples = EncodeTuples(message.tuples.offsets(), message.tuples.lengths(),
                                            {bytes + header, out.size() - header});
  EXPECT_EQ(tuples.tuples, message.tuples.size());
  out.resize(header + tuples.bytes);
  return out;
}

RC_GTEST_PROP(ProtobufProperty, EncodedBytesAreIdenticalWithLibprotobufs, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const MetadataMessage message = AnyMessage(random);
  RC_ASSERT(Encode(message) == ToProtobuf(message).SerializeAsString());
}

// Around values at which a varint gets longer: capacities are often powers of two.
TEST(ProtobufTest, EncodesNumbersOfEveryLengthAsLibprotobufDoes) {
  for (unsigned bits = 7; bits < 63; ++bits) {
    for (const uint64_t value : {(uint64_t{1} << bits) - 1, uint64_t{1} << bits,
                                 (uint64_t{1} << bits) + 1, (uint64_t{1} << bits) + 127}) {
      MetadataMessage message;
      message.type = BlockMetadataType::kVariableLength;
      message.capacity = value;
      message.tuples.push_back({value, value});
      ASSERT_EQ(Encode(message), ToProtobuf(message).SerializeAsString()) << value;
    }
  }
}

RC_GTEST_PROP(ProtobufProperty, DecodesWhatLibprotobufEncodes, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const MetadataMessage message = AnyMessage(random);
  const std::string bytes = ToProtobuf(message).SerializeAsString();
  const auto decoded = DecodeMetadataMessage(Bytes(bytes));
  test::RequireOk(decoded);
  RC_ASSERT(decoded->type == message.type);
  RC_ASSERT(decoded->capacity == message.capacity);
  RC_ASSERT(decoded->tuples == message.tuples);
}

// Bytes that libprotobuf refuses are refused, and those it accepts mean the same: fields out of
// order, repeated scalars, unknown fields, overlong varints.
RC_GTEST_PROP(ProtobufProperty, AgreesWithLibprotobufOnMutatedBytes, ()) {
  std::mt19937_64 random = test::AnyRandom();
  std::string bytes = ToProtobuf(AnyMessage(random)).SerializeAsString();
  for (uint64_t changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, 1 + random() % 3);
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(random() % 64));
        break;
      default:
        bytes += bytes.substr(at, random() % 20);
        break;
    }
  }
  Response response;
  const bool parsed = response.ParseFromString(bytes);
  const auto decoded = DecodeMetadataMessage(Bytes(bytes));
  if (!parsed) {
    RC_ASSERT(!decoded.ok());
    return;
  }
  bool plausible = response.volume_capacity_bytes() >= 0 &&
                   csi::v1::BlockMetadataType_IsValid(response.block_metadata_type());
  for (const auto& tuple : response.block_metadata()) {
    plausible = plausible && tuple.byte_offset() >= 0 && tuple.size_bytes() >= 0;
  }
  if (!plausible) {
    RC_ASSERT(!decoded.ok());
    return;
  }
  // In two cases libprotobuf drops bits of a malformed value and continues; we refuse these: enums
  // and tags of more than 32 bits.
  if (!decoded.ok()) {
    const std::string text(decoded.status().message());
    RC_LOG(text);
    RC_ASSERT(text.find("unknown block_metadata_type") != std::string::npos ||
              text.find("invalid field number") != std::string::npos);
    return;
  }
  RC_ASSERT(static_cast<int>(decoded->type) == static_cast<int>(response.block_metadata_type()));
  RC_ASSERT(decoded->capacity == static_cast<uint64_t>(response.volume_capacity_bytes()));
  RC_ASSERT(decoded->tuples.size() == static_cast<size_t>(response.block_metadata_size()));
  for (int i = 0; i < response.block_metadata_size(); ++i) {
    const auto& tuple = response.block_metadata(i);
    RC_ASSERT(decoded->tuples[static_cast<size_t>(i)].offset ==
              static_cast<uint64_t>(tuple.byte_offset()));
    RC_ASSERT(decoded->tuples[static_cast<size_t>(i)].length ==
              static_cast<uint64_t>(tuple.size_bytes()));
  }
}

TEST(EncodeTuplesTest, WritesAsManyAsFitAndSaysHowMany) {
  const std::vector<uint64_t> values(10, 1);
  std::vector<uint8_t> out(3 * kMaxTupleBytes);
  const EncodedTuples encoded = EncodeTuples(values, values, out);
  EXPECT_GE(encoded.tuples, 3u);
  EXPECT_EQ(encoded.bytes, encoded.tuples * 6);
  EXPECT_EQ(EncodeTuples(values, values, std::span(out).first(21)).tuples, 0u);
}

}  // namespace protobuf_test
}  // namespace cbt
