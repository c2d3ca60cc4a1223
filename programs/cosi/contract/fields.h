// Fields of messages: texts, numbers and maps of texts.
#ifndef CBT_PROGRAMS_COSI_CONTRACT_FIELDS_H_
#define CBT_PROGRAMS_COSI_CONTRACT_FIELDS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/contract/contract.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::cosi {

// Calls `use(reader)`, which returns an absl::Status, for each field of the message.
template <typename Use>
absl::Status ForEachField(MessageBytes message, Use use) {
  wire::ProtoReader reader(message);
  while (reader.Next()) {
    if (absl::Status used = use(reader); !used.ok()) return used;
  }
  return reader.status();
}

// The same for a whole message, whose fields `use` takes into `value`.
template <typename Message, typename Use>
absl::StatusOr<Message> ReadInto(Message& value, MessageBytes message, Use use) {
  if (absl::Status read = ForEachField(message, use); !read.ok()) return read;
  return std::move(value);
}

// Each takes the current field into `value` if it has this number and kind, and leaves it alone
// otherwise. Errors: INVALID_ARGUMENT for a text that is not UTF-8.
absl::Status TakeText(const wire::ProtoReader& reader, uint32_t field, std::string& value);
absl::Status TakeEntry(const wire::ProtoReader& reader, uint32_t field, Parameters& values);
template <typename Enum>
void TakeEnum(const wire::ProtoReader& reader, uint32_t field, Enum& value) {
  // As libprotobuf: the low 32 bits.
  if (reader.Is(field, wire::WireType::kVarint)) {
    value = static_cast<Enum>(static_cast<int32_t>(reader.varint()));
  }
}

void AppendParameters(std::string& out, uint32_t field, const Parameters& values);
template <typename Enum>
void AppendEnum(std::string& out, uint32_t field, Enum value) {
  wire::AppendVarintField(out, field,
                          static_cast<uint64_t>(static_cast<int64_t>(static_cast<int>(value))));
}

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONTRACT_FIELDS_H_
