// Our bytes against libprotobuf's. It parses what we encode to the same values and writes the same
// bytes; both accept or both reject other encoders' bytes, with the same meaning. Two differences
// are intended: we reject tags and enum values of more than 32 bits, which libprotobuf truncates,
// and numbers past 2^63 - 1. The first byte chooses the message.
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "csi.pb.h"
#include "first_revision.pb.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "list_snapshot_deltas.pb.h"
#include "rpc/client/paged_inbound.h"
#include "rpc/contract/contract.h"
#include "snapshotmetadata.pb.h"

namespace {

using Bytes = std::span<const uint8_t>;
using google::protobuf::Message;

Bytes BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool Says(const absl::Status& status, const char* what) {
  return status.message().find(what) != std::string::npos;
}

// libprotobuf truncates field numbers and types to 32 bits, and accepts any number of secrets.
bool IsWantedDifference(const absl::Status& status) {
  if (Says(status, "invalid field number") || Says(status, "more than 1024 secrets")) return true;
  const std::string text(status.message());
  const size_t at = text.find("unknown block_metadata_type ");
  return at != std::string::npos && std::stoull(text.substr(at + 28)) > UINT32_MAX;
}

int64_t CapacityOf(const csi::v1::GetMetadataDeltaResponse& message) {
  return message.volume_capacity_bytes();
}
int64_t CapacityOf(const snapshotmetadata::GetMetadataAllocatedResponse& message) {
  return message.volume_capacity_bytes();
}
int64_t CapacityOf(const GetDeltaResponse& message) {
  return static_cast<int64_t>(message.volume_size_bytes());
}

template <typename Response>
void CheckResponse(const cbt::rpc::Contract& contract, Bytes bytes) {
  Response response;
  const bool parsed = response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  cbt::MetadataMessage message;
  absl::Status status = cbt::DecodeMetadataMessage(bytes, message);
  if (status.ok()) status = cbt::rpc::TranslateType(contract, message);
  if (!parsed) {
    CBT_FUZZ_CHECK(!status.ok());
    return;
  }
  const int types = contract.types == cbt::rpc::TypeNumbers::kFinal ? 3 : 2;
  bool plausible = CapacityOf(response) >= 0 && response.block_metadata_type() >= 0 &&
                   response.block_metadata_type() < types;
  for (const auto& tuple : response.block_metadata()) {
    plausible = plausible && static_cast<int64_t>(tuple.byte_offset()) >= 0 &&
                static_cast<int64_t>(tuple.size_bytes()) >= 0;
  }
  if (!plausible) {
    CBT_FUZZ_CHECK(!status.ok());
    return;
  }
  if (!status.ok()) {
    CBT_FUZZ_CHECK(IsWantedDifference(status));
    return;
  }
  const int type = static_cast<int>(message.type) - (types == 2 ? 1 : 0);
  CBT_FUZZ_CHECK(type == static_cast<int>(response.block_metadata_type()));
  CBT_FUZZ_CHECK(message.capacity == static_cast<uint64_t>(CapacityOf(response)));
  CBT_FUZZ_CHECK(message.tuples.size() == static_cast<size_t>(response.block_metadata_size()));
  for (size_t i = 0; i < message.tuples.size(); ++i) {
    const auto& tuple = response.block_metadata(static_cast<int>(i));
    CBT_FUZZ_CHECK(message.tuples[i].offset == static_cast<uint64_t>(tuple.byte_offset()));
    CBT_FUZZ_CHECK(message.tuples[i].length == static_cast<uint64_t>(tuple.size_bytes()));
  }
}

// We skip the token of a block, libprotobuf parses it; both check its framing.
bool IsFramedAlike(Bytes bytes) {
  google::protobuf::Empty outer;
  if (!outer.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const auto& fields = outer.GetReflection()->GetUnknownFields(outer);
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() != 3 ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) {
      continue;
    }
    google::protobuf::Empty inner;
    if (!inner.ParseFromString(field.length_delimited())) return false;
  }
  return true;
}

void CheckPage(Bytes bytes) {
  csi::v1::ListSnapshotDeltasResponse response;
  const bool parsed = response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  cbt::rpc::SnapshotDeltaPage page;
  const absl::Status status = cbt::rpc::DecodePage(bytes, page);
  if (!parsed) {
    CBT_FUZZ_CHECK(!status.ok() || IsFramedAlike(bytes));
    return;
  }
  if (!status.ok()) {
    CBT_FUZZ_CHECK(IsWantedDifference(status) || Says(status, "past 2^63 - 1"));
    return;
  }
  CBT_FUZZ_CHECK(page.capacity == response.volume_size_bytes());
  CBT_FUZZ_CHECK(page.next_token == response.next_token());
  CBT_FUZZ_CHECK(page.tuples.size() == static_cast<size_t>(response.changed_blocks_size()));
  for (size_t i = 0; i < page.tuples.size(); ++i) {
    const auto& block = response.changed_blocks(static_cast<int>(i));
    CBT_FUZZ_CHECK(page.tuples[i].offset == block.offset());
    CBT_FUZZ_CHECK(page.tuples[i].length == block.block_size_bytes());
  }
}

std::string Deterministic(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void CheckRequest(const cbt::rpc::MethodContract& method, Message& message, Bytes bytes) {
  const bool parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const auto request = cbt::rpc::DecodeRequest(method, bytes);
  if (!parsed) {
    CBT_FUZZ_CHECK(!request.ok());
    return;
  }
  if (!request.ok()) {
    CBT_FUZZ_CHECK(IsWantedDifference(request.status()));
    return;
  }
  const auto* const reflection = message.GetReflection();
  const auto field = [&](uint32_t number) {
    return message.GetDescriptor()->FindFieldByNumber(static_cast<int>(number));
  };
  const auto same = [&](uint32_t number, std::string_view text) {
    return number == 0 || reflection->GetString(message, field(number)) == text;
  };
  const auto& fields = method.fields;
  CBT_FUZZ_CHECK(same(fields.token, request->token.Reveal()));
  CBT_FUZZ_CHECK(same(fields.name_space, request->name_space));
  CBT_FUZZ_CHECK(same(fields.volume_id, request->volume_id));
  CBT_FUZZ_CHECK(same(fields.page_token, request->page_token));
  CBT_FUZZ_CHECK(same(fields.base_snapshot_id, request->base_snapshot_id.value_or("")));
  CBT_FUZZ_CHECK(same(fields.target_snapshot_id, request->target_snapshot_id));
  // libprotobuf writes the same bytes, which covers the numbers and the secrets.
  message.DiscardUnknownFields();
  CBT_FUZZ_CHECK(cbt::rpc::EncodeRequest(method, *request) == Deterministic(message));
  if (fields.starting_offset != 0) {
    const int64_t offset =
        method.unsigned_numbers
            ? static_cast<int64_t>(reflection->GetUInt64(message, field(fields.starting_offset)))
            : reflection->GetInt64(message, field(fields.starting_offset));
    CBT_FUZZ_CHECK(request->starting_offset == offset);
  }
  const int64_t most = method.unsigned_numbers
                           ? int64_t{reflection->GetUInt32(message, field(fields.max_results))}
                           : int64_t{reflection->GetInt32(message, field(fields.max_results))};
  CBT_FUZZ_CHECK(request->max_results == most);
}

template <typename Request>
void CheckRequestAs(const cbt::rpc::MethodContract& method, Bytes bytes) {
  Request message;
  CheckRequest(method, message, bytes);
}

// Encodes values of any size, in one piece or in as many as the room requires.
void CheckEncoder(cbt::fuzz::Input input) {
  const auto value = [&input] {
    const uint64_t shape = input.Take(1);
    return input.Take(shape & 7) >> (shape >> 3) & static_cast<uint64_t>(INT64_MAX);
  };
  const auto type = static_cast<cbt::BlockMetadataType>(input.Take(1) % 3);
  const uint64_t capacity = value();
  const size_t room = cbt::kMaxTupleBytes + input.Take(1) * 3;
  csi::v1::GetMetadataDeltaResponse want;
  want.set_block_metadata_type(static_cast<csi::v1::BlockMetadataType>(type));
  want.set_volume_capacity_bytes(static_cast<int64_t>(capacity));
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  while (!input.empty()) {
    offsets.push_back(value());
    lengths.push_back(value());
    auto* const tuple = want.add_block_metadata();
    tuple->set_byte_offset(static_cast<int64_t>(offsets.back()));
    tuple->set_size_bytes(static_cast<int64_t>(lengths.back()));
  }
  std::string bytes(cbt::kMaxHeaderBytes, '\0');
  bytes.resize(cbt::EncodeHeader(type, capacity, reinterpret_cast<uint8_t*>(bytes.data())));
  std::vector<uint8_t> out(room);
  for (size_t done = 0; done < offsets.size();) {
    const auto encoded =
        cbt::EncodeTuples(std::span(offsets).subspan(done), std::span(lengths).subspan(done), out);
    CBT_FUZZ_CHECK(encoded.bytes <= room);
    CBT_FUZZ_CHECK(encoded.tuples >= std::min(room / cbt::kMaxTupleBytes, offsets.size() - done));
    bytes.append(reinterpret_cast<const char*>(out.data()), encoded.bytes);
    done += encoded.tuples;
  }
  csi::v1::GetMetadataDeltaResponse parsed;
  CBT_FUZZ_CHECK(parsed.ParseFromString(bytes));
  CBT_FUZZ_CHECK(parsed.block_metadata_type() == want.block_metadata_type());
  CBT_FUZZ_CHECK(parsed.volume_capacity_bytes() == want.volume_capacity_bytes());
  CBT_FUZZ_CHECK(parsed.block_metadata_size() == want.block_metadata_size());
  for (int i = 0; i < want.block_metadata_size(); ++i) {
    CBT_FUZZ_CHECK(parsed.block_metadata(i).byte_offset() == want.block_metadata(i).byte_offset());
    CBT_FUZZ_CHECK(parsed.block_metadata(i).size_bytes() == want.block_metadata(i).size_bytes());
  }
  CBT_FUZZ_CHECK(bytes == want.SerializeAsString());
  CheckResponse<csi::v1::GetMetadataDeltaResponse>(cbt::rpc::kCsiContract, BytesOf(bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // libprotobuf logs a line for every string that is not UTF-8.
  [[maybe_unused]] static const bool silent = google::protobuf::SetLogHandler(nullptr) != nullptr;
  if (size == 0) return 0;
  const Bytes bytes(data + 1, size - 1);
  using cbt::rpc::kCsiContract;
  using cbt::rpc::kKubernetesContract;
  using cbt::rpc::kSessionContract;
  switch (data[0] % 12) {
    case 0:
      CheckEncoder({bytes.data(), bytes.size()});
      break;
    case 1:
      CheckResponse<csi::v1::GetMetadataDeltaResponse>(kCsiContract, bytes);
      break;
    case 2:
      CheckResponse<GetDeltaResponse>(kSessionContract, bytes);
      break;
    case 3:
      CheckResponse<snapshotmetadata::GetMetadataAllocatedResponse>(kKubernetesContract, bytes);
      break;
    case 4:
      CheckPage(bytes);
      break;
    case 5:
      CheckRequestAs<csi::v1::GetMetadataAllocatedRequest>(kCsiContract.allocated, bytes);
      break;
    case 6:
      CheckRequestAs<csi::v1::GetMetadataDeltaRequest>(kCsiContract.delta, bytes);
      break;
    case 7:
      CheckRequestAs<snapshotmetadata::GetMetadataAllocatedRequest>(kKubernetesContract.allocated,
                                                                    bytes);
      break;
    case 8:
      CheckRequestAs<snapshotmetadata::GetMetadataDeltaRequest>(kKubernetesContract.delta, bytes);
      break;
    case 9:
      CheckRequestAs<GetAllocatedRequest>(kSessionContract.allocated, bytes);
      break;
    case 10:
      CheckRequestAs<GetDeltaRequest>(kSessionContract.delta, bytes);
      break;
    default:
      CheckRequestAs<csi::v1::ListSnapshotDeltasRequest>(cbt::rpc::kListSnapshotDeltas, bytes);
      break;
  }
  return 0;
}
