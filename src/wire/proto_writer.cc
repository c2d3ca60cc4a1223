#include "wire/proto_writer.h"

#include "wire/proto_reader.h"

namespace cbt::wire {
namespace {

void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void AppendTag(std::string& out, uint32_t field, WireType type) {
  AppendVarint(out, uint64_t{field} << 3 | static_cast<uint64_t>(type));
}

}  // namespace

void AppendVarintField(std::string& out, uint32_t field, uint64_t value) {
  if (value == 0) return;
  AppendTag(out, field, WireType::kVarint);
  AppendVarint(out, value);
}

void AppendBytesField(std::string& out, uint32_t field, std::string_view value) {
  if (!value.empty()) AppendBytesFieldAlways(out, field, value);
}

void AppendBytesFieldAlways(std::string& out, uint32_t field, std::string_view value) {
  AppendTag(out, field, WireType::kBytes);
  AppendVarint(out, value.size());
  out.append(value);
}

}  // namespace cbt::wire
