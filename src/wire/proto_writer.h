// Appends fields of small protobuf messages to a string, without libprotobuf.
#ifndef CBT_WIRE_PROTO_WRITER_H_
#define CBT_WIRE_PROTO_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cbt::wire {

// A varint field (integers, booleans, enums); omitted if the value is 0, as in proto3.
void AppendVarintField(std::string& out, uint32_t field, uint64_t value);

// A string, bytes or message field; omitted if empty.
void AppendBytesField(std::string& out, uint32_t field, std::string_view value);

// As above, but written even if empty: for a message that is present, or an element of a repeated
// field.
void AppendBytesFieldAlways(std::string& out, uint32_t field, std::string_view value);

}  // namespace cbt::wire

#endif  // CBT_WIRE_PROTO_WRITER_H_
